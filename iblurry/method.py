"""A method: the six slots with their parts, the pace of training, and what a new class does to the head."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from iblurry.engine.optimizer import Adam
from iblurry.errors import InputError, UnknownNameError
from iblurry.parts import (
    Admission,
    CrossEntropy,
    Exponential,
    GradientRule,
    Plain,
    Readout,
    Rehearsal,
    Reservoir,
    Schedule,
    Term,
    Uniform,
)
from iblurry.parts.part import Part, part_from_json
from iblurry.parts.workbench import Workbench


def exact(value: Fraction | int | float | str) -> Fraction:
    """The fraction a person means: 0.1 is 1/10, not the nearest binary number."""
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"{value!r} is no fraction; write 3, 0.25 or 1/16.") from error


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When training happens and on what.

    Samples are gathered; `gather` of them start a round, which takes the updates owed so far (`updates_per_sample`
    each, a fraction counted exactly) and then begins to gather again.
    """

    gather: int = 8  # samples that start a round
    train_stream: bool = True  # whether the gathered samples are in every batch of their round
    updates_per_sample: Fraction = Fraction(1)
    store: Literal["before", "after"] = "after"  # when a sample is offered to the memory: before or after its round
    measure_every: int = 1  # updates between two measures of the memory's loss, where a part asks for it

    def __post_init__(self) -> None:
        object.__setattr__(self, "updates_per_sample", exact(self.updates_per_sample))
        if self.gather < 1 or self.measure_every < 1:
            raise InputError(f"{self}: gather and measure_every are at least 1.")
        if self.updates_per_sample < 0:
            raise InputError(f"{self}: updates_per_sample is not negative.")
        if self.store not in ("before", "after"):
            raise InputError(f"Pace(store={self.store!r}): store is 'before' or 'after'.")
        if self.train_stream and self.updates_per_sample * self.gather < 1:
            enough = f"gather at least {-(-1 // self.updates_per_sample)} or " if self.updates_per_sample else ""
            raise InputError(
                f"{self.gather} samples earn {self.updates_per_sample * self.gather} of an update, so some would never "
                f"be trained on; {enough}raise updates_per_sample."
            )

    @property
    def holds(self) -> int:
        """Samples that wait outside the memory; they count against the budget."""
        return self.gather if self.store == "after" else 0


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a new class does to the classifier and to its optimizer state, besides opening its row."""

    moments: Literal["forget", "keep"] = "forget"  # the head's optimizer state: restart at step 0, or carry on
    redraw_bias: bool = False  # released: the whole bias vector is drawn again, old classes included

    def __post_init__(self) -> None:
        if self.moments not in ("forget", "keep"):
            raise InputError(f"Head(moments={self.moments!r}): moments is 'forget' or 'keep'.")


@dataclass(frozen=True, kw_only=True)
class Method:
    """Experience replay, unless told otherwise: every other method is this with one to six fields changed."""

    name: str = "er"
    pace: Pace = Pace()
    admission: Admission = Reservoir()
    rehearsal: Rehearsal = Uniform()
    terms: tuple[Term, ...] = (CrossEntropy(),)
    gradient: tuple[GradientRule, ...] = ()
    schedule: Schedule = Exponential()
    readout: Readout = Plain()
    head: Head = Head()
    optimizer: Adam = Adam()

    def __post_init__(self) -> None:
        for slot, kind in KINDS.items():
            for part in _as_tuple(getattr(self, slot)):
                if not isinstance(part, kind):
                    raise InputError(f"{slot} takes a {kind.__name__}, not {part!r}.")
        if not self.terms:
            raise InputError("terms is empty, so there is no loss to train on; the usual choice is (CrossEntropy(),).")
        if self.pace.updates_per_sample and not self.pace.train_stream and not self.rehearsal.draws:
            raise InputError(
                f"{self.name}: updates are owed but the batch would be empty: the stream is not trained on "
                f"(pace.train_stream) and {type(self.rehearsal).__name__} rehearses no row."
            )

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Every part with the name of its place: ("admission", ...), ("terms.0", ...), ..."""
        for slot in KINDS:
            value = getattr(self, slot)
            if isinstance(value, tuple):
                yield from ((f"{slot}.{i}", part) for i, part in enumerate(value))
            else:
                yield slot, value

    def attach(self, bench: Workbench) -> Method:
        """The same method with every part at work on that bench, none of its state shared with anyone."""
        at_work = {place: part.attach(bench) for place, part in self.parts()}
        slots = {
            slot: tuple(at_work[f"{slot}.{i}"] for i in range(len(value)))
            if isinstance(value, tuple)
            else at_work[slot]
            for slot in KINDS
            for value in [getattr(self, slot)]
        }
        return dataclasses.replace(self, **slots)  # type: ignore[arg-type]

    def holds(self, budget: int) -> int:
        """Samples of a budget of K that are kept outside the memory: first those that wait, then what parts hold."""
        left = budget - self.pace.holds
        return self.pace.holds + sum(part.holds(left) for _, part in self.parts())

    @property
    def task_free(self) -> bool:
        """Whether it learns without being told where tasks end."""
        return not any(part.needs_boundaries for _, part in self.parts())

    def capacity(self, budget: int) -> int:
        """Memory rows out of a budget of K samples: what is held elsewhere counts."""
        return budget - self.holds(budget)

    def to_json(self) -> dict[str, Any]:
        parts = {
            slot: [p.to_json() for p in v] if isinstance(v := getattr(self, slot), tuple) else v.to_json()
            for slot in KINDS
        }
        pace = dataclasses.asdict(self.pace) | {"updates_per_sample": str(self.pace.updates_per_sample)}
        rest = {"head": dataclasses.asdict(self.head), "optimizer": dataclasses.asdict(self.optimizer)}
        return {"name": self.name, "pace": pace, **parts, **rest}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Method:
        known = [f.name for f in dataclasses.fields(cls)]
        for name in data:
            if name not in known:
                raise UnknownNameError("field of a method", name, known)
        values: dict[str, Any] = dict(data)
        for slot, kind in KINDS.items():
            if slot in data:
                value = data[slot]
                made = [part_from_json(kind.kind, v) for v in (value if isinstance(value, list) else [value])]
                values[slot] = tuple(made) if isinstance(value, list) else made[0]
        for name, group in (("pace", Pace), ("head", Head), ("optimizer", Adam)):
            if name in data:
                values[name] = group(**data[name])
        return cls(**values)


KINDS: dict[str, type[Part]] = {
    "admission": Admission,
    "rehearsal": Rehearsal,
    "terms": Term,
    "gradient": GradientRule,
    "schedule": Schedule,
    "readout": Readout,
}


def released(method: Method) -> Method:
    """The method as the authors' released program runs it: each part's own variant, and the bias drawn anew."""
    changes: dict[str, Any] = {}
    for slot in KINDS:
        value = getattr(method, slot)
        changes[slot] = tuple(p.released() for p in value) if isinstance(value, tuple) else value.released()
    head = dataclasses.replace(method.head, redraw_bias=True)
    return dataclasses.replace(method, name=f"{method.name}-released", head=head, **changes)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)

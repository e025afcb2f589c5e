"""A method: the six slots with their parts, the pace of training, and what a new class does to the head."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from iblurry.components.component import Component
from iblurry.engine.optimizer import Adam, Optimizer, as_optimizer
from iblurry.errors import InputError, UnknownNameError, check_fields, check_type
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
from iblurry.parts.context import Context
from iblurry.parts.part import Part, declared
from iblurry.storage.untrusted import exact


def check_updates(per_sample: Fraction | int | float | str) -> None:
    """InputError where a learner that must learn from every sample would learn nothing."""
    if exact(per_sample) <= 0:
        raise InputError(f"updates_per_sample={per_sample}: nothing would be learnt; give 1, 3 or 1/4, for example.")


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When training happens and on what.

    `stream_batch` samples start a round, which takes the updates owed so far (`updates_per_sample` each, a fraction
    counted exactly); then the next round's samples are collected.

    Parameters
    ----------
    stream_batch : int
        Samples that start a round.
    train_stream : bool
        Whether these samples are in every batch of their round.
    updates_per_sample : Fraction
        Optimizer steps for each sample; also given as 3, 0.25 or "1/16".
    store_when : {"before", "after"}
        Whether a sample is offered to the memory before or after its round.
    measure_every : int
        Updates between two measures of the memory's loss, where a part asks for it.
    measure_rows : int or None, default None
        Memory rows that such a measure looks at: so many neighbours, from a place that moves on by a 64th of them with
        each measure (of a round's first update, at most); all rows if None, as in the papers.
    early_samples, early_updates : int
        The first samples of the stream, and how many times as many updates each of them earns.
    count_waiting : {"all", "half"}
        How many of the samples that wait for their round count against the budget; "half" as released for RM.
    """

    stream_batch: int = 8
    train_stream: bool = True
    updates_per_sample: Fraction = Fraction(1)
    store_when: Literal["before", "after"] = "after"
    measure_every: int = 1
    measure_rows: int | None = None
    early_samples: int = 0
    early_updates: int = 1
    count_waiting: Literal["all", "half"] = "all"

    def __post_init__(self) -> None:
        object.__setattr__(self, "updates_per_sample", exact(self.updates_per_sample))
        positive = dict.fromkeys(("stream_batch", "measure_every", "early_updates"), "[1, inf)")
        positive["measure_rows"] = "[16, inf)"
        check_fields(self, positive | {"updates_per_sample": "[0, inf)", "early_samples": "[0, inf)"})
        if self.train_stream and self.updates_per_sample * self.stream_batch < 1:
            least = -(-1 // self.updates_per_sample) if self.updates_per_sample else None
            enough = f"give a stream_batch of at least {least} or " if least else ""
            raise InputError(
                f"{self.stream_batch} samples give {self.updates_per_sample * self.stream_batch} of an update, so some "
                f"would never be trained on; {enough}raise updates_per_sample."
            )

    def updates_of(self, sample: int) -> int:
        """What the n-th sample of the stream earns, in units of 1 / denominator of updates_per_sample."""
        return self.updates_per_sample.numerator * (self.early_updates if sample <= self.early_samples else 1)

    @property
    def rotate_every(self) -> int:
        """Updates after which `measure_rows` moves on: never within a round, whose updates parts may add up."""
        return max(self.measure_every, math.ceil(self.updates_per_sample * self.stream_batch))

    @property
    def samples_outside_memory(self) -> int:
        """Samples that wait outside the memory and count against the budget."""
        waiting = self.stream_batch if self.store_when == "after" else 0
        return waiting if self.count_waiting == "all" else waiting // 2


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a new class does to the head and to the optimizer's state, besides opening its row.

    Parameters
    ----------
    moments : {"forget", "keep", "rebuild"}
        The optimizer's state: reset for the head, kept, or reset for all weights.
    redraw : {"own", "bias", "all"}
        What is drawn at random: the new row only, the whole bias too (released), or the whole head.
    train : bool
        Whether the head learns; otherwise rows stay as they were drawn.
    """

    moments: Literal["forget", "keep", "rebuild"] = "forget"
    redraw: Literal["own", "bias", "all"] = "own"
    train: bool = True

    def __post_init__(self) -> None:
        check_fields(self, {})


SEVERAL = ("terms", "gradient")  # slots of any number of parts
LATER = ("measure_rows", "early_samples", "early_updates", "train")  # fields that runs from before them do not have


def _fields(group: Pace | Head) -> dict[str, Any]:
    """Returns the fields by name; later ones only where they are not the default, so that earlier runs keep their
    names.
    """
    usual = type(group)()
    values = dataclasses.asdict(group)
    return {name: value for name, value in values.items() if name not in LATER or value != getattr(usual, name)}


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a trainer needs: the parts of an update and the optimizer. A method is this and more; see `Method`.

    Parameters
    ----------
    rehearsal : Rehearsal
        Which memory rows join a batch.
    terms : tuple of Term, or Term
        Summands of the loss.
    gradient : tuple of GradientRule, or GradientRule
        What is done to the gradient, in order.
    schedule : Schedule
        The learning rate.
    optimizer : Optimizer
        What takes the steps.
    """

    slots: ClassVar[dict[str, type[Part]]] = {
        "rehearsal": Rehearsal,
        "terms": Term,
        "gradient": GradientRule,
        "schedule": Schedule,
    }

    rehearsal: Rehearsal = Uniform()
    terms: tuple[Term, ...] = (CrossEntropy(),)
    gradient: tuple[GradientRule, ...] = ()
    schedule: Schedule = Exponential()
    optimizer: Optimizer = Adam()

    def __post_init__(self) -> None:
        for slot, kind in self.slots.items():
            parts = getattr(self, slot)
            if slot in SEVERAL:  # a list, or a single part, is meant as a tuple
                parts = tuple(parts) if isinstance(parts, list | tuple) else (parts,)
                object.__setattr__(self, slot, parts)
            for part in parts if slot in SEVERAL else [parts]:
                if not isinstance(part, kind):
                    raise InputError(f"{slot} takes a {kind.__name__}, not {part!r}.")
        object.__setattr__(self, "optimizer", as_optimizer(self.optimizer))
        if not self.terms:
            raise InputError("terms is empty, so there is no loss to train on; the usual choice is (CrossEntropy(),).")

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Every part with the name of its place: ("rehearsal", ...), ("terms.0", ...), ..."""
        for slot in self.slots:
            value = getattr(self, slot)
            if isinstance(value, tuple):
                yield from ((f"{slot}.{i}", part) for i, part in enumerate(value))
            else:
                yield slot, value

    def components(self) -> Iterator[Component]:
        """Every part, and the optimizer."""
        yield from (part for _, part in self.parts())
        yield self.optimizer

    def attach(self, context: Context) -> Self:
        """The same with a working copy of every part."""
        return dataclasses.replace(self, **self._of_each(lambda part: part.attach(context)))

    def released(self) -> Self:
        """Each part's own variant, as the authors' released program has it."""
        return dataclasses.replace(self, **self._of_each(lambda part: part.released()))

    def _of_each(self, make: Callable[[Part], Any]) -> dict[str, Any]:
        """Returns what is made of the part of each slot, or a list where the slot holds several."""
        values = {slot: getattr(self, slot) for slot in self.slots}
        return {slot: [*map(make, v)] if isinstance(v, tuple) else make(v) for slot, v in values.items()}

    def to_json(self) -> dict[str, Any]:
        return self._of_each(lambda part: part.to_json()) | {"optimizer": self.optimizer.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        known = [f.name for f in dataclasses.fields(cls)]
        for name in data:
            if name not in known:
                raise UnknownNameError(f"field of a {cls.__name__.lower()}", name, known)
        values: dict[str, Any] = dict(data)
        for slot, kind in cls.slots.items():
            if slot in data:
                value = data[slot]
                values[slot] = [*map(kind.from_json, value)] if isinstance(value, list) else kind.from_json(value)
        if "optimizer" in data:
            values["optimizer"] = Optimizer.from_json(data["optimizer"])
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Method(Training):
    """A method as data; the defaults are experience replay, every other method has one to six fields changed.

    Parameters
    ----------
    name : str
        What tables call it.
    pace : Pace
        When training happens and on what.
    admission : Admission
        Which row a sample takes in a full memory.
    rehearsal : Rehearsal
        Which memory rows join a batch.
    terms : tuple of Term, or Term
        Summands of the loss.
    gradient : tuple of GradientRule, or GradientRule
        What is done to the gradient, in order.
    schedule : Schedule
        The learning rate.
    readout : Readout
        How queries are answered.
    optimizer : Optimizer
        What takes the steps: Adam(), AdamW(), SGD(), another of torch.optim such as torch.optim.NAdam, or one's own.
    head : Head
        What a new class does.
    refit : Training, optional
        How a readout that refits trains on the memory.
    """

    slots: ClassVar[dict[str, type[Part]]] = {"admission": Admission, **Training.slots, "readout": Readout}

    name: str = "er"
    pace: Pace = Pace()
    admission: Admission = Reservoir()
    readout: Readout = Plain()
    head: Head = Head()
    refit: Training | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, kind in (("name", str), ("pace", Pace), ("head", Head), ("refit", Training | None)):
            check_type(field, getattr(self, field), kind)
        if any(component.is_missing for component in self.components()):
            return  # what it needs is not known; it cannot be run anyway
        if self.pace.updates_per_sample and not self.pace.train_stream and not self.rehearsal.rows_per_update:
            raise InputError(
                f"{self.name}: updates are due but the batch would be empty: the stream is not trained on "
                f"(pace.train_stream) and {type(self.rehearsal).__name__} rehearses no row."
            )
        if self.admission.keeps_none and (reader := next((p for _, p in self.parts() if p.rows_per_update), None)):
            raise InputError(
                f"{self.name}: {type(reader).__name__} reads memory rows, but {type(self.admission).__name__} keeps no "
                "sample; use Nothing() in its place, or another admission such as Reservoir()."
            )
        whole = next((part for _, part in self.parts() if part.needs_all_losses), None)
        if whole is not None and self.pace.measure_rows is not None:
            raise InputError(
                f"{self.name}: {whole} needs the loss of every row, but pace.measure_rows={self.pace.measure_rows} "
                "measures some; leave out one of the two."
            )
        self._check_refit()

    def _check_refit(self) -> None:
        readout = type(self.readout).__name__
        if self.refit is None:
            if self.readout.refits:
                raise InputError(f"{self.name}: {readout} trains on the memory but `refit` does not say how.")
            return
        if self.admission.keeps_none:
            raise InputError(
                f"{self.name}: {type(self.admission).__name__} keeps no sample, so a refit learns nothing."
            )
        if not self.readout.refits:
            raise InputError(f"{self.name}: there is a `refit` but {readout} never trains; leave it out or use Refit.")
        if not self.refit.rehearsal.rows_per_update:
            nothing = type(self.refit.rehearsal).__name__
            raise InputError(f"{self.name}: {nothing} rehearses no row, so a refit learns nothing; use Shuffled.")
        for place, part in self.refit.parts():
            if part.needs_boundaries or part.needs_losses or declared(type(part), "column"):
                raise InputError(
                    f"{self.name}: {type(part).__name__} at refit.{place} needs the stream (its task "
                    "boundaries, the memory's loss or a column of the memory), so a refit cannot use it."
                )

    def components(self) -> Iterator[Component]:
        yield from super().components()
        if self.refit is not None:
            yield from self.refit.components()

    def samples_outside_memory(self, budget: int) -> int:
        """Samples of a budget of K that are kept outside the memory: first those that wait, then what parts hold."""
        left = budget - self.pace.samples_outside_memory
        return self.pace.samples_outside_memory + sum(part.samples_outside_memory(left) for _, part in self.parts())

    @property
    def task_free(self) -> bool:
        """Whether it learns without being told where tasks end."""
        return not any(part.needs_boundaries for _, part in self.parts())

    def capacity(self, budget: int) -> int:
        """Memory rows out of a budget of K samples: what is held elsewhere counts; none where no sample is kept."""
        return 0 if self.admission.keeps_none else budget - self.samples_outside_memory(budget)

    def check_budget(self, budget: int) -> None:
        """InputError where so many samples are too few for it."""
        if self.admission.keeps_none:
            return
        if budget < (least := self.least_budget(budget)):
            outside = self.samples_outside_memory(budget)
            beside = f" and {outside} are kept outside the memory" if outside else ""
            raise InputError(
                f"memory={budget} is too small for {self.name}: a batch takes {least - outside} stored samples"
                f"{beside}; the minimum is {least} (--memory {least})."
            )

    def least_budget(self, budget: int, classes: int = 1) -> int:
        """The fewest samples with a row for each class and as many as a batch takes; what is held elsewhere counts."""
        return self.samples_outside_memory(budget) + max(classes, self.rehearsal.joins(sys.maxsize))

    def released(self) -> Self:
        """The method as the authors' released program runs it: parts' own variants, the bias redrawn, B/2 held.

        Recipes may know more, so use `iblurry.released(method)`.
        """
        made = super().released()
        stream_only = self.pace.train_stream and not any(part.rows_per_update for _, part in self.parts())
        return dataclasses.replace(
            made,
            name=f"{self.name}-released",
            head=dataclasses.replace(self.head, redraw="bias" if self.head.redraw == "own" else self.head.redraw),
            pace=dataclasses.replace(self.pace, count_waiting="half" if stream_only else self.pace.count_waiting),
            refit=self.refit and self.refit.released(),
        )

    def to_json(self) -> dict[str, Any]:
        pace = _fields(self.pace) | {"updates_per_sample": str(self.pace.updates_per_sample)}
        own = {"name": self.name, "pace": pace, "head": _fields(self.head)}
        return own | super().to_json() | {"refit": self.refit and self.refit.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        values = dict(data)
        for name, group in (("pace", Pace), ("head", Head)):
            if name in data:
                values[name] = group(**data[name])
        if data.get("refit") is not None:
            values["refit"] = Training.from_json(data["refit"])
        return super().from_json(values)


KINDS = Method.slots

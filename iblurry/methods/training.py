"""How to train: which rows a batch rehearses, what its loss is, and how it becomes a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from iblurry.components.component import Component
from iblurry.engine.optimizer import Adam, Optimizer, as_optimizer
from iblurry.errors import InputError, UnknownNameError
from iblurry.parts import CrossEntropy, Exponential, GradientRule, Rehearsal, Schedule, Term, Uniform
from iblurry.parts.context import Context
from iblurry.parts.part import Part

SEVERAL = ("terms", "gradient")  # slots of any number of parts


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
        return self._with_each(lambda part: part.attach(context))

    def released(self) -> Self:
        """Each part's own variant, as the authors' released program has it."""
        return self._with_each(lambda part: part.released())

    def _with_each(self, change: Callable[[Part], Part]) -> Self:
        values = {slot: getattr(self, slot) for slot in self.slots}
        changes: dict[str, Any] = {
            slot: tuple(map(change, value)) if isinstance(value, tuple) else change(value)
            for slot, value in values.items()
        }
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        parts = {
            slot: [p.to_json() for p in v] if isinstance(v := getattr(self, slot), tuple) else v.to_json()
            for slot in self.slots
        }
        return parts | {"optimizer": self.optimizer.to_json()}

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
                made = [kind.from_json(v) for v in (value if isinstance(value, list) else [value])]
                values[slot] = tuple(made) if isinstance(value, list) else made[0]
        if "optimizer" in data:
            values["optimizer"] = Optimizer.from_json(data["optimizer"])
        return cls(**values)

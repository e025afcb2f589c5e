"""What every part is: fields are its hyper-parameters, `state(...)` declares what must survive a resume."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from abc import ABC
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeVar, dataclass_transform

from torch import Tensor

from iblurry.errors import InputError, UnknownNameError
from iblurry.parts.compute_counter import PURPOSES
from iblurry.parts.context import Context, Update
from iblurry.parts.cost import Cost, Load

T = TypeVar("T")


def state(make: Callable[[Any], T], *, init: Literal[False] = False) -> T:
    """Declares a piece of state and how it starts, given the part at its bench: a tensor, a dict of tensors, a number
    or a list of numbers.

    What is declared is saved, restored bit for bit and never shared between two learners.
    """
    field: T = dataclasses.field(init=init, repr=False, compare=False, metadata={"state": make})
    return field


def scratch(make: Callable[[Any], T], *, init: Literal[False] = False) -> T:
    """Declares a value that is made anew at the bench and after a resume: what can be worked out again is not saved.

    A tensor keeps its address then, so it is the part's own and no view of another's.
    """
    field: T = dataclasses.field(init=init, repr=False, compare=False, metadata={"scratch": make})
    return field


def column(name: str, *, fill: float = 0.0, init: Literal[False] = False) -> Tensor:
    """Declares a named column of the memory: one number per row, (capacity + 1,) float64, saved with the memory."""
    field: Tensor = dataclasses.field(
        init=False,
        repr=False,
        compare=False,
        metadata={"column": lambda part: part.context.memory.column(name, fill=fill)},
    )
    return field


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field, state, scratch, column))
class Part(ABC):
    """One answer to one of the learner's six questions. A subclass is a keyword-only dataclass without further ado."""

    kind: ClassVar[str]
    needs_losses: ClassVar[bool] = False  # asks for the loss of every memory row after an update
    purpose: ClassVar[str] = "parts"  # what the images it sends through a network are counted under, of PURPOSES
    needs_augment_params: ClassVar[bool] = False  # wants dice to vary the rows it draws, and the streamed samples
    stores: ClassVar[str] = ""  # what it keeps besides samples of the memory; may name its fields: "{share:.0%} of ..."
    context: Context
    _known: ClassVar[dict[str, dict[str, type[Part]]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.purpose not in PURPOSES:
            raise UnknownNameError(f"purpose (of {cls.__name__})", cls.purpose, PURPOSES)
        dataclass(kw_only=True, eq=True, unsafe_hash=True)(cls)  # hashable: parts are default values of a Method
        if not inspect.isabstract(cls) and cls.__dict__.get("kind") is None:
            Part._known.setdefault(cls.kind, {})[cls.__name__] = cls

    @property
    def needs_boundaries(self) -> bool:
        """Whether it must be told where tasks end."""
        return False

    @property
    def graph_key(self) -> Hashable:
        """What the host knows that changes what is computed in an update: a captured one holds for one phase."""
        return None

    @property
    def rows_per_update(self) -> int:
        """How many memory rows it wants for each update, at most."""
        return 0

    def draw(self, purpose: str, step: int, size: int) -> Sequence[int]:
        """The rows of this update out of the `size` filled ones: at random without repetition, unless it knows better.

        On the host, from the dice of the bench under this purpose.
        """
        return self.context.rng.sample_without_replacement(
            purpose, step, min(self.rows_per_update, size), population=size
        )

    def holds(self, budget: int) -> int:
        """How many samples of a budget it keeps outside the memory."""
        return 0

    def cost(self, load: Load) -> Cost:
        """The images it sends through a network, on top of the batch; measuring the memory's loss is not its own."""
        return Cost()

    def spends(self, load: Load) -> Cost:
        """The same at work, in whole images: exact for this load, where more than the load decides for this moment."""
        return self.cost(load)

    def attach(self, context: Context) -> Self:
        """A fresh copy of this part at work on that bench; the part itself stays a mere description."""
        part = copy.copy(self)
        part.context = context
        for what in ("state", "column", "scratch"):
            for name, make in declared(type(self), what).items():
                setattr(part, name, make(part))
        return part

    def on_class(self, label: int) -> None:
        """A class is met for the first time; its head row opens right after this."""

    def on_update(self, update: Update) -> None:
        """An update was taken. Tensors only: no value is read, nothing is decided by one."""

    def on_boundary(self) -> None:
        """A task ended."""

    def released(self) -> Part:
        """The same part as the authors' released program has it, where that differs from the paper."""
        return self

    def state_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in declared(type(self), "state")}

    def load_state_dict(self, saved: dict[str, object]) -> None:
        for name in declared(type(self), "state"):
            value = saved[name]
            if isinstance(value, Tensor):
                getattr(self, name).copy_(value)  # in place: addresses stay
            elif isinstance(value, dict):
                for key, tensor in value.items():
                    getattr(self, name)[key].copy_(tensor)
            else:
                setattr(self, name, copy.copy(value))
        for name, make in declared(type(self), "scratch").items():
            there, value = getattr(self, name), make(self)
            if isinstance(value, Tensor) and isinstance(there, Tensor) and _alike(value, there):
                there.copy_(value)
            else:
                setattr(self, name, value)

    def restart(self) -> None:
        """Back to how it was attached, in place: a captured step that knows its tensors' addresses finds the start.

        Columns are the memory's and stay as they are. A part whose `attach` does more does that here, too.
        """
        self.load_state_dict(Part.attach(self, self.context).state_dict())

    def to_json(self) -> dict[str, dict[str, object]]:
        return {type(self).__name__: hyper_parameters(self)}


def spending(parts: Iterable[Part], load: Load) -> dict[str, Cost]:
    """What parts at work send through a network now, by its purpose."""
    costs: dict[str, Cost] = {}
    for part in parts:
        costs[part.purpose] = costs.get(part.purpose, Cost()) + part.spends(load)
    return costs


def declared(cls: type[Part], what: str) -> dict[str, Callable[[Any], object]]:
    """Name and start of each "state", "column" or "scratch" a part class declares."""
    return {f.name: f.metadata[what] for f in fields(cls) if what in f.metadata}  # type: ignore[arg-type]


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def hyper_parameters(part: Part) -> dict[str, object]:
    """Name and value of each field a user may set."""
    return {f.name: getattr(part, f.name) for f in fields(part) if f.init}  # type: ignore[arg-type]


def part_class(kind: str, name: str) -> type[Part]:
    """The part of this kind with this name; parts of one's own are known once their module is imported."""
    known = known_parts(kind)
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return known[name]


def known_parts(kind: str) -> dict[str, type[Part]]:
    """Every part of this kind by its name, one's own among them."""
    return dict(sorted(Part._known.get(kind, {}).items()))


def part_from_json(kind: str, data: Any) -> Part:
    """The part that `to_json` described."""
    if not (isinstance(data, dict) and len(data) == 1):
        raise InputError(f"A {kind} is written {{name: {{field: value}}}}, not {data!r}.")
    ((name, values),) = data.items()
    cls = part_class(kind, name)
    allowed = [f.name for f in fields(cls) if f.init]  # type: ignore[arg-type]
    for field in values:
        if field not in allowed:
            raise UnknownNameError(f"field of {name}", field, allowed)
    return cls(**values)

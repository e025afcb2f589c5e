"""What every part is: fields are its hyper-parameters, `state(...)` declares what must survive a resume."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Literal, Self, TypeVar, dataclass_transform

from iblurry.components.component import Component
from iblurry.components.lazy_torch import Tensor, torch
from iblurry.compute import Cost, Workload
from iblurry.parts.context import Context, Update
from iblurry.parts.memory import Sample

T = TypeVar("T")


def state(make: Callable[[Any], T], *, init: Literal[False] = False) -> T:
    """Declares state that is saved, restored bit for bit and never shared between two learners.

    Parameters
    ----------
    make : callable
        Returns the start value, given the attached part: a tensor, a dict of tensors, a number or a list of numbers.
    """
    field: T = dataclasses.field(init=init, repr=False, compare=False, metadata={"state": make})
    return field


def scratch(make: Callable[[Any], T], *, init: Literal[False] = False) -> T:
    """Declares a value that can be worked out again, so it is not saved: made when attached and after a resume.

    A tensor keeps its address then, so it is the part's own and no view of another's.

    Parameters
    ----------
    make : callable
        Returns the value, given the attached part.
    """
    field: T = dataclasses.field(init=init, repr=False, compare=False, metadata={"scratch": make})
    return field


def column(
    name: str,
    *,
    fill: float = 0.0,
    shape: Callable[[Any], tuple[int, ...]] = lambda part: (),
    dtype: torch.dtype | str = "float64",
    init: Literal[False] = False,
) -> Tensor:
    """Declares a column of the memory, (capacity + 1, *shape): saved with it, its bytes counted as the memory's.

    Parameters
    ----------
    name : str
        Parts that name the same column share it.
    fill : float
        Start value of every row.
    shape : callable
        What a row holds, given the attached part; a number unless given.
    dtype : torch.dtype or str
        Of the values: torch.float32, or its name.
    """
    field: Tensor = dataclasses.field(
        init=False,
        repr=False,
        compare=False,
        metadata={"column": lambda part: part.context.memory.column(name, fill=fill, shape=shape(part), dtype=dtype)},
    )
    return field


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field, state, scratch, column))
class Part(Component):
    """A component of a method: one of six kinds, each with a question of its own.

    A part is a description (see `Component`) until `attach` makes a working copy with a `context`. Hooks that run
    inside an update (`loss`, `adjust`, `choose`, `on_update`) work on tensors only: no value is read on the host and
    nothing is decided by one, so the update can be captured as a CUDA graph. What passes through the network is counted
    there; a part declares nothing.
    """

    is_frozen: ClassVar[bool] = False  # a working copy has state
    needs_losses: ClassVar[bool] = False  # asks for the loss of every memory row after an update
    needs_augment_params: ClassVar[bool] = False  # asks for random crops and flips of its rows and the streamed samples
    stores: ClassVar[str] = ""  # what it keeps besides samples of the memory; may name its fields: "{share:.0%} of ..."
    released_fields: ClassVar[dict[str, Any]] = {}  # what the authors' released program has otherwise than the paper
    context: Context = dataclasses.field(init=False, repr=False, compare=False)  # of a working copy

    # ------------------------------------------------------------------------------ hooks of every kind, all optional

    @property
    def needs_boundaries(self) -> bool:
        """Whether it must be told where tasks end."""
        return False

    @property
    def needs_all_losses(self) -> bool:
        """Whether it `needs_losses` of all rows at once, so that `Pace.measure_rows` cannot be used with it."""
        return False

    @property
    def rows_per_update(self) -> int:
        """How many memory rows the host draws for it before each update, at most."""
        return 0

    @property
    def graph_key(self) -> Hashable:
        """State of the host that changes what is computed in an update: for each value another graph is captured."""
        return None

    def draw_rows(self, purpose: str, step: int, size: int) -> Sequence[int]:
        """The rows of update `step` out of the `size` filled ones: at random without repetition, unless overridden."""
        count = min(self.rows_per_update, size)
        return self.context.rng.sample_without_replacement(purpose, step, count, population=size)

    def samples_outside_memory(self, budget: int) -> int:
        """How many samples of a budget it keeps itself; the memory gets the rest."""
        return 0

    def cost(self, workload: Workload) -> Cost:
        """An estimate of what it sends through the network besides the batch, for `iblurry methods` and equal compute.

        Measuring the memory's loss is not its own cost. What a run has spent is counted, not estimated.
        """
        return Cost()

    def on_class(self, label: int) -> None:
        """A class is met for the first time; its head row opens right after this."""

    def on_stored(self, row: Tensor, sample: Sample) -> None:
        """The sample was written to this row of the memory, (1,): a free one, another's, or the discard row."""

    def on_update(self, update: Update) -> None:
        """An update was taken. Tensors only."""

    def on_boundary(self) -> None:
        """A task ended."""

    def on_amended(self) -> None:
        """Memory rows were removed or relabelled, or updates were taken that no sample earned: see `amendments`.

        Losses measured before it are not to be compared with those measured after it.
        """

    def on_corrected(self, images: Tensor, label: int, to: int | None) -> None:
        """A sample in the memory gets another label, or is removed.

        Parameters
        ----------
        images : Tensor
            The sample as stored, (1, C, H, W) uint8 or features.
        label, to : int, int or None
            Its head row before and after; None where it is removed.
        """

    def on_class_closed(self, label: int, into: int | None) -> None:
        """A class was deleted, or merged into another; its head row is closed, and may be opened for a new class."""

    def released(self) -> Self:
        """The same part as the authors' released program has it: with its `released_fields`, unless overridden."""
        return dataclasses.replace(self, **self.released_fields)

    # ------------------------------------------------------------------------------ what follows needs no override

    def attach(self, context: Context) -> Self:
        """A working copy with fresh state; the part itself stays a description."""
        self.refuse()
        part = copy.copy(self)
        part.context = context
        for what in ("state", "column", "scratch"):
            for name, make in declared(type(self), what).items():
                setattr(part, name, make(part))
        return part

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
            old, value = getattr(self, name), make(self)
            if isinstance(value, Tensor) and isinstance(old, Tensor) and _same_form(value, old):
                old.copy_(value)
            else:
                setattr(self, name, value)

    def restart(self) -> None:
        """Back to how it was attached, in place, so that captured steps stay valid; columns belong to the memory."""
        self.load_state_dict(Part.attach(self, self.context).state_dict())


def declared(cls: type[Part], what: str) -> dict[str, Callable[[Any], object]]:
    """Name and start of each "state", "column" or "scratch" a part class declares."""
    return {f.name: f.metadata[what] for f in fields(cls) if what in f.metadata}


def _same_form(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype

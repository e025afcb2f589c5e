"""Compute, in images that pass through a network: what was counted (ComputeCounter) and what is expected (Cost)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

PURPOSES = ("training", "losses", "distillation", "parts", "features", "queries")


@dataclass(frozen=True)
class Passes:
    """Images that pass through a network; sums and multiples are passes again.

    Parameters
    ----------
    forward, backward : float
        Number of images in each direction.

    >>> Passes(16, 16) + Passes(500) * 0.5
    Passes(forward=266.0, backward=16.0)
    """

    forward: float = 0.0
    backward: float = 0.0

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.forward + other.forward, self.backward + other.backward)

    def __mul__(self, times: float | Fraction) -> Passes:
        return Passes(self.forward * float(times), self.backward * float(times))


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The situation for which a part estimates its cost.

    Parameters
    ----------
    streamed : int
        Streamed images in each training batch.
    batch : int
        Images in each training batch, the streamed ones included.
    capacity : int
        Memory rows that hold a sample.
    budget : int
        Samples shared between the memory and what parts hold outside of it.
    classes : int
        Classes met so far.
    tasks : int
        Tasks that have ended.
    """

    streamed: int
    batch: int
    capacity: int
    budget: int
    classes: int
    tasks: int = 1


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a part sends through a network on top of the training batch and of the images of a query.

    Parameters
    ----------
    update : Passes
        For each optimizer step.
    sample : Passes
        For each sample offered to the memory.
    query : Passes
        For each query after something new was learnt, however many images it asks about.
    task : Passes
        For each end of a task.
    """

    update: Passes = Passes()
    sample: Passes = Passes()
    query: Passes = Passes()
    task: Passes = Passes()

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            update=self.update + other.update,
            sample=self.sample + other.sample,
            query=self.query + other.query,
            task=self.task + other.task,
        )


class ComputeCounter:
    """Images forward and backward by purpose, and optimizer steps; integers of the host, saved with a run.

    training: batches, those of refits included; losses: the loss of each memory row; distillation: answers of a shadow
    network to training images; parts: all else that parts send (candidates, reference gradients); features: images of
    which a frozen body computed what is stored, whose head alone the others pass; queries: the images asked about, and
    the readout's own work for them.
    """

    def __init__(self) -> None:
        self.updates = 0
        self.forward = dict.fromkeys(PURPOSES, 0)
        self.backward = dict.fromkeys(PURPOSES, 0)

    def include(self, other: ComputeCounter) -> None:
        """Adds everything that the other counter has."""
        self.updates += other.updates
        for purpose in PURPOSES:
            self.forward[purpose] += other.forward[purpose]
            self.backward[purpose] += other.backward[purpose]

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "forward": dict(self.forward), "backward": dict(self.backward)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        self.forward.update(state["forward"])
        self.backward.update(state["backward"])


class QueryCounter(ComputeCounter):
    """What answering costs. It is saved beside the learner's state, not in it: asking must not change a learner.

    A readout prepares itself once for each moment of the stream. After a resume it does so again, which must not be
    counted again: what a run has spent does not depend on how often it was interrupted.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counted: dict[str, Hashable] = {}  # by kind of work: the moment for which it was counted last

    def first_time(self, work: str, moment: tuple[int, ...]) -> bool:
        """Whether this work was not counted for this moment yet; from now on it was."""
        new = self._counted.get(work) != moment
        self._counted[work] = moment
        return new

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"counted": dict(self._counted)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._counted = dict(state["counted"])


class Pass(NamedTuple):
    """Some images through a network in one direction; a callable number is asked for each time it is added."""

    purpose: str
    is_forward: bool
    images: int | Callable[[], int]


class ComputeMeter:
    """Counts what passes through the networks of one learner, into `counter` and under the current purpose.

    A step that is captured as a CUDA graph runs its Python code only once: the passes made meanwhile are recorded
    instead of counted, and added at each replay.

    >>> meter = ComputeMeter()
    >>> with meter.counting("training"):
    ...     meter.add(16)
    >>> meter.counter.forward["training"], meter.counter.forward["queries"]
    (16, 0)
    """

    def __init__(self) -> None:
        self.counter = ComputeCounter()
        self.purpose = "parts"
        self.has_backward = False  # whether each forward pass of now is known to have a backward pass
        self.is_muted = False
        self._recorded: list[Pass] | None = None

    def add(self, images: int | Callable[[], int], *, backward_of: str | None = None) -> None:
        """Counts a forward pass, or the backward pass of one that was made for that purpose."""
        if self.is_muted:
            return
        made = Pass(backward_of or self.purpose, backward_of is None, images)
        if self._recorded is None:
            self._count(made)
        else:
            self._recorded.append(made)

    def counting(
        self,
        purpose: str,
        *,
        into: ComputeCounter | None = None,
        images: Callable[[], int] | None = None,
        has_backward: bool = False,
    ) -> _Counting:
        """A context manager that counts what passes meanwhile under this purpose.

        Parameters
        ----------
        purpose : str
            One of PURPOSES.
        into : ComputeCounter, optional
            Counts there instead of in `counter`.
        images : callable, optional
            Counts so many images forward, whatever passes meanwhile (a GPU takes empty memory rows along).
        has_backward : bool
            Each forward pass is counted backward too, at once, which is cheaper than to wait for its gradient.
        """
        return _Counting(self, purpose, into, images, has_backward)

    @contextmanager
    def recording(self) -> Iterator[list[Pass]]:
        """Collects what passes meanwhile instead of counting it."""
        before, self._recorded = self._recorded, []
        try:
            yield self._recorded
        finally:
            self._recorded = before

    def replay(self, passes: list[Pass]) -> None:
        """Counts what `recording` collected."""
        for made in passes:
            self._count(made)

    def _count(self, made: Pass) -> None:
        table = self.counter.forward if made.is_forward else self.counter.backward
        table[made.purpose] += made.images() if callable(made.images) else made.images


@dataclass(slots=True)
class _Counting:
    """What `ComputeMeter.counting` returns; a class, as a generator would cost several times as much."""

    meter: ComputeMeter
    purpose: str
    into: ComputeCounter | None
    images: Callable[[], int] | None
    has_backward: bool
    before: tuple[str, ComputeCounter, bool, bool] = field(init=False)

    def __enter__(self) -> None:
        meter = self.meter
        self.before = meter.purpose, meter.counter, meter.is_muted, meter.has_backward
        meter.purpose, meter.has_backward = self.purpose, self.has_backward
        meter.counter = self.into or meter.counter
        meter.is_muted = self.images is not None

    def __exit__(self, *error: object) -> None:
        meter = self.meter
        purpose, counter, meter.is_muted, meter.has_backward = self.before
        if self.images is not None:
            meter.add(self.images)
        meter.purpose, meter.counter = purpose, counter

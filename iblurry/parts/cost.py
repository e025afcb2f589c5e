"""What learning costs: images that pass through a network, forwards and backwards."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Passes:
    """Images that pass through a network: sums and multiples of it are passes again.

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
class Load:
    """What a part must know to tell its cost: of the steady state (the memory full, every class met), or of now."""

    streamed: int  # streamed images in each batch
    batch: int  # images in each batch, the streamed ones among them
    capacity: int  # memory rows that hold a sample
    budget: int  # samples shared between the memory and what parts hold, as on the workbench
    classes: int  # met
    tasks: int = 1  # that ended


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a part adds to training on the batch and answering the query."""

    update: Passes = Passes()  # each optimizer step
    sample: Passes = Passes()  # each sample offered to the memory
    query: Passes = Passes()  # each query after something new was learnt, however many images it asks about
    task: Passes = Passes()  # each end of a task

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            update=self.update + other.update,
            sample=self.sample + other.sample,
            query=self.query + other.query,
            task=self.task + other.task,
        )

"""The order of training samples: i-Blurry-N-M as a pure function of the labels and a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iblurry.errors import InputError, UnknownNameError
from iblurry.rng import Rng
from iblurry.storage.untrusted import exact

MODES = ("strict", "uneven", "compatible")


@dataclass(frozen=True, eq=False)
class Order:
    """The training samples in stream order, task by task.

    The label of a class is its position in `classes`.

    Parameters
    ----------
    tasks : tuple of ndarray
        Indices of training samples, one array per task, in stream order.
    classes : tuple of int
        Class ids in label order: the disjoint classes first, then the blurry ones.
    disjoint : int
        How many of `classes` are disjoint, that is occur in one task only.
    """

    tasks: tuple[NDArray[np.int64], ...]
    classes: tuple[int, ...]
    disjoint: int

    def __post_init__(self) -> None:
        if not self.tasks or any(np.ndim(task) != 1 or len(task) == 0 for task in self.tasks):
            raise InputError("An order needs at least one task, and each task a list of at least one sample.")
        if len(set(self.classes)) != len(self.classes):
            raise InputError(f"An order names each class once; {list(self.classes)} repeats one.")
        if not 0 <= self.disjoint <= len(self.classes):
            raise InputError(f"disjoint={self.disjoint} of {len(self.classes)} classes: give 0 to {len(self.classes)}.")
        tasks = tuple(np.array(task, dtype=np.int64) for task in self.tasks)
        for task in tasks:
            task.setflags(write=False)
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "classes", tuple(int(c) for c in self.classes))
        if self.indices.min() < 0 or len(np.unique(self.indices)) != len(self):
            raise InputError(
                "An order uses each training sample at most once, counted from 0; remove what is repeated."
            )

    @classmethod
    def from_indices(cls, indices: ArrayLike, labels: ArrayLike, ends: Sequence[int] | None = None) -> Order:
        """An order of samples one after the other.

        Parameters
        ----------
        indices : array-like of int
            Training samples in stream order, each at most once.
        labels : array-like of int
            Class number of every training sample of the data set.
        ends : sequence of int, optional
            How many samples have come when each task ends; one task unless given.

        >>> Order.from_indices([3, 0, 2, 1], [0, 1, 0, 1], ends=[2, 4]).roles
        ('blurry', 'blurry')
        """
        listed, ids = np.asarray(indices), _checked_labels(labels)
        if listed.ndim != 1 or not len(listed) or listed.dtype.kind not in "iu":
            raise InputError(f"indices must be a list of at least one whole number, not {indices!r:.80}.")
        tasks = tuple(np.split(listed, list(ends[:-1]) if ends is not None else []))
        spread = np.zeros(ids.max() + 1, dtype=np.int64)  # tasks that hold each class
        for task in tasks:
            spread[np.unique(ids[task])] += 1
        alone, others = np.flatnonzero(spread == 1).tolist(), np.flatnonzero(spread > 1).tolist()
        return cls(tasks, (*alone, *others), len(alone))

    def only(self, kept: NDArray[np.int64]) -> Order:
        """The same order without samples that are not among those kept; tasks that would be empty are left out."""
        tasks = [task[np.isin(task, kept)] for task in self.tasks]
        return replace(self, tasks=tuple(task for task in tasks if len(task)))

    def in_windows(self, count: int) -> Order:
        """The same samples in so many parts of equal length, whatever the tasks; a class may occur in any of them."""
        parts = np.array_split(self.indices, min(count, len(self)))
        return replace(self, tasks=tuple(parts), disjoint=0)

    def __len__(self) -> int:
        return len(self.indices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Order):
            return NotImplemented
        same = (self.classes, self.disjoint, self.ends) == (other.classes, other.disjoint, other.ends)
        return same and bool(np.array_equal(self.indices, other.indices))

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        """All training indices in stream order."""
        joined = np.concatenate(self.tasks)
        joined.setflags(write=False)
        return joined

    @property
    def ends(self) -> tuple[int, ...]:
        """Number of samples seen at the end of each task."""
        return tuple(np.cumsum([len(task) for task in self.tasks]).tolist())

    @property
    def roles(self) -> tuple[str, ...]:
        """ "disjoint" or "blurry", label by label."""
        return ("disjoint",) * self.disjoint + ("blurry",) * (len(self.classes) - self.disjoint)

    def counts(self, labels: ArrayLike) -> NDArray[np.int64]:
        """Samples of each class in each task, (classes, tasks); rows in label order."""
        ids = _checked_labels(labels)
        if int(self.indices.max()) >= len(ids):
            raise InputError(
                f"The order uses sample {self.indices.max()}, but there are {len(ids)}; give its own labels."
            )
        rows = max(int(ids.max()), *self.classes) + 1
        table = np.stack([np.bincount(ids[task], minlength=rows)[list(self.classes)] for task in self.tasks], axis=1)
        if table.sum() != len(self):
            raise InputError("The order uses samples of classes it does not name; give the labels it was made from.")
        return table.astype(np.int64)

    def majors(self, labels: ArrayLike) -> NDArray[np.int64]:
        """The task that holds most of each class, label by label."""
        most: NDArray[np.int64] = self.counts(labels).argmax(axis=1)
        return most


def i_blurry(
    labels: ArrayLike,
    *,
    tasks: int = 5,
    disjoint: float | Fraction = 50,
    blur: float | Fraction = 10,
    seed: int = 1,
    mode: str = "strict",
) -> Order:
    """The i-Blurry-N-M order of a labelled training set.

    Classes are shuffled; the first N % are disjoint and occur in one task each, every other class has one major task.
    Each task puts the first floor(M*S/100) of its S shuffled blurry samples into a pool; the shuffled pool is split
    again into parts of the same sizes, so a task may get some of its own back and its size does not change. N = 100 and
    M = 0 are the same disjoint split.

    Parameters
    ----------
    labels : array-like of int
        Class number of every training sample, from 0.
    tasks : int, default 5
    disjoint : float or Fraction, default 50
        N, per cent of the classes that are disjoint.
    blur : float or Fraction, default 10
        M, per cent of the blurry samples that leave their major task.
    seed : int, default 1
    mode : {"strict", "uneven", "compatible"}, default "strict"
        Where N does not divide the classes equally over the tasks, `strict` raises InputError, `uneven` distributes
        them as evenly as possible and loses nothing, `compatible` drops what is left over.

    Koh et al., "Online continual learning on class incremental blurry task configuration with anytime inference", ICLR
    2022; the pool is the blurry rule of Aljundi et al., "Gradient based sample selection", NeurIPS 2019.

    Examples
    --------
    >>> order = i_blurry([0, 1, 2, 3] * 10, tasks=2, disjoint=50, blur=20, seed=1)
    >>> order.disjoint, order.ends
    (2, (20, 40))
    """
    ids = _checked_labels(labels)
    names, sizes = np.unique(ids, return_counts=True)
    n, m = _percentage("disjoint", disjoint), _percentage("blur", blur)
    if is_disjoint(n, m):
        n, m = Fraction(100), Fraction(0)
    disjoint_counts, major_counts = _classes_per_task(len(names), tasks, n, mode)

    rng = Rng(seed)
    shuffled = rng.permutation("split.classes", 0, len(names))[: sum(disjoint_counts) + sum(major_counts)]
    samples = by_class(ids, sizes)
    by_label, split = [samples[c] for c in shuffled], sum(disjoint_counts)
    disjoint_samples, blurry_samples = by_label[:split], by_label[split:]

    # A purpose of its own per task: steps of one purpose share random numbers when the tasks differ in size. Each gives
    # the first M % of one shuffled list: the pool of a smaller M is part of the pool of a larger one.
    majors = _in_parts(blurry_samples, major_counts)
    blurry = [_shuffled(own, rng, f"split.major.{t}") for t, own in enumerate(majors)]
    part_sizes = [int(m * len(own) / 100) for own in blurry]
    pool = np.concatenate([own[:size] for own, size in zip(blurry, part_sizes, strict=True)])
    pool = _shuffled(pool, rng, f"split.pool.{len(pool)}")  # pools nest but are shuffled anew, as the published ones
    kept = [own[size:] for own, size in zip(blurry, part_sizes, strict=True)]
    if mode == "compatible":  # equal parts; what is left of the pool is dropped
        part_sizes = [len(pool) // len(part_sizes)] * len(part_sizes)
    returned = np.split(pool, np.cumsum(part_sizes))[: len(part_sizes)]

    parts = zip(kept, returned, _in_parts(disjoint_samples, disjoint_counts), strict=True)
    streams = [_shuffled(np.concatenate(part), rng, f"split.task.{t}") for t, part in enumerate(parts)]
    return Order(tuple(streams), tuple(names[shuffled].tolist()), split)


def is_disjoint(disjoint: float | Fraction, blur: float | Fraction) -> bool:
    """Whether N and M mean the split without blurry classes: N = 100 or M = 0, as the loader of the paper has it."""
    return disjoint == 100 or blur == 0


def _classes_per_task(classes: int, tasks: int, n: Fraction, mode: str) -> tuple[list[int], list[int]]:
    """How many disjoint and how many major blurry classes each task has."""
    if mode not in MODES:
        raise UnknownNameError("mode", mode, MODES)
    if tasks != int(tasks) or not 1 <= tasks <= classes:
        raise InputError(
            f"tasks={tasks}, but {classes} classes make 1 to {classes} tasks; give a whole number of those."
        )
    tasks, wanted = int(tasks), classes * n / 100
    if mode == "strict":
        _refuse_uneven(classes, tasks, n, wanted)
    disjoint = int(wanted)
    if mode == "compatible":
        disjoint -= disjoint % tasks
        classes -= (classes - disjoint) % tasks
    counts = [disjoint // tasks + (t < disjoint % tasks) for t in range(tasks)]
    totals = list(counts)
    for _ in range(classes - disjoint):  # one by one to the task with the fewest classes, the earliest of equals
        totals[totals.index(min(totals))] += 1
    return counts, [total - count for total, count in zip(totals, counts, strict=True)]


def _refuse_uneven(classes: int, tasks: int, n: Fraction, wanted: Fraction) -> None:
    if classes % tasks:
        fitting = ", ".join(str(t) for t in range(1, classes + 1) if classes % t == 0)
        raise InputError(
            f"tasks={tasks} cannot share {classes} classes equally; choose a number of tasks that can ({fitting}) "
            f"or the mode 'uneven'."
        )
    if wanted % tasks:
        fits = [Fraction(100 * d, classes) for d in range(0, classes + 1, tasks)]
        typed = [fit for fit in fits if Fraction(str(float(fit))) == fit]  # not a third: nobody can type it
        distance = min(abs(fit - n) for fit in typed)
        nearest = [f"{float(fit):g}" for fit in typed if abs(fit - n) == distance]
        raise InputError(
            f"disjoint={float(n):g} makes {float(wanted):g} of {classes} classes disjoint, which {tasks} tasks cannot "
            f"share equally; the nearest that can is {' or '.join(nearest)}, or choose the mode 'uneven'."
        )


def _in_parts(samples: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """The samples of each task: classes are assigned in label order, `sizes` at a time."""
    ends = np.cumsum(sizes).tolist()
    nothing = np.empty(0, dtype=np.int64)
    return [np.concatenate([nothing, *samples[end - size : end]]) for end, size in zip(ends, sizes, strict=True)]


def stratified_subset(labels: ArrayLike, share: float, *, seed: int) -> NDArray[np.int64]:
    """Indices, ascending, of floor(share * n) of the n samples of each class, at least one.

    They are the first of a shuffled list, so a smaller share is part of a larger one.

    >>> stratified_subset([0, 1, 0, 1, 0, 1, 0], 0.5, seed=1).tolist()
    [0, 5, 6]
    """
    return _first_of_each_class(labels, seed, "share", lambda n: max(1, int(exact(share) * n)))


def held_out(labels: ArrayLike, share: float, *, seed: int) -> NDArray[np.int64]:
    """Indices, ascending, of the samples held out for validation: floor(share * n) of the n of each class.

    At least one of each class that has two, and never all.

    >>> held_out([0, 1, 0, 1, 0, 1, 0, 2], 0.5, seed=1).tolist()
    [2, 4, 5]
    """
    return _first_of_each_class(labels, seed, "validate", lambda n: min(n - 1, max(1, int(exact(share) * n))))


def _first_of_each_class(labels: ArrayLike, seed: int, purpose: str, count: Callable[[int], int]) -> NDArray[np.int64]:
    """Takes of each class's shuffled samples the first `count(n)`, ascending."""
    ids, rng = np.asarray(labels), Rng(seed)
    names, sizes = np.unique(ids, return_counts=True)
    kept = [
        own[rng.permutation(f"{purpose}.{name}", 0, len(own))[: count(len(own))]]
        for name, own in zip(names.tolist(), by_class(ids, sizes), strict=True)
    ]
    return np.sort(np.concatenate(kept))


def by_class(ids: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The samples of each class, ascending; `sizes` are the classes' counts."""
    return np.split(np.argsort(ids, kind="stable"), np.cumsum(sizes)[:-1])


def _shuffled(values: NDArray[np.int64], rng: Rng, purpose: str) -> NDArray[np.int64]:
    return values[rng.permutation(purpose, 0, len(values))] if len(values) else values


def _percentage(name: str, value: float | Fraction) -> Fraction:
    """The percentage as written: 12.5 is 25/2 and 0.1 is 1/10, not the nearest binary number."""
    try:
        percentage = exact(value)
    except InputError:
        raise InputError(f"{name}={value!r:.80} is not a percentage; give a number from 0 to 100.") from None
    if not 0 <= percentage <= 100:
        raise InputError(f"{name}={value} is outside 0 to 100; give a percentage in that range.")
    return percentage


def _checked_labels(labels: ArrayLike) -> NDArray[np.int64]:
    ids = np.asarray(labels)
    if ids.ndim != 1 or len(ids) == 0 or ids.dtype.kind not in "iu":
        raise InputError(
            f"labels are {ids.dtype} of shape {ids.shape}; give the class number of each training sample, from 0."
        )
    if ids.min() < 0:
        raise InputError(f"labels hold {ids.min()}: class numbers start at 0; renumber the classes.")
    return ids.astype(np.int64)

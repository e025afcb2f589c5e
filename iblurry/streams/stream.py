"""Streams as data: which training samples come, in which order and tasks, each known by its class's name."""

from __future__ import annotations

import dataclasses
import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from iblurry.components.component import Component, hyperparameters
from iblurry.data.dataset import Dataset
from iblurry.errors import DataError, InputError, UnknownNameError, check_type
from iblurry.rng import Rng
from iblurry.storage.untrusted import exact, read_json
from iblurry.streams import published
from iblurry.streams.order import Order, i_blurry

_GROUPS = 5  # of classes in a Gaussian stream of sigma 0, as in the published ones; each is mixed within
DRAWN = ("tasks", "disjoint", "blur", "mode")  # fields of IBlurry, which `Experiment.of` and the verbs take as well


class Stream(Component):
    """Decides the order of the training samples and where tasks end, as a function of the data set and a seed.

    A subclass has its numbers as fields and an `order`; once its module is imported, `--stream NAME:field=value` and
    experiment.json know it by its class's name. Random numbers come from `iblurry.Rng(seed)`.

    >>> import numpy as np
    >>> class ByClass(Stream):
    ...     def order(self, dataset, seed):
    ...         return Order.from_indices(np.argsort(dataset.train.labels, kind="stable"), dataset.train.labels)
    """

    kind: ClassVar[str] = "stream"
    names_samples: ClassVar[bool] = False  # True: it lists samples of the whole data set, so it takes no share of it
    has_boundaries: ClassVar[bool] = True  # False: it changes gradually, so a run takes all of it as one task

    @abstractmethod
    def order(self, dataset: Dataset, seed: int) -> Order:
        """The samples, task by task.

        Parameters
        ----------
        dataset : Dataset
            Its `train.labels` are what most streams need.
        seed : int
            Seed of the run.
        """

    def for_dataset(self, name: str) -> Stream:
        """The stream as experiments on the data set of this name have it."""
        return self

    @property
    def title(self) -> str:
        """What tables and figures call it."""
        fields = ", ".join(f"{name}={value}" for name, value in hyperparameters(self).items())
        return f"{type(self).__name__}({fields})"


class IBlurry(Stream):
    """i-Blurry-N-M (Koh et al., ICLR 2022); see `i_blurry`.

    Parameters
    ----------
    tasks : int
        How many tasks the stream has.
    disjoint : float
        N, per cent of the classes that come in one task only.
    blur : float
        M, per cent of the blurry classes' samples that come in other tasks.
    mode : {"strict", "uneven", "compatible"}
        What to do where N does not divide the classes equally over the tasks.
    """

    ranges: ClassVar = {"tasks": "[1, inf)", "disjoint": "[0, 100]", "blur": "[0, 100]"}

    tasks: int = 5
    disjoint: float = 50.0
    blur: float = 10.0
    mode: Literal["strict", "uneven", "compatible"] = "strict"

    def order(self, dataset: Dataset, seed: int) -> Order:
        split: Any = hyperparameters(self)
        return i_blurry(dataset.train.labels, seed=seed, **split)

    @property
    def title(self) -> str:
        return f"i-Blurry-{self.disjoint:g}-{self.blur:g}"


class Published(Stream):
    """The order in published split files: the set of this data set, number of tasks, N, M and the run's seed.

    The content of the files is part of the experiment, but not their place.

    Parameters
    ----------
    folder : str
        Folder of the files, or one that has a folder named like the data set.
    tasks : int
        Number of tasks, as in the files' names.
    disjoint, blur : float
        N and M as in the files' names, per cent; see `IBlurry`.
    content : str, optional
        A hash of the data set's files of these numbers, all seeds; an experiment reads it from the folder unless given.
    """

    ranges: ClassVar = {"tasks": "[1, inf)", "disjoint": "[0, 100]", "blur": "[0, 100]"}
    names_samples: ClassVar[bool] = True

    folder: str
    tasks: int = 5
    disjoint: float = 50.0
    blur: float = 10.0
    content: str | None = None

    def for_dataset(self, name: str) -> Stream:
        return self if self.content is not None else dataclasses.replace(self, content=self._hash_files(name))

    def identity_json(self) -> dict[str, Any]:
        ((name, fields),) = self.to_json().items()
        return {name: {field: value for field, value in fields.items() if field != "folder"}}

    def order(self, dataset: Dataset, seed: int) -> Order:
        if self.content is not None and self._hash_files(dataset.name) != self.content:
            raise DataError(
                f"The split files in {self.folder} have changed since the experiment was made; put the old ones back, "
                "or create the experiment again."
            )
        return published.read(self.folder, dataset, tasks=self.tasks, n=self.disjoint, m=self.blur, seed=seed)

    def _hash_files(self, dataset: str) -> str:
        return published.hash_sets(self.folder, dataset, tasks=self.tasks, n=self.disjoint, m=self.blur)

    @property
    def title(self) -> str:
        return f"i-Blurry-{self.disjoint:g}-{self.blur:g} (published)"


class Gaussian(Stream):
    """Classes whose samples come at normally distributed times, so that they change gradually.

    The C classes are shuffled. A sample of the class at place i (from 0) comes at the time

        t = i / C + sigma z + p,    z ~ Normal(0, 1),    p ~ uniform among 0, ..., periods - 1

    and the stream is the samples by their times, from the earliest to the last; none is cut off. A period ends where t
    passes a whole number. With sigma 0, as in the published files, five groups of classes follow each other: the time
    is floor(5 i / C) / 5 + p. Period p has round(C (initial + (1 - initial) (p + 1) / periods)) classes, the first of
    the shuffled ones; what would come before its class enters is left out.

    Koh et al., "Online boundary-free continual learning by scheduled data prior", ICLR 2023.

    Parameters
    ----------
    sigma : float
        Standard deviation of a class's times, as a share of a period.
    periods : int
        How often each class comes. The order has a task for each period, but a run gets no task boundaries.
    initial : float
        Fraction of the classes that are there from the start; the others are divided equally over all periods.
    """

    ranges: ClassVar = {"sigma": "[0, inf)", "periods": "[1, inf)", "initial": "[0, 1]"}
    has_boundaries: ClassVar[bool] = False

    sigma: float = 0.1
    periods: int = 1
    initial: float = 1.0

    def order(self, dataset: Dataset, seed: int) -> Order:
        rng, labels = Rng(seed), dataset.train.labels
        names, positions = np.unique(labels, return_inverse=True)
        shuffled = rng.permutation("gaussian.classes", 0, len(names))
        place = np.argsort(shuffled)[positions]  # of each sample's class
        period = (rng.uniforms("gaussian.periods", 0, len(labels)) * self.periods).astype(np.int64)
        if self.sigma:
            one, other = rng.uniforms("gaussian.times", 0, 2 * len(labels)).reshape(2, -1)
            normals = np.sqrt(-2 * np.log1p(-one)) * np.cos(2 * np.pi * other)  # Box and Muller, 1958
            time = place / len(names) + self.sigma * normals + period
        else:
            time = _GROUPS * place // len(names) / _GROUPS + period
        shares = self.initial + (1 - self.initial) * np.arange(1, self.periods + 1) / self.periods
        enters = np.searchsorted(np.round(len(names) * shares), np.arange(len(names)), side="right")  # in which period
        there = period >= enters[place]
        samples = rng.permutation("gaussian.ties", 0, len(labels))  # a stable sort keeps equal times in this order
        samples = samples[np.argsort(time[samples], kind="stable")]
        samples = samples[there[samples]]
        tasks = np.split(samples, np.searchsorted(time[samples], np.arange(1, self.periods)))
        met = np.unique(labels[samples])
        classes = [name for name in names[shuffled].tolist() if name in met]
        return Order(tuple(task for task in tasks if len(task)), tuple(classes), disjoint=0)


class SiBlurry(Stream):
    """Stochastic i-Blurry: tasks of unequal numbers of classes, and unequal shares of them blurred.

    Of C shuffled classes the first D = T floor(floor(C N / 100) / T) are disjoint, the next T floor((C - D) / T) are
    blurry, and what is left over is dropped. Both are cut at T - 1 uniformly random places into the classes of each
    task, possibly none. M % of the blurry samples are a pool, which is cut at random as well: task t gives its first
    q_t blurry samples in the data set's order, or all it has, into the pool, and takes the next q_t of the shuffled
    pool. A task without a sample is left out.

    Moon et al., "Online class incremental learning on stochastic blurry task boundary via mask and visual prompt
    tuning", ICCV 2023. Differs: blurry samples are counted, so classes may be of unequal size.

    Parameters
    ----------
    tasks : int
        T, how many tasks the stream has, unless one is empty.
    disjoint : float
        N, per cent of the classes that come in one task only.
    blur : float
        M, per cent of the blurry classes' samples that go through the pool.
    """

    ranges: ClassVar = {"tasks": "[1, inf)", "disjoint": "[0, 100]", "blur": "[0, 100]"}

    tasks: int = 5
    disjoint: float = 50.0
    blur: float = 10.0

    def order(self, dataset: Dataset, seed: int) -> Order:
        rng, labels = Rng(seed), dataset.train.labels
        names, sizes = np.unique(labels, return_counts=True)
        disjoint = int(exact(self.disjoint) * len(names) / 100) // self.tasks * self.tasks
        blurry = (len(names) - disjoint) // self.tasks * self.tasks
        if not disjoint + blurry:
            raise InputError(f"tasks={self.tasks} is more than the {len(names)} classes there are; give fewer tasks.")
        shuffled = rng.permutation("si_blurry.classes", 0, len(names))[: disjoint + blurry]
        apart = np.split(shuffled[:disjoint], self._cuts(rng, "si_blurry.disjoint", disjoint))
        mixed = np.split(shuffled[disjoint:], self._cuts(rng, "si_blurry.blurry", blurry))

        pooled = int(exact(self.blur) * int(sizes[shuffled[disjoint:]].sum()) / 100)
        cuts = self._cuts(rng, "si_blurry.quotas", pooled)
        quotas = np.diff([0, *cuts, pooled])
        own = [np.flatnonzero(np.isin(labels, names[classes])) for classes in mixed]  # in the data set's order
        pool = np.concatenate([samples[:quota] for samples, quota in zip(own, quotas, strict=True)])
        pool = pool[rng.permutation("si_blurry.pool", 0, len(pool))] if len(pool) else pool
        taken = np.split(pool, cuts)  # fewer for the last tasks where some had fewer to give
        tasks = []
        for t, (classes, samples, quota) in enumerate(zip(apart, own, quotas, strict=True)):
            whole = np.flatnonzero(np.isin(labels, names[classes]))
            task = np.concatenate([whole, samples[quota:], taken[t]])
            tasks += [task[rng.permutation(f"si_blurry.task.{t}", 0, len(task))]] if len(task) else []
        return Order(tuple(tasks), tuple(names[shuffled].tolist()), disjoint)

    def _cuts(self, rng: Rng, purpose: str, n: int) -> NDArray[np.int64]:
        """Where a list of n is cut into one part for each task: uniformly among 0 to n - 1, with replacement."""
        cuts: NDArray[np.int64] = np.sort((rng.uniforms(purpose, 0, self.tasks - 1) * n).astype(np.int64))
        return cuts

    @property
    def title(self) -> str:
        return f"Si-Blurry-{self.disjoint:g}-{self.blur:g}"


class Sigmoid(Stream):
    """Groups of classes that follow each other gradually.

    The classes are divided as in the disjoint split of `IBlurry`. Between a group of n_L samples that would end at
    sample e and the next, of n_R samples, sample t (from 0) comes from the right one with probability

        1 / (1 + exp(-4 (t - e) / (width min(n_L, n_R))))

    and from the left one otherwise; with several transitions, each decides in turn, from the first one,
    whether t lies after it. If the chosen group has no samples left, the nearest group that has some gives one. Width 0
    is the disjoint split.

    The formula is that of the gradual streams of CapyMOA (Gomes et al., 2025) and, before, of MOA's concept drift.

    Parameters
    ----------
    tasks : int
        How many groups of classes there are. A run gets no task boundaries.
    width : float
        Width of a transition, as a fraction of the smaller of its two groups.
    """

    ranges: ClassVar = {"tasks": "[1, inf)", "width": "[0, 1]"}
    has_boundaries: ClassVar[bool] = False

    tasks: int = 5
    width: float = 0.5

    def order(self, dataset: Dataset, seed: int) -> Order:
        split = i_blurry(dataset.train.labels, tasks=self.tasks, disjoint=100, blur=0, seed=seed, mode="uneven")
        sizes = [len(task) for task in split.tasks]
        since = np.arange(len(split)) - np.cumsum(sizes)[:-1, None]  # (transitions, samples)
        right = np.heaviside(since, 1.0)  # the probability of the right group
        if self.width:
            scale = np.maximum(1e-9, self.width * np.minimum(sizes[:-1], sizes[1:]))[:, None]
            right = (1 + np.tanh(2 * since / scale)) / 2  # the same function, which does not overflow
        drawn = (Rng(seed).uniforms("sigmoid", 0, len(split)) < np.cumprod(right, axis=0)).sum(axis=0)
        left = [task[::-1].tolist() for task in split.tasks]  # the next one last
        samples = []
        for group in drawn.tolist():
            if not left[group]:
                group = min((other for other in range(len(left)) if left[other]), key=lambda other: abs(other - group))
            samples.append(left[group].pop())
        return Order((np.array(samples),), split.classes, disjoint=0)


class _Given(Stream):
    """Lists of numbers, given as such or in a JSON file {field: [...]}, which is read at once and not kept."""

    names_samples: ClassVar[bool] = True
    lists: ClassVar[dict[str, str]]  # fields that are lists, and the kinds of their numbers; the first is required

    path: str | None = None

    def __post_init__(self) -> None:
        if self.path is not None:
            check_type("path", self.path, str | os.PathLike)
            for given in (name for name in self.lists if len(getattr(self, name))):
                raise InputError(f"path={self.path!r} names a file with the {given}; give the file or the {given}.")
            for name, values in self._read(Path(self.path)).items():
                object.__setattr__(self, name, values)
            object.__setattr__(self, "path", None)
        for name, kinds in self.lists.items():
            object.__setattr__(self, name, _numbers(name, getattr(self, name), kinds))
        super().__post_init__()
        if not getattr(self, first := next(iter(self.lists))):
            raise InputError(f"{type(self).__name__} needs at least one sample; give {first}, or the path of a file.")

    def _read(self, path: Path) -> dict[str, Any]:
        form = "{" + ", ".join(f'"{name}": [...]' for name in self.lists) + "}"
        held = read_json(path, remedy=f"Give a JSON file that holds {form}.")
        if (first := next(iter(self.lists))) not in held:
            raise DataError(f"{path} must hold {form}; it has no {first!r}.")
        return {name: held[name] for name in self.lists if name in held}


class Listed(_Given):
    """Training samples in a given order.

    Parameters
    ----------
    indices : sequence of int
        Which training samples of the data set, from 0, each at most once.
    ends : sequence of int, optional
        How many samples have come when each task ends; the last is the number of samples. Default: one task.
    path : str, optional
        A JSON file {"indices": [...], "ends": [...]} to read them from; the file is read at once and not kept.
    """

    lists: ClassVar[dict[str, str]] = {"indices": "iu", "ends": "iu"}

    indices: Sequence[int] = ()
    ends: Sequence[int] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "ends", self.ends or (len(self.indices),))
        steps = np.diff([0, *self.ends])
        if (steps <= 0).any() or self.ends[-1] != len(self.indices):
            raise InputError(f"ends={self.ends} must rise to {len(self.indices)}, the number of samples.")

    def order(self, dataset: Dataset, seed: int) -> Order:
        indices, labels = np.array(self.indices, dtype=np.int64), dataset.train.labels
        if indices.max() >= len(labels):
            raise InputError(
                f"The list has sample {indices.max()}, but {dataset.name!r} has {len(labels)} training samples, 0 to "
                f"{len(labels) - 1}; list samples of this data set."
            )
        return Order.from_indices(indices, labels, self.ends)

    @property
    def title(self) -> str:
        return f"{len(self.indices):,} listed samples"


class Domains(_Given):
    """Domain shifts: all samples of the lowest domain first, then those of the next; one task for each.

    Suits CORe50 (a domain is a recording session) and CLEAR (a year), where the classes stay and the pictures change.

    Parameters
    ----------
    domains : sequence of int
        The domain of each training sample of the data set, in the data set's order.
    times : sequence of float, optional
        When each sample was taken: within a domain the earlier comes first. Default: in random order.
    path : str, optional
        A JSON file {"domains": [...], "times": [...]} to read them from; the file is read at once and not kept.
    """

    lists: ClassVar[dict[str, str]] = {"domains": "iu", "times": "iuf"}

    domains: Sequence[int] = ()
    times: Sequence[float] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.times and len(self.times) != len(self.domains):
            raise InputError(f"{len(self.times)} times for {len(self.domains)} domains; give one of each per sample.")

    def order(self, dataset: Dataset, seed: int) -> Order:
        domains, labels = np.array(self.domains), dataset.train.labels
        if len(domains) != len(labels):
            raise InputError(
                f"There are {len(domains)} domains, but {dataset.name!r} has {len(labels)} training samples; give the "
                "domain of each of them."
            )
        samples = Rng(seed).permutation("domains", 0, len(labels))  # sorting keeps equal ones in this order
        if self.times:
            samples = samples[np.argsort(np.array(self.times)[samples], kind="stable")]
        samples = samples[np.argsort(domains[samples], kind="stable")]
        return Order.from_indices(samples, labels, np.cumsum(np.unique(domains, return_counts=True)[1]).tolist())

    @property
    def title(self) -> str:
        return f"{len(set(self.domains))} domains"


def _numbers(name: str, given: Any, kinds: str) -> tuple[Any, ...]:
    try:
        values = np.asarray(given)
    except ValueError:
        values = np.empty((0, 0))
    if values.ndim != 1 or (values.size and (values.dtype.kind not in kinds or not np.isfinite(values).all())):
        words = "finite numbers" if "f" in kinds else "whole numbers"
        raise InputError(f"{name} must be a list of {words}, not {type(given).__name__} {given!r:.80}.")
    return tuple(values.tolist())


def make_stream(stream: Stream | None = None, published: str | os.PathLike[str] | None = None, **fields: Any) -> Stream:
    """The stream that a few words ask for.

    Parameters
    ----------
    stream : Stream, optional
        To be changed by the fields; default: i-Blurry, or what is published.
    published : path, optional
        A folder of published split files to take the order from.
    **fields
        Of the stream: tasks, disjoint, blur, mode, ...

    >>> make_stream(blur=30).title
    'i-Blurry-50-30'
    """
    if stream is None and published is None:
        return IBlurry(**fields)
    if stream is None and published is not None:
        if (mode := fields.pop("mode", "strict")) != "strict":
            raise InputError(f"mode={mode!r} makes a split, published={published!r} reads one; give one of the two.")
        return Published(**fields | {"folder": os.fspath(published)})
    if published is not None:
        raise InputError(f"stream={stream!r} and published={published!r} are two orders; give one of the two.")
    if not isinstance(stream, Stream):
        raise InputError(f"stream={stream!r:.80} is not valid; give a Stream, such as IBlurry().")
    for name in fields:
        if name not in (known := list(hyperparameters(stream))):
            raise UnknownNameError(f"field of {type(stream).__name__}", name, known)
    return dataclasses.replace(stream, **fields)

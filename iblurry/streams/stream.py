"""Streams as data: which training samples come, in which order and tasks; i-Blurry, drawn or from published files."""

from __future__ import annotations

import dataclasses
import os
from abc import abstractmethod
from typing import Any, ClassVar, Literal

from iblurry.components.component import Component, hyperparameters
from iblurry.data.dataset import Dataset
from iblurry.errors import DataError, InputError, UnknownNameError
from iblurry.streams import published
from iblurry.streams.order import Order, i_blurry

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
    names_samples: ClassVar[bool] = (
        False  # True: it lists samples of the whole data set, so it is not drawn from a share
    )
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

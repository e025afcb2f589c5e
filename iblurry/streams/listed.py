"""Streams that the user gives sample by sample: a list of indices, or the domain that each sample belongs to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from iblurry.data.dataset import Dataset
from iblurry.errors import DataError, InputError, check_type
from iblurry.rng import Rng
from iblurry.storage.untrusted import read_json
from iblurry.streams.order import Order
from iblurry.streams.stream import Stream


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
            for name, values in _read_lists(Path(self.path), list(self.lists)).items():
                object.__setattr__(self, name, values)
            object.__setattr__(self, "path", None)
        for name, kinds in self.lists.items():
            object.__setattr__(self, name, _numbers(name, getattr(self, name), kinds))
        super().__post_init__()
        if not getattr(self, first := next(iter(self.lists))):
            raise InputError(f"{type(self).__name__} needs at least one sample; give {first}, or the path of a file.")


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


def _read_lists(path: Path, names: Sequence[str]) -> dict[str, Any]:
    form = "{" + ", ".join(f'"{name}": [...]' for name in names) + "}"
    lists = read_json(path, remedy=f"Give a JSON file that holds {form}.")
    if names[0] not in lists:
        raise DataError(f"{path} must hold {form}; it has no {names[0]!r}.")
    return {name: lists[name] for name in names if name in lists}


def _numbers(name: str, given: Any, kinds: str) -> tuple[Any, ...]:
    try:
        values = np.asarray(given)
    except ValueError:
        values = np.empty((0, 0))
    if values.ndim != 1 or (values.size and (values.dtype.kind not in kinds or not np.isfinite(values).all())):
        words = "finite numbers" if "f" in kinds else "whole numbers"
        raise InputError(f"{name} must be a list of {words}, not {type(given).__name__} {given!r:.80}.")
    return tuple(values.tolist())

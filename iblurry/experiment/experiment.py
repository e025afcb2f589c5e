"""An experiment as data: frozen, to and from JSON, and named by a digest of its content."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.augment import Augment, Transform
from iblurry.augment.transform import Transforms, as_field, check_transforms
from iblurry.component import Component
from iblurry.data.dataset import Dataset
from iblurry.engine.eager import Eager
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.settings import setting
from iblurry.learner import Learner
from iblurry.method import Method
from iblurry.methods import method as method_named
from iblurry.methods.recipe import Slots
from iblurry.streams import published
from iblurry.streams.order import MODES, Order, i_blurry, stratified_subset

TYPES = {
    "method": (Method, "a Method, or its name to Experiment.of"),
    "dataset": (str, "a name or a path"),
    "network": (str, "a name"),
}
LEAST = {"memory": 1, "tasks": 1, "query_every": 1, "samples": 1, "seed": 0}  # of the whole numbers


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One method on one order of one data set with one seed; frozen, and equal if all fields are.

    Parameters
    ----------
    method : Method
        What learns; `Experiment.of` takes a method's name.
    dataset : str
        A name, a path, or either with options: see `iblurry data`.
    network : str
        "resnet18", "resnet34", "convnet" or "mlp".
    memory : int
        K, the budget of samples kept.
    tasks : int
        How many tasks the stream has.
    disjoint : float
        N, per cent of the classes that come in one task only.
    blur : float
        M, per cent of the blurry classes' samples that stray into other tasks.
    mode : {"strict", "uneven", "compatible"}
        What to do where N does not divide the classes.
    published : str, optional
        A folder of published split files to take the order from; None: the order is drawn.
    augment : Transform or tuple of Transform
        What training images undergo, in this order; () is nothing.
    query_every : int
        Samples between two queries, the points of the accuracy curve.
    samples : int, optional
        Stop after so many samples; None: the whole stream.
    share : float
        Of every class's training images, at least one; the seed decides which.
    seed : int
        Of all random numbers.

    >>> one = Experiment.of("clib", "digits", seed=2)
    >>> Experiment.from_json(one.to_json()) == one
    True
    """

    method: Method
    dataset: str
    network: str
    memory: int
    tasks: int = 5
    disjoint: float = 50
    blur: float = 10
    mode: str = "strict"
    published: str | None = None
    augment: Transforms = field(default_factory=Augment)
    query_every: int = 100
    samples: int | None = None
    share: float = 1.0
    seed: int = 1

    @classmethod
    def of(cls, method: str | Method, dataset: str | os.PathLike[str] = "digits", **changes: Any) -> Experiment:
        """The paper's experiment with a method on a data set; for other data, one with sensible settings.

        Parameters
        ----------
        method : str or Method
            The name of a method, which gets the data set's hyper-parameters, or a Method, which is taken as it is.
        dataset : str or path
            A name, a path, or either with options.
        **changes
            Fields of the experiment or of its method: `memory=200`, `admission=Balanced()`.
        """
        dataset = os.fspath(dataset)
        usual = setting(dataset)
        slots = {name: changes.pop(name) for name in Slots.__annotations__ if name in changes}
        _check_known(changes)
        chosen = method_named(method, usual.hyperparameters) if isinstance(method, str) else method
        values: dict[str, Any] = {
            "method": dataclasses.replace(chosen, **slots),
            "dataset": dataset,
            "network": usual.network,
            "memory": usual.memory,
            "tasks": usual.tasks,
            "augment": usual.augment,
            "query_every": usual.query_every,
        }
        return cls(**values | changes)

    def __post_init__(self) -> None:
        for name, (kind, words) in TYPES.items():
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"{name}={getattr(self, name)!r} does not fit; give {words}.")
        object.__setattr__(self, "augment", as_field(check_transforms(self.augment)))
        for name, least in LEAST.items():
            if name != "samples" or self.samples is not None:
                object.__setattr__(self, name, _whole(name, getattr(self, name), least))
        for name in ("disjoint", "blur"):
            percent: Any = getattr(self, name)
            if isinstance(percent, bool) or not isinstance(percent, Real) or not 0 <= float(percent) <= 100:
                raise InputError(f"{name}={percent!r} is no percentage; give a number from 0 to 100.")
            object.__setattr__(self, name, float(percent))
        if self.mode not in MODES:
            raise UnknownNameError("mode", str(self.mode), MODES)
        share: Any = self.share
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < float(share) <= 1:
            raise InputError(f"share={share!r} is no share of the images; give a number above 0 and up to 1.")
        object.__setattr__(self, "share", float(share))
        if self.published is not None:
            object.__setattr__(self, "published", os.fspath(self.published))
            if self.share != 1:
                raise InputError(
                    f"share={self.share:g} draws images and published={self.published!r} names them all; "
                    "give one of the two."
                )

    @property
    def digest(self) -> str:
        """Twelve hex digits of the content: equal experiments have equal ones."""
        return hashlib.sha256(canonical(self.to_json()).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """What its folder is called: clib-digits-1-0123456789ab."""
        data = Path(self.dataset.split(":", 1)[0]).stem
        return f"{_file_safe(self.method.name)}-{_file_safe(data)}-{self.seed}-{self.digest}"

    def components(self) -> Iterator[Component]:
        """Whatever of it may be a user's own code."""
        yield from self.method.components()
        yield from check_transforms(self.augment)

    def check(self, dataset: Dataset) -> None:
        """Raise now what would otherwise be raised when the run starts."""
        self.order(dataset)
        self.learner(dataset)

    def order(self, dataset: Dataset) -> Order:
        """The order of the training samples."""
        if self.published is None:
            order = self._drawn(dataset.train.labels)
        else:
            order = published.read(
                self.published, dataset, tasks=self.tasks, n=self.disjoint, m=self.blur, seed=self.seed
            )
        order = order if self.samples is None else _first(order, self.samples)
        self._check_questions(order, dataset)
        return order

    def learner(self, dataset: Dataset, engine: Eager | None = None) -> Learner:
        """A learner that has seen nothing yet."""
        classes, budget = len(dataset.classes), self.budget(dataset)
        if self.method.capacity(budget) < classes:
            raise InputError(
                f"memory={budget} leaves {self.method.name} {max(0, self.method.capacity(budget))} rows for "
                f"{classes} classes; give each class a row: at least "
                f"{classes + self.method.samples_outside_memory(budget)}."
            )
        return Learner(
            self.method,
            image=dataset.shape,
            classes=dataset.classes,
            memory=budget,
            network=self.network,
            augment=self.augment,
            mean=dataset.mean,
            std=dataset.std,
            seed=self.seed,
            boundaries=self.tasks > 1,
            engine=engine,
        )

    def budget(self, dataset: Dataset) -> int:
        """Samples that may be kept: `memory`, or the whole stream for a method that keeps everything."""
        return len(self.order(dataset)) if self.method.admission.keeps_all else self.memory

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if self.share == 1:  # runs from before there were shares keep their names
            del values["share"]
        transforms = [transform.to_json() for transform in check_transforms(self.augment)]
        return values | {
            "method": self.method.to_json(),
            "augment": transforms[0] if len(transforms) == 1 else transforms,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Experiment:
        _check_known(data)
        try:
            given = data["augment"] if isinstance(data["augment"], list) else [data["augment"]]
            transforms = tuple(Transform.from_json(one) for one in given)
            return cls(**data | {"method": Method.from_json(data["method"]), "augment": transforms})
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"This is no experiment as `to_json` writes it: {error}.") from error

    def _drawn(self, labels: NDArray[np.int64]) -> Order:
        split: Any = {name: getattr(self, name) for name in ("tasks", "disjoint", "blur", "seed", "mode")}
        if self.share == 1:
            return i_blurry(labels, **split)
        kept = stratified_subset(labels, self.share, seed=self.seed)
        order = i_blurry(labels[kept], **split)
        return dataclasses.replace(order, tasks=tuple(kept[task] for task in order.tasks))

    def _check_questions(self, order: Order, dataset: Dataset) -> None:
        first = min(self.query_every, order.ends[0])  # the first query or the end of the first task
        met = np.unique(dataset.train.labels[order.indices[:first]])
        if not np.isin(dataset.test.labels, met).any():
            names = ", ".join(dataset.classes[label] for label in met)
            raise InputError(
                f"{self.dataset!r} has no test image of the classes met by sample {first} ({names}), so there is "
                "nothing to ask; give it test images, or a larger query_every."
            )


def canonical(data: dict[str, Any]) -> str:
    """One text for all ways to write the same: keys in order, 50.0 as 50; InputError for what JSON does not hold."""
    try:
        return json.dumps(_plain(data), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"An experiment holds finite numbers, strings, true, false and none only: {error}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_known(names: dict[str, Any]) -> None:
    known = [f.name for f in dataclasses.fields(Experiment)]
    for name in names:
        if name not in known:
            raise UnknownNameError("field of an experiment", name, known)


def _whole(name: str, value: Any, least: int) -> int:
    """A plain int, also of NumPy's: they do not go into JSON."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"{name}={value!r} is no whole number; give one from {least}.")
    if value < least:
        raise InputError(f"{name}={value} is too small; the least is {least}.")
    return int(value)


def _file_safe(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in text)[:40]


def _first(order: Order, samples: int) -> Order:
    """The same order, cut after so many samples."""
    if samples > len(order):
        raise InputError(
            f"samples={samples} is more than the stream's {len(order)}; leave it out for the whole stream."
        )
    starts = np.array([0, *order.ends[:-1]])
    tasks = [task[: samples - start] for task, start in zip(order.tasks, starts, strict=True) if start < samples]
    return dataclasses.replace(order, tasks=tuple(tasks))

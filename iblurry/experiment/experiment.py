"""An experiment as data: frozen, JSON both ways, and named by its own content."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from iblurry.augment.pipeline import Augment
from iblurry.data import published
from iblurry.data.dataset import Dataset
from iblurry.data.order import MODES, Order, i_blurry
from iblurry.engine.eager import Eager
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.settings import setting
from iblurry.learner import Learner
from iblurry.method import Method
from iblurry.methods import method as method_named


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One method on one order of one data set with one seed.

    >>> one = Experiment.of("clib", "digits", seed=2)
    >>> Experiment.from_json(one.to_json()) == one
    True
    """

    method: Method
    dataset: str  # a name, a path, or either with options: see `iblurry data`
    network: str
    memory: int  # K, the budget of samples kept
    tasks: int = 5
    disjoint: float = 50  # N, per cent of the classes
    blur: float = 10  # M, per cent of the blurry samples
    mode: str = "strict"  # where N does not divide the classes: strict, uneven or compatible
    published: str | None = None  # a folder of published split files to take the order from
    augment: Augment = field(default_factory=Augment)
    query_every: int = 100  # samples
    samples: int | None = None  # stop after so many; None is the whole stream
    seed: int = 1

    @classmethod
    def of(cls, method: str | Method, dataset: str = "digits", **changes: Any) -> Experiment:
        """The usual experiment with this method (its name, or a method of your own) on this data set."""
        usual = setting(dataset)
        known = [f.name for f in dataclasses.fields(cls)]
        for name in changes:
            if name not in known:
                raise UnknownNameError("field of an experiment", name, known)
        values: dict[str, Any] = {
            "method": method_named(method, usual.tuning) if isinstance(method, str) else method,
            "dataset": dataset,
            "network": usual.network,
            "memory": usual.memory,
            "tasks": usual.tasks,
            "augment": usual.augment,
            "query_every": usual.query_every,
        }
        return cls(**values | changes)

    def __post_init__(self) -> None:
        for name, least in (("memory", 1), ("tasks", 1), ("query_every", 1), ("samples", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name}={value} is too small; the least is {least}.")
        for name, percent in (("disjoint", self.disjoint), ("blur", self.blur)):
            if not 0 <= percent <= 100:
                raise InputError(f"{name}={percent} is no percentage; give a number from 0 to 100.")
        if self.mode not in MODES:
            raise UnknownNameError("mode", self.mode, MODES)

    @property
    def digest(self) -> str:
        """Twelve hex digits of the content: equal experiments have equal ones."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """What its folder is called: clib-digits-1-0123456789ab."""
        data = "".join(c if c.isalnum() or c in "-_" else "-" for c in Path(self.dataset.split(":", 1)[0]).stem)
        return f"{self.method.name}-{data}-{self.seed}-{self.digest}"

    def check(self, dataset: Dataset) -> None:
        """Raises at once what would otherwise come up when the run starts."""
        self.order(dataset)
        self.learner(dataset)

    def order(self, dataset: Dataset) -> Order:
        """Which training sample comes when."""
        if self.published is None:
            order = i_blurry(
                dataset.train.labels,
                tasks=self.tasks,
                disjoint=self.disjoint,
                blur=self.blur,
                seed=self.seed,
                mode=self.mode,
            )
        else:
            order = published.read(
                self.published, dataset, tasks=self.tasks, n=self.disjoint, m=self.blur, seed=self.seed
            )
        return order if self.samples is None else _first(order, self.samples)

    def learner(self, dataset: Dataset, engine: Eager | None = None) -> Learner:
        """A learner that has seen nothing yet."""
        classes = len(dataset.classes)
        if self.method.capacity(self.memory) < classes:
            raise InputError(
                f"memory={self.memory} leaves {self.method.name} {max(0, self.method.capacity(self.memory))} rows for "
                f"{classes} classes; give each class a row: at least {classes + self.method.holds}."
            )
        return Learner(
            self.method,
            image=dataset.shape,
            classes=dataset.classes,
            memory=self.memory,
            network=self.network,
            augment=self.augment,
            mean=dataset.mean,
            std=dataset.std,
            seed=self.seed,
            engine=engine,
        )

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        percents = {"disjoint": float(self.disjoint), "blur": float(self.blur)}  # 50 and 50.0 are one experiment
        return values | percents | {"method": self.method.to_json(), "augment": dataclasses.asdict(self.augment)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Experiment:
        known = [f.name for f in dataclasses.fields(cls)]
        for name in data:
            if name not in known:
                raise UnknownNameError("field of an experiment", name, known)
        return cls(**data | {"method": Method.from_json(data["method"]), "augment": Augment(**data["augment"])})


def _first(order: Order, samples: int) -> Order:
    """The same order, cut after so many samples."""
    if samples > len(order):
        raise InputError(
            f"samples={samples} is more than the stream's {len(order)}; leave it out for the whole stream."
        )
    starts = np.array([0, *order.ends[:-1]])
    tasks = [task[: samples - start] for task, start in zip(order.tasks, starts, strict=True) if start < samples]
    return dataclasses.replace(order, tasks=tuple(tasks))

"""An experiment as data: frozen, to and from JSON, and named by a digest of its content."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from iblurry.augment import Augment, Transform
from iblurry.augment.transform import Transforms, as_field, check_transforms
from iblurry.components import objects
from iblurry.components.code_hash import DIGITS, Origin, is_own, origin
from iblurry.components.component import Component
from iblurry.data.dataset import Dataset, with_train, with_validation
from iblurry.errors import InputError, UnknownNameError, check_fields, check_type
from iblurry.experiment.settings import fit_setting
from iblurry.learner.config import LearnerConfig
from iblurry.methods import method as method_named
from iblurry.methods.method import Method
from iblurry.methods.recipe import Slots
from iblurry.network.registry import NETWORKS, Initialise, is_pretrained, network_key, split_frozen
from iblurry.streams.order import Order, held_out, stratified_subset
from iblurry.streams.stream import DRAWN, IBlurry, Stream, make_stream

if TYPE_CHECKING:
    from iblurry.engine.eager import Eager
    from iblurry.learner.learner import Learner

RANGES = {
    "memory": "[1, inf)",
    "query_every": "[1, inf)",
    "samples": "[1, inf)",
    "seed": "[0, inf)",
    "share": "(0, 1]",
    "validate": "[0, 1)",
}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One method on one order of one data set with one seed; frozen, and equal if all fields are.

    Parameters
    ----------
    method : Method
        What learns; `Experiment.of` takes a method's name.
    dataset : str or Dataset
        A name, a path, or either with options: see `iblurry data`. A Dataset is kept in this process under its name and
        a hash of its content, and the field holds that.
    network : str, callable or nn.Module
        As in `LearnerConfig`. The field holds its key; see `iblurry.register_network`.
    memory : int
        K, the budget of samples kept.
    stream : Stream
        The order of the samples: `IBlurry(disjoint=50, blur=10, tasks=5)`, `Gaussian(sigma=0.1)`, `Listed(...)`, or
        one of your own; see docs/streams.md.
    augment : Transform or tuple of Transform
        Transforms of training images, in this order; () for none, as always if features are stored.
    query_every : int
        Samples between two queries, the points of the accuracy curve.
    samples : int, optional
        Stop after so many samples; None: the whole stream.
    share : float
        Fraction of every class's training images to use, at least one image; the seed decides which.
    initialise : {"redraw", "keep"}, optional
    freeze : str, default "none"
        Which weights are drawn, kept or not trained, as in `LearnerConfig`.
    validate : float
        Fraction of every class's training images that are held out of the stream and used instead of the test
        images; 0: the test images are used.
    seed : int
        Seed of all random numbers.

    >>> one = Experiment.of("clib", "digits", seed=2)
    >>> Experiment.from_json(one.to_json()) == one
    True
    """

    method: Method
    dataset: str
    network: str
    memory: int
    stream: Stream = IBlurry()
    augment: Transforms = field(default_factory=Augment)
    query_every: int = 100
    samples: int | None = None
    share: float = 1.0
    initialise: Initialise | None = None
    freeze: str = "none"
    validate: float = 0.0
    seed: int = 1

    @classmethod
    def of(
        cls, method: str | Method, dataset: str | os.PathLike[str] | Dataset = "digits", **changes: Any
    ) -> Experiment:
        """The paper's experiment with a method on a data set; for other data, one with settings that fit them.

        Parameters
        ----------
        method : str or Method
            The name of a method, which gets the data set's hyper-parameters, or a Method, which is taken as it is.
        dataset : str, path or Dataset
            A name, a path, or either with options; or the data themselves. Your own are read now, and tasks, memory and
            query_every fit them, unless all three are given.
        **changes
            Fields of the experiment or of its method: `memory=200`, `admission=Balanced()`; those of its stream as
            well: `tasks=10`, `blur=30`, or `published=FOLDER` for the order of published split files.
        """
        dataset = _dataset_name(dataset)
        usual = fit_setting(dataset, changes)
        slots = {name: changes.pop(name) for name in Slots.__annotations__ if name in changes}
        asked = {name: changes.pop(name) for name in ("stream", "published", *DRAWN) if name in changes}
        if "stream" not in asked:
            asked = {"tasks": usual.tasks} | ({"mode": usual.mode} if usual.mode != "strict" else {}) | asked
        stream = make_stream(**asked)
        _check_known(changes)
        values: dict[str, Any] = {
            "method": dataclasses.replace(method_named(method, usual.hyperparameters), **slots),
            "dataset": dataset,
            "network": usual.network,
            "memory": usual.memory,
            "stream": stream,
            "augment": usual.augment,
            "query_every": usual.query_every,
        }
        return cls(**values | changes)

    def __post_init__(self) -> None:
        if isinstance(self.dataset, Dataset):
            object.__setattr__(self, "dataset", _dataset_name(self.dataset))
        network, freeze = split_frozen(self.network, self.freeze)
        object.__setattr__(self, "network", network_key(network))
        object.__setattr__(self, "freeze", freeze)
        check_type("method", self.method, Method)
        check_type("stream", self.stream, Stream)
        check_fields(self, RANGES)
        transforms = check_transforms(self.augment) if freeze != "body" else ()
        object.__setattr__(self, "augment", as_field(transforms))
        for name in ("share", "validate"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "stream", self.stream.for_dataset(dataset_stem(self.dataset)))
        if self.share != 1 and self.stream.names_samples:
            raise InputError(
                f"share={self.share:g} selects images, but {type(self.stream).__name__} lists all; give only one."
            )

    @property
    def digest(self) -> str:
        """Twelve hex digits of the content: equal experiments have equal ones."""
        identity = self.to_json() | {"stream": self.stream.identity_json()}
        return hashlib.sha256(canonical(identity).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """What its folder is called: clib-digits-1-0123456789ab."""
        return f"{_file_safe(self.method.name)}-{_file_safe(dataset_stem(self.dataset))}-{self.seed}-{self.digest}"

    @property
    def pretrained(self) -> bool:
        """Whether the body starts with weights from elsewhere; False where its code or object is not here."""
        return is_pretrained(self.network, self.initialise)

    def components(self) -> Iterator[Component]:
        """Whatever of it may be a user's own code."""
        yield from self.method.components()
        yield from check_transforms(self.augment)
        yield self.stream

    def sources(self) -> dict[str, Origin]:
        """Where the user's own code in it came from, by its name in JSON."""
        code: dict[str, Any] = {component.written: type(component) for component in self.components()}
        name = self.network.partition(":")[0]
        code |= {name: NETWORKS[name.partition("@")[0]]} if name.partition("@")[0] in NETWORKS else {}
        return {written: origin(made) for written, made in code.items() if not is_own(made)}

    def object_keys(self) -> set[str]:
        """Keys of objects that the program brought (a Dataset, a module, a transform), in any of its fields."""
        keys = (text.partition(":")[0] for text in _strings(self.to_json()))
        return {key for key in keys if objects.kept(key) is not None}

    def check(self, dataset: Dataset) -> None:
        """Raise now what would otherwise be raised when the run starts."""
        self.order(dataset)
        self.learner(dataset)

    def order(self, dataset: Dataset) -> Order:
        """The order of the training samples."""
        order = self._whole_order(dataset)
        order = order if self.samples is None else _first(order, self.samples)
        self._check_questions(order, self.questions(dataset))
        return order

    def questions(self, dataset: Dataset) -> Dataset:
        """The data set whose test images are asked about: its own, or the training images held out for validation."""
        if not self.validate:
            return dataset
        return with_validation(dataset, held_out(dataset.train.labels, self.validate, seed=self.seed))

    def learner(
        self,
        dataset: Dataset,
        engine: Eager | None = None,
        *,
        on_refit: Callable[[int, int], None] = lambda done, total: None,
    ) -> Learner:
        """A learner that has seen nothing yet; the arguments are those of `Learner`."""
        from iblurry.learner.learner import Learner

        return Learner(self.learner_config(dataset), engine=engine, on_refit=on_refit)

    def learner_config(self, dataset: Dataset) -> LearnerConfig:
        """What its learner is built from."""
        classes, budget = len(dataset.classes), self.budget(dataset)
        if self.method.capacity(budget) < classes and not self.method.admission.keeps_none:
            least, rows = self.method.least_budget(budget, classes), max(0, self.method.capacity(budget))
            raise InputError(
                f"memory={budget} is too small: {self.method.name} stores {rows} of these and {classes} classes "
                f"need one each; give at least {least} (--memory {least})."
            )
        return LearnerConfig(
            method=self.method,
            image=dataset.shape,
            classes=dataset.classes,
            memory=budget,
            network=self.network,
            initialise=self.initialise,
            freeze=self.freeze,
            augment=self.augment,
            mean=dataset.mean,
            std=dataset.std,
            seed=self.seed,
            boundaries=len(self._whole_order(dataset).tasks) > 1,
        )

    def budget(self, dataset: Dataset) -> int:
        """Samples that may be kept: `memory`, or the whole stream for a method that keeps everything."""
        return len(self.order(dataset)) if self.method.admission.keeps_all else self.memory

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        transforms = [transform.to_json() for transform in check_transforms(self.augment)]
        return values | {
            "method": self.method.to_json(),
            "stream": self.stream.to_json(),
            "augment": transforms[0] if len(transforms) == 1 else transforms,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Experiment:
        _check_known(data)
        try:
            given = data["augment"] if isinstance(data["augment"], list) else [data["augment"]]
            transforms = tuple(Transform.from_json(one) for one in given)
            read = {"method": Method.from_json(data["method"]), "stream": Stream.from_json(data["stream"])}
            return cls(**data | read | {"augment": transforms})
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"This is not an experiment written by `to_json`: {error}.") from error

    def _whole_order(self, dataset: Dataset) -> Order:
        order = self._drawn_order(dataset)
        return order if self.stream.has_boundaries else order.in_windows(1)

    def _drawn_order(self, dataset: Dataset) -> Order:
        labels = dataset.train.labels
        pool = np.arange(len(labels))
        if self.validate:
            pool = np.setdiff1d(pool, held_out(labels, self.validate, seed=self.seed))
        if self.share != 1:
            pool = pool[stratified_subset(labels[pool], self.share, seed=self.seed)]
        if len(pool) == len(labels):
            return self.stream.order(dataset, self.seed)
        if self.stream.names_samples:
            return self.stream.order(dataset, self.seed).only(pool)
        order = self.stream.order(with_train(dataset, pool), self.seed)
        return dataclasses.replace(order, tasks=tuple(pool[task] for task in order.tasks))

    def _check_questions(self, order: Order, dataset: Dataset) -> None:
        first = min(self.query_every, order.ends[0])  # the first query or the end of the first task
        met = np.unique(dataset.train.labels[order.indices[:first]])
        if not np.isin(dataset.test.labels, met).any():
            names = ", ".join(dataset.classes[label] for label in met)
            raise InputError(
                f"{self.dataset!r} has no test image of the classes seen by sample {first} ({names}), so there is "
                "nothing to test; give test images of these classes, or a larger query_every."
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


def _dataset_name(dataset: Any) -> str:
    """What an experiment calls a data set: the name or path given, or the key under which the object is kept."""
    if isinstance(dataset, Dataset):
        return objects.keep(dataset.name, dataset.fingerprint()[:DIGITS], dataset)
    try:
        return str(os.fspath(dataset))
    except TypeError:
        raise InputError(f"dataset={dataset!r:.80} is not valid; give a name, a path or a Dataset.") from None


def _strings(value: Any) -> Iterator[str]:
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    yield from [value] if isinstance(value, str) else ()
    for item in inner:
        yield from _strings(item)


def dataset_stem(dataset: str) -> str:
    """The name of a data set without folders, options and hash.

    >>> dataset_stem("data/own.npz"), dataset_stem("shapes:classes=4")
    ('own', 'shapes')
    """
    return Path(dataset.split(":", 1)[0].split("@", 1)[0]).stem


def _file_safe(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in text)[:40]


def _first(order: Order, samples: int) -> Order:
    """The same order, cut after so many samples."""
    if samples > len(order):
        raise InputError(
            f"samples={samples} is more than the stream's {len(order)} samples; leave it out for the whole stream."
        )
    starts = np.array([0, *order.ends[:-1]])
    tasks = [task[: samples - start] for task, start in zip(order.tasks, starts, strict=True) if start < samples]
    return dataclasses.replace(order, tasks=tuple(tasks))

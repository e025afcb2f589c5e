"""The paper's numbers per data set, and sensible ones for data it never saw."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

from iblurry.augment import Augment
from iblurry.components import objects
from iblurry.data.dataset import Dataset
from iblurry.data.load import load, parse_spec
from iblurry.errors import InputError
from iblurry.methods import Hyperparameters
from iblurry.streams.order import i_blurry


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What an experiment on a data set takes unless told otherwise."""

    network: str
    memory: int  # K
    query_every: int = 100  # samples between two points of the curve
    tasks: int = 5
    mode: str = "strict"  # how the classes are shared among the tasks
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)
    augment: Augment = field(default_factory=Augment)


CIFAR = Augment(policy="cifar10")  # for both CIFARs, as released
IMAGENET = Augment(policy="imagenet")
SETTINGS = {
    "cifar10": Setting(network="resnet18", memory=500, augment=CIFAR),
    "cifar100": Setting(
        network="resnet34", memory=2000, hyperparameters=Hyperparameters(updates_per_sample=3), augment=CIFAR
    ),
    "tinyimagenet": Setting(
        network="resnet34",
        memory=4000,
        hyperparameters=Hyperparameters(batch=32, updates_per_sample=3, gamma=0.99995),
        augment=IMAGENET,
    ),
    "imagenet": Setting(
        network="resnet34",
        memory=20000,
        query_every=1000,
        tasks=10,
        hyperparameters=Hyperparameters(
            batch=256,
            updates_per_sample="1/4",
            gamma=0.99995,
            measure_every=10,
            epochs=100,
            milestones=(30, 60, 80, 90),
        ),
        augment=IMAGENET,
    ),
    # Not in the paper: small enough for a laptop. A mirrored digit is none, and 8 pixels leave no room for a crop.
    # Refits of 32 epochs: GDumb is asked sixty times, and 256 take eight times as long for a point of A_AUC.
    "digits": Setting(
        network="mlp",
        memory=100,
        query_every=25,
        hyperparameters=Hyperparameters(epochs=32),
        augment=Augment(pad=0, flip=False),
    ),
    "fashion_mnist": Setting(network="convnet", memory=500, augment=Augment(pad=2)),
    "shapes": Setting(network="convnet", memory=100, augment=Augment(pad=1, flip=False)),
}
OTHERS = Setting(network="convnet", memory=500, augment=Augment(pad=2, flip=False))


def setting(dataset: str) -> Setting:
    """Finds a setting by the name before the options: "shapes:classes=20" is set like "shapes"."""
    return SETTINGS.get(_name(dataset), OTHERS)


def is_known(dataset: str) -> bool:
    """Whether the program has numbers for it; it has none for data of the user's."""
    return _name(dataset) in SETTINGS


def fit_setting(dataset: str, changes: Mapping[str, Any]) -> Setting:
    """The setting; for data of the user's smaller numbers where these are few. `changes` are what the user says.

    The memory is 500 (or 2 for each class), at most half of the samples, but a batch and a row for each class; a query
    comes every 100, or a tenth of them; tasks are 5, or the most below that share the classes equally, else "uneven".
    A small test set without images of some classes is asked twice, in one task.
    """
    usual = setting(dataset)
    is_drawn = not {"stream", "published"} & changes.keys()
    is_settled = {"memory", "query_every"} <= changes.keys() and (not is_drawn or "tasks" in changes)
    if is_known(dataset) or is_settled:
        return usual
    if (held := objects.kept(dataset)) is not None:
        known, training, tested = _count(held)
    elif (stamp := _stamp(dataset)) is not None:
        known, training, tested = _count_stored(dataset, stamp)
    else:
        return usual
    if known < 2:
        raise InputError(f"{dataset!r} has {known} class; give data with two or more classes.")
    told = {name: float(value) for name, value in changes.items() if isinstance(value, Real)}
    drawn = training * told.get("share", 1) * (1 - told.get("validate", 0))
    samples = int(min(drawn, told.get("samples", drawn)))
    least = usual.hyperparameters.batch + known  # what every method can work with
    memory = max(min(max(usual.memory, 2 * known), samples // 2), least)
    fitted = dataclasses.replace(usual, memory=memory, query_every=min(usual.query_every, max(1, samples // 10)))
    if tested < known and samples < 10 * usual.query_every:  # a query soon after the start may have nothing to ask
        return dataclasses.replace(fitted, query_every=max(1, samples // 2), tasks=1, mode="uneven")
    if not is_drawn or "tasks" in changes:
        return fitted
    asked = {name: changes[name] for name in ("disjoint", "blur", "mode") if name in changes}
    for tasks in range(min(usual.tasks, known), 1, -1):
        try:
            i_blurry(np.arange(known), tasks=tasks, **asked)
            return dataclasses.replace(fitted, tasks=tasks)
        except InputError:
            continue
    return dataclasses.replace(fitted, tasks=min(usual.tasks, known), mode="uneven")


def _count(data: Dataset) -> tuple[int, int, int]:
    """Classes with training samples, these, and the classes with test images among them."""
    classes = np.unique(data.train.labels)
    return len(classes), len(data.train), int(np.isin(classes, data.test.labels).sum())


@lru_cache(maxsize=8)  # a study or several seeds ask again and again
def _count_stored(dataset: str, stamp: int) -> tuple[int, int, int]:
    return _count(load(dataset))


def _stamp(dataset: str) -> int | None:
    """When a file, or anything in the upper two levels of a folder, has changed; None where there is no such place."""
    try:
        _, path, _ = parse_spec(dataset)
        places = [] if path is None else [path, *path.glob("*"), *path.glob("*/*")]
        return max((place.stat().st_mtime_ns for place in places), default=None)
    except (InputError, OSError):  # `load` says what is wrong
        return None


def _name(dataset: str) -> str:
    """Before the options, and before the hash of data that a program brought."""
    return dataset.split(":", 1)[0].split("@", 1)[0]


def plain(dataset: str) -> str:
    """`imagenet` for `imagenet:PATH`, as where images lie changes nothing; options such as size=64 do.

    >>> plain("imagenet:/data/ILSVRC"), plain("imagenet:/data/ILSVRC,size=64"), plain("mine.npz")
    ('imagenet', 'imagenet:/data/ILSVRC,size=64', 'mine.npz')
    """
    name = dataset.split(":", 1)[0]
    if name not in SETTINGS:
        return dataset
    _, _, options = parse_spec(dataset)
    return dataset if options.keys() - {"lazy"} else name

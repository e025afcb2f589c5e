"""The paper's numbers per data set, and sensible ones for data it never saw."""

from __future__ import annotations

from dataclasses import dataclass, field

from iblurry.augment import Augment
from iblurry.data.load import parse_spec
from iblurry.methods import Hyperparameters


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What an experiment on a data set takes unless told otherwise."""

    network: str
    memory: int  # K
    query_every: int = 100  # samples between two points of the curve
    tasks: int = 5
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
    """By the name before the options: "shapes:classes=20" is set like "shapes"."""
    return SETTINGS.get(_name(dataset), OTHERS)


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

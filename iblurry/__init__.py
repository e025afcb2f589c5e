"""Online continual learning on i-Blurry streams: learn one sample at a time, query at any moment, resume exactly."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iblurry.version import __version__

if TYPE_CHECKING:
    from iblurry.augment import Augment, TorchTransform, Transform
    from iblurry.data.dataset import Dataset
    from iblurry.data.load import load, register_source
    from iblurry.engine.optimizer import SGD, Adam, AdamW, Optimizer
    from iblurry.errors import IblurryError, InputError
    from iblurry.estimator import ContinualClassifier as ContinualClassifier
    from iblurry.experiment.callback import Callback
    from iblurry.experiment.checkpointer import CheckpointPolicy
    from iblurry.experiment.environment import Hardware
    from iblurry.experiment.experiment import Experiment
    from iblurry.experiment.result import Result
    from iblurry.launch.config import LaunchConfig
    from iblurry.launch.launch import run, run_all
    from iblurry.learner import Learner
    from iblurry.live.client import Client
    from iblurry.method import Head, Method, Pace
    from iblurry.methods import METHODS, Hyperparameters, clib, er, released
    from iblurry.network.registry import register_network
    from iblurry.rng import Rng
    from iblurry.streams.iterator import StreamItem, StreamIterator
    from iblurry.streams.order import Order, i_blurry
    from iblurry.streams.stream import IBlurry, Listed, Published, Stream

_HOMES = {  # opened at the first use of a name: importing torch takes seconds, and `iblurry --help` should not
    "iblurry.augment": ("Augment", "TorchTransform", "Transform"),
    "iblurry.data.dataset": ("Dataset",),
    "iblurry.data.load": ("load", "register_source"),
    "iblurry.rng": ("Rng",),
    "iblurry.streams.order": ("Order", "i_blurry"),
    "iblurry.streams.iterator": ("StreamItem", "StreamIterator"),
    "iblurry.streams.stream": ("IBlurry", "Listed", "Published", "Stream"),
    "iblurry.engine.optimizer": ("SGD", "Adam", "AdamW", "Optimizer"),
    "iblurry.errors": ("IblurryError", "InputError"),
    "iblurry.estimator": ("ContinualClassifier",),
    "iblurry.experiment.callback": ("Callback",),
    "iblurry.experiment.checkpointer": ("CheckpointPolicy",),
    "iblurry.experiment.environment": ("Hardware",),
    "iblurry.experiment.experiment": ("Experiment",),
    "iblurry.experiment.result": ("Result",),
    "iblurry.launch.config": ("LaunchConfig",),
    "iblurry.launch.launch": ("run", "run_all"),
    "iblurry.learner": ("Learner",),
    "iblurry.live.client": ("Client",),
    "iblurry.method": ("Head", "Method", "Pace"),
    "iblurry.network.registry": ("register_network",),
    "iblurry.methods": ("METHODS", "Hyperparameters", "clib", "er", "released"),
}
_EXTRA = {"ContinualClassifier"}  # a star import must not need an extra
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "METHODS",
    "SGD",
    "Adam",
    "AdamW",
    "Augment",
    "Callback",
    "CheckpointPolicy",
    "Client",
    "Dataset",
    "Experiment",
    "Hardware",
    "Head",
    "Hyperparameters",
    "IBlurry",
    "IblurryError",
    "InputError",
    "LaunchConfig",
    "Learner",
    "Listed",
    "Method",
    "Optimizer",
    "Order",
    "Pace",
    "Published",
    "Result",
    "Rng",
    "Stream",
    "StreamItem",
    "StreamIterator",
    "TorchTransform",
    "Transform",
    "__version__",
    "clib",
    "er",
    "i_blurry",
    "load",
    "register_network",
    "register_source",
    "released",
    "run",
    "run_all",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'iblurry' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_EXTRA})

"""What a learner is built from: the estimator's parameters, checked, and the shape of the first rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import index
from typing import Any

from iblurry.augment.transform import NO_AUGMENT, Transforms, as_field, check_transforms
from iblurry.engine.devices import make_engine
from iblurry.engine.eager import Eager
from iblurry.errors import InputError
from iblurry.learner.config import LearnerConfig
from iblurry.learner.learner import Learner
from iblurry.methods import METHODS, Hyperparameters
from iblurry.methods import method as method_named
from iblurry.methods.method import Method, check_updates
from iblurry.network.registry import network_key, split_frozen
from iblurry.network.table_mlp import BYTES, TableMLP

Shape = tuple[int, int, int]  # channels, height, width
PACE: dict[str, Any] = {"batch_size": 16, "updates_per_sample": 1, "measure_every": 10}  # the parameters' defaults


def learner_config(params: Mapping[str, Any], *, columns: int, shape: Shape | None, seed: int) -> LearnerConfig:
    """What an estimator's parameters say of its learner, for an X of so many columns; InputError where they do not fit.

    Parameters
    ----------
    params : mapping
        As `get_params` returns them.
    columns : int
        Of the first X.
    shape : tuple of int, optional
        (channels, height, width) of images; None: rows are numbers.
    seed : int
        Of the learner.
    """
    if shape is not None and columns != math.prod(shape):
        raise InputError(
            f"A row of X has {columns} columns, but an image of shape={shape} has {math.prod(shape)} pixels; "
            "give the shape (channels, height, width) that the rows have."
        )
    named, freeze = split_frozen(params["network"], params["freeze"])
    network = _check_network(named, shape)
    pace = {name: params[name] for name in ("batch_size", "updates_per_sample", "measure_every")}
    config: dict[str, Any] = {
        "method": _check_method(params["method"], pace),
        "classes": positive_int("max_classes", params["max_classes"]),
        "memory": positive_int("memory", params["memory"]),
        "initialise": params["initialise"],
        "freeze": freeze,
        "augment": _check_augment(params["augment"], network, shape, freeze),
        "seed": seed,
        "boundaries": False,
        "device": _check_device(params["device"]),
    }
    if shape is not None:
        return LearnerConfig(**config, image=shape, network=network)
    table = {
        "image": (1, columns, BYTES),
        "network": TableMLP,
        "freeze": "layers" if freeze == "body" else freeze,  # its statistics go on moving
        "mean": [0.0],  # bytes stay the numbers they are
        "std": [1 / 255],
    }
    return LearnerConfig(**config | table)


def build_learner(config: LearnerConfig) -> Learner:
    """A new learner; that of a table runs its steps as they are, since an mlp is not worth capturing."""
    is_table = config.network is TableMLP
    return Learner(config, engine=(Eager if is_table else make_engine)(config.device or "cpu"))


def positive_int(name: str, given: Any) -> int:
    """A parameter as a positive int; NumPy integers are accepted."""
    try:
        number = index(given)
    except TypeError:
        number = 0
    if number < 1 or isinstance(given, bool):
        raise InputError(f"{name}={given!r}: {name} is a whole number of at least 1.")
    return number


def check_shape(given: Any) -> Shape | None:
    """The parameter `shape` as a tuple."""
    if given is None:
        return None
    try:
        channels, height, width = given
    except (TypeError, ValueError) as error:
        raise InputError(
            f"shape={given!r}: the shape of an image is (channels, height, width), such as (3, 32, 32)."
        ) from error
    channels, height, width = (positive_int("a side of shape", side) for side in (channels, height, width))
    return channels, height, width


def _check_method(given: Any, pace: dict[str, Any]) -> Method:
    """A method; `pace` has the parameters that one given by its name gets, and any other has its own."""
    if isinstance(given, str):
        updates = pace["updates_per_sample"]
        check_updates(updates)
        batch, measure = (positive_int(name, pace[name]) for name in ("batch_size", "measure_every"))
        made = method_named(given, Hyperparameters(batch=batch, updates_per_sample=updates, measure_every=measure))
    elif not isinstance(given, Method):
        raise InputError(f"method={given!r} is neither a name ({', '.join(METHODS)}) nor a Method, such as clib().")
    elif pace != PACE:
        changed = ", ".join(f"{name}={value!r}" for name, value in pace.items() if value != PACE[name])
        raise InputError(
            f"{changed} is only for a method given by its name; leave it out, or set it in the method, as in "
            "clib(Hyperparameters(batch=32))."
        )
    else:
        made = given
    why = _unsuitable(made)
    if why:
        fit = ", ".join(name for name in METHODS if _unsuitable(METHODS[name]()) is None)
        raise InputError(f"The method {made.name} {why}; use one of {fit}, or run it as an experiment.")
    if not made.readout.learns:
        check_updates(made.pace.updates_per_sample)
    return made


def _unsuitable(method: Method) -> str | None:
    """Why a method cannot be used by an estimator, or None."""
    if not method.task_free:
        return "needs the ends of tasks, which an estimator does not know"
    if method.refit is not None:
        return "trains a network when it predicts, which an estimator must not do"
    return None


def _check_network(given: Any, shape: Shape | None) -> str:
    key = network_key(("mlp" if shape is None else "convnet") if given is None else given)
    if shape is None and key != "mlp":
        raise InputError(
            f"network={key!r} looks at images, but X is a table of numbers: give shape=(channels, height, width) if "
            "its rows are pixels, or leave the network out."
        )
    return key


def _check_augment(given: Any, network: str, shape: Shape | None, freeze: str) -> Transforms | None:
    transforms = None if given is None else as_field(check_transforms(given))
    if shape is None and given is not None:
        raise InputError(f"augment={given!r} changes images, but X is a table of numbers; leave it out.")
    if given is None and freeze == "body" and shape is not None:
        return None  # features are stored
    if given is None and (shape is None or network.partition(":")[0] == "mlp"):
        return NO_AUGMENT  # an mlp does not know which pixels are neighbours
    return transforms


def _check_device(given: Any) -> str:
    if str(given).split(":", 1)[0] not in ("cpu", "cuda"):
        raise InputError(f"device={given!r} is neither 'cpu' nor 'cuda' (or one of several, as 'cuda:1').")
    return str(given)

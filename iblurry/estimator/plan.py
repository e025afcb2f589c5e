"""What a learner is begun with: an estimator's parameters, checked, and the form of the first rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

from iblurry.augment.pipeline import Augment
from iblurry.engine.devices import make_engine
from iblurry.engine.eager import Eager
from iblurry.errors import InputError, UnknownNameError
from iblurry.learner import Learner
from iblurry.method import Method, check_updates
from iblurry.methods import METHODS, Hyperparameters
from iblurry.methods import method as named
from iblurry.network.build import NETWORKS
from iblurry.network.table_mlp import BYTES, TableMLP

Shape = tuple[int, int, int]  # channels, height, width
STILL = Augment(pad=0, flip=False, cutmix=0.0)
USUAL = Hyperparameters()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that decides how a learner begins; two that begin with equal plans are equal."""

    method: Method
    classes: int
    memory: int
    columns: int
    shape: Shape | None  # of images; None: rows are numbers
    network: str
    augment: Augment | None
    seed: int
    device: str

    @classmethod
    def of(cls, params: Mapping[str, Any], *, columns: int, shape: Shape | None, seed: int) -> Plan:
        """Of an estimator's parameters and of what the first X is like."""
        if shape is not None and columns != math.prod(shape):
            raise InputError(
                f"A row of X has {columns} columns, but an image of shape={shape} has {math.prod(shape)} pixels; "
                "give the shape (channels, height, width) that the rows have."
            )
        network = _network(params["network"], shape)
        return cls(
            method=_method(params["method"], params["batch_size"], params["updates_per_sample"]),
            classes=whole("max_classes", params["max_classes"]),
            memory=whole("memory", params["memory"]),
            columns=columns,
            shape=shape,
            network=network,
            augment=_augment(params["augment"], network, shape),
            seed=seed,
            device=_device(params["device"]),
        )

    def begin(self) -> Learner:
        """A learner that has learnt nothing yet."""
        is_table = self.shape is None
        return Learner(
            self.method,
            image=self.shape or (1, self.columns, BYTES),
            classes=self.classes,
            memory=self.memory,
            network=TableMLP if is_table else self.network,
            augment=self.augment,
            mean=[0.0] if is_table else None,  # bytes stay the numbers they are
            std=[1 / 255] if is_table else None,
            seed=self.seed,
            boundaries=False,
            engine=Eager(self.device) if is_table else make_engine(self.device),  # an mlp is not worth capturing
        )


def whole(name: str, given: Any) -> int:
    """A count, also where numpy made it."""
    try:
        number = index(given)
    except TypeError:
        number = 0
    if number < 1 or isinstance(given, bool):
        raise InputError(f"{name}={given!r}: {name} is a whole number of at least 1.")
    return number


def shape_of(given: Any) -> Shape | None:
    """The parameter `shape`, as a tuple."""
    if given is None:
        return None
    try:
        channels, height, width = given
    except (TypeError, ValueError) as error:
        raise InputError(
            f"shape={given!r}: the shape of an image is (channels, height, width), such as (3, 32, 32)."
        ) from error
    return whole("a side of shape", channels), whole("a side of shape", height), whole("a side of shape", width)


def _method(given: Any, batch: Any, updates: Any) -> Method:
    if isinstance(given, str):
        check_updates(updates)
        made = named(given, Hyperparameters(batch=whole("batch_size", batch), updates_per_sample=updates))
    elif not isinstance(given, Method):
        raise InputError(f"method={given!r} is neither a name ({', '.join(METHODS)}) nor a Method, as clib() makes it.")
    elif (batch, updates) != (USUAL.batch, USUAL.updates_per_sample):
        raise InputError(
            f"batch_size={batch!r} and updates_per_sample={updates!r} are for a method given by its name; one that is "
            "put together has its own, as in clib(Hyperparameters(batch=32)), so leave them out."
        )
    else:
        made = given
    why = _unfit(made)
    if why:
        fit = ", ".join(name for name in METHODS if _unfit(METHODS[name]()) is None)
        raise InputError(f"The method {made.name} {why}; use one of {fit}, or run it as an experiment.")
    check_updates(made.pace.updates_per_sample)
    return made


def _unfit(method: Method) -> str | None:
    """Why it cannot be an estimator's, or None."""
    if not method.task_free:
        return "must be told where tasks end, and an estimator is never told"
    if method.refit is not None:
        return "trains when it is asked, and to predict should not be to learn"
    return None


def _network(given: Any, shape: Shape | None) -> str:
    name = given or ("mlp" if shape is None else "convnet")
    if not isinstance(name, str) or name not in NETWORKS:
        raise UnknownNameError("network", str(name), NETWORKS)
    if shape is None and name != "mlp":
        raise InputError(
            f"network={name!r} looks at images, but X is a table of numbers: give shape=(channels, height, width) if "
            "its rows are pixels, or leave the network out."
        )
    return name


def _augment(given: Any, network: str, shape: Shape | None) -> Augment | None:
    if not isinstance(given, Augment | None):
        raise InputError(f"augment={given!r} is neither an Augment, as Augment(pad=2, flip=True), nor None.")
    if shape is None and given is not None:
        raise InputError(f"augment={given!r} varies images, but X is a table of numbers; leave it out.")
    if given is None and (shape is None or network == "mlp"):
        return STILL  # an mlp knows nothing of neighbours
    return given


def _device(given: Any) -> str:
    if str(given).split(":", 1)[0] not in ("cpu", "cuda"):
        raise InputError(f"device={given!r} is neither 'cpu' nor 'cuda' (or one of several, as 'cuda:1').")
    return str(given)

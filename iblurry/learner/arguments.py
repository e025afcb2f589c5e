"""The arguments of a learner, checked: image shape, classes, labels, normalisation, device."""

from __future__ import annotations

import math
import os
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.engine.devices import make_engine
from iblurry.engine.eager import Eager, Precision
from iblurry.errors import InputError, check_type, whole_number
from iblurry.methods import method as method_named
from iblurry.methods.method import Method
from iblurry.network.network import Network

Label = str | int
Images = Tensor | NDArray[np.uint8]


def as_method(given: Any) -> Method:
    """A method, or the one of this name with the hyper-parameters of CIFAR-10."""
    if isinstance(given, str):
        return method_named(given)
    if not isinstance(given, Method):
        raise InputError(f"method={given!r} is not a Method; give one, such as iblurry.METHODS['er'](), or its name.")
    return given


def check_boundaries(method: Method, boundaries: Any) -> None:
    """InputError where nobody will say when a task ends, and the method must be told."""
    check_type("boundaries", boundaries, bool)
    if not boundaries and not method.task_free:
        parts = ", ".join(type(part).__name__ for _, part in method.parts() if part.needs_boundaries)
        raise InputError(
            f"{method.name} needs the ends of tasks ({parts}), and this stream has no task boundaries; "
            "use a stream of two or more tasks, such as IBlurry, or a task-free method, such as er or clib."
        )


def check_trained(method: Method, network: Network, freeze: str) -> None:
    """InputError where updates have no weight to train, or train a body that the readout needs to stay as it is."""
    if not method.pace.updates_per_sample:
        return
    if not network.trainable():
        raise InputError(
            f"{method.name} has no weight to train: its head is fixed (head.train=false) and freeze={freeze!r} "
            "freezes the whole body; train one of the two."
        )
    if method.readout.needs_fixed_body and network.body_parameters():
        raise InputError(
            f"{method.name}: {type(method.readout).__name__} sums features of a body that is not trained, but "
            f"freeze={freeze!r} leaves weights of it to train; give freeze='body' or pace.updates_per_sample=0."
        )


def as_path(given: str | os.PathLike[str]) -> Path:
    """The path of a file; InputError for what is none."""
    try:
        return Path(given)
    except TypeError as error:
        raise InputError(f"path={given!r:.80} is not a path; give the name of a file.") from error


def as_engine(engine: Eager | None, device: str | None, precision: Precision | None) -> Eager:
    """The engine that was given, or one for this device and precision; never both."""
    check_type("engine", engine, Eager | None)
    check_type("device", device, str | None)
    check_type("precision", precision, str | None)
    if engine is None:
        return make_engine(device or "cpu", precision) if device or precision else Eager()
    if device or precision:
        raise InputError(
            f"engine={engine!r} already has a device and a precision; give either engine, or device and precision."
        )
    return engine


def image_shape(image: Any) -> tuple[int, int, int]:
    try:
        channels, height, width = (whole_number("image", size, 1) for size in image)
    except (TypeError, ValueError) as error:  # InputError is a ValueError
        raise InputError(
            f"image={image!r} is not an image shape; give (channels, height, width), such as (3, 32, 32)."
        ) from error
    return channels, height, width


def announced(classes: Any) -> tuple[list[Label] | None, int]:
    """The labels that may come, if they were given, and the rows of the head."""
    if isinstance(classes, Integral):
        return None, whole_number("classes", classes, 1)
    try:
        labels = [plain_label(label) for label in classes] if not isinstance(classes, str) else []
    except TypeError:
        labels = []
    if not labels:
        raise InputError(f"classes={classes!r}: give a number of classes, or a sequence of at least one label.")
    if len(set(labels)) < len(labels):
        twice = next(label for place, label in enumerate(labels) if label in labels[:place])
        raise InputError(f"classes names {twice!r} more than once; name each once.")
    return labels, len(labels)


def plain_label(label: Any) -> Label:
    """A label as Python's own type; True and False are refused, since they equal 1 and 0."""
    is_scalar = isinstance(label, np.generic) or (isinstance(label, Tensor) and label.numel() == 1)
    plain: Any = label.item() if is_scalar else label
    if isinstance(plain, bool) or not isinstance(plain, str | int):
        raise InputError(f"The label {label!r} is neither a string nor a whole number.")
    return plain


def per_channel(name: str, values: Any, default: float, channels: int) -> tuple[float, ...]:
    try:
        found = tuple(map(float, [default] * channels if values is None else values))
    except (TypeError, ValueError):
        found = ()
    is_positive = name != "std" or all(value > 0 for value in found)
    if len(found) != channels or not all(map(math.isfinite, found)) or not is_positive:
        above = " above 0" if name == "std" else ""
        raise InputError(f"{name}={values!r} is not valid; give {channels} finite numbers{above}, one per channel.")
    return found


def as_labels(labels: Any, images: int, *, is_one: bool) -> list[Label]:
    """A label for each of so many images; InputError where there are not so many."""
    try:
        plain = [plain_label(label) for label in ([labels] if is_one or isinstance(labels, str) else labels)]
    except TypeError:  # a number
        plain = []
    if len(plain) != images:
        raise InputError(f"labels={labels!r:.80} is not valid; give a label for each image, {images}.")
    return plain


def as_pixels(images: Images, image: tuple[int, ...], verb: str, *, may_be_one: bool = False) -> Tensor:
    """A batch of images, or one if it may be, as a uint8 batch; floats from 0 to 1 become the nearest of 256 levels."""
    try:
        pixels: Any = images if isinstance(images, Tensor) else np.asarray(images)
    except ValueError as error:  # lists of different lengths
        raise InputError(f"{verb} takes pixels as an array or a tensor ({error}).") from error
    is_float = pixels.dtype.is_floating_point if isinstance(pixels, Tensor) else pixels.dtype.kind == "f"
    is_one = may_be_one and len(pixels.shape) == len(image)
    fits = tuple(pixels.shape[not is_one :]) == image
    if not fits or not (is_float or pixels.dtype in (torch.uint8, np.uint8)):
        want = f"{image}, or a batch of them," if may_be_one else f"({', '.join(map(str, ('any', *image)))})"
        raise InputError(
            f"{verb} takes pixels of shape {want} as uint8, or as floats from 0 to 1, not {pixels.dtype} "
            f"{tuple(pixels.shape)}."
        )
    if not isinstance(pixels, Tensor):  # torch shares only arrays that may be written to
        pixels = torch.from_numpy(pixels if pixels.flags.writeable and pixels.flags.c_contiguous else pixels.copy())
    if is_float and pixels.numel():
        low, high = pixels.min().item(), pixels.max().item()
        if not 0 <= low <= high <= 1:
            raise InputError(
                f"{verb} takes floats from 0 to 1, as torchvision's ToTensor makes them, not from {low:.3g} to "
                f"{high:.3g}; leave out Normalize (the learner has `mean` and `std`), or give uint8."
            )
        pixels = (pixels * 255).round()
    batch: Tensor = pixels.to(torch.uint8)
    return batch[None] if is_one else batch

"""The configuration of a learner: all that decides what it learns from its samples, checked once, to and from JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from iblurry.augment import Augment
from iblurry.augment.transform import Transform, Transforms, as_field, check_transforms
from iblurry.components.lazy_torch import Tensor
from iblurry.errors import InputError, check_type, whole_number
from iblurry.methods import method as method_named
from iblurry.methods.method import Method
from iblurry.network.registry import AnyNetwork, Image, Initialise, network_key, split_frozen

if TYPE_CHECKING:  # importing torch takes two seconds, which reading or refusing a configuration need not wait
    from iblurry.engine.eager import Eager, Precision
    from iblurry.network.network import Network
    from iblurry.parts.context import Context

Label = str | int


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """What a learner is built from: two of equal configurations learn the same from the same samples.

    Parameters
    ----------
    method : Method or str
        What is learnt and how, such as `clib()`; a name means the method with the hyper-parameters of CIFAR-10.
    image : tuple of int
        Shape of the images: channels, height, width.
    classes : int or sequence of labels
        Rows of the head, or the labels that may come, all different.
    memory : int
        The budget K of samples that may be kept.
    network : str, callable or nn.Module
        A name (`convnet`, `mlp`, `resnet18`, `resnet34` or a registered one), with options or without
        (`resnet18:stem=cifar`); a factory from `image` to a body; or a body, which is copied. `frozen:NAME` is NAME
        with freeze="body".
    initialise : {"redraw", "keep"}, optional
        Whether the body's weights are drawn by the package's rules or stay as they are made. Default: "redraw" for the
        built-in networks, "keep" for a user's.
    freeze : str, default "none"
        "body", or names of its submodules and parameters, separated by commas, that are not trained. With a frozen
        body, the features of each sample are computed once and stored in the memory instead of its pixels.
    augment : Transform or tuple of Transform, optional
        Transforms of training images, in this order; () is none. Default: images are cropped at random by up to an
        eighth of their side and not mirrored; none if features are stored.
    mean, std : sequence of float, optional
        One number per channel, of pixels in [0, 1]; default 0.5 and 0.25.
    seed : int
        Decides all random numbers.
    boundaries : bool
        False: `end_task` will never be called, so a method that needs it is refused.
    device : str, optional
        "cpu", "cuda" or one of several GPUs, as "cuda:1". Default: the CPU.
    precision : {"float32", "bfloat16"}, optional
        Precision of convolutions and matrix products. Default: float32 on the CPU, bfloat16 on a GPU.

    >>> config = LearnerConfig(method="er", image=(1, 8, 8), classes=["cat", "dog"], network="mlp")
    >>> LearnerConfig.from_json(config.to_json()) == config
    True
    """

    method: Method
    image: Image
    classes: int | Sequence[Label] = 100
    memory: int = 500
    network: AnyNetwork = "convnet"
    initialise: Initialise | None = None
    freeze: str = "none"
    augment: Transforms | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    seed: int = 1
    boundaries: bool = True
    device: str | None = None
    precision: Precision | None = None

    def __post_init__(self) -> None:
        network, freeze = split_frozen(self.network, self.freeze)
        image = image_shape("image", self.image)
        augment = self.augment
        if augment is None:
            augment = () if freeze == "body" else Augment(pad=min(4, min(image[1:]) // 8), flip=False)
        checked = {
            "method": method_named(self.method),
            "image": image,
            "classes": _classes(self.classes),
            "memory": whole_number("memory", self.memory, 1),
            "network": network_key(network) if isinstance(network, str) else network,  # with the hash of a user's code
            "freeze": freeze,
            "augment": as_field(check_transforms(augment)),
            "mean": _per_channel("mean", self.mean, 0.5, image[0]),
            "std": _per_channel("std", self.std, 0.25, image[0]),
            "seed": whole_number("seed", self.seed, 0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        check_type("device", self.device, str | None)
        check_type("precision", self.precision, str | None)
        _check_boundaries(self.method, self.boundaries)
        self.method.check_budget(self.memory)

    @property
    def rows(self) -> int:
        """Rows of the head."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def labels(self) -> Sequence[Label] | None:
        """The labels that may come; None where any may."""
        return None if isinstance(self.classes, int) else self.classes

    def build_context(self, engine: Eager, *, capacity: int | None = None) -> Context:
        """Network, memory and pipeline of a new learner, and what else its parts share.

        Where freeze is "body", the network is a head on stored features and `frozen` has the body that computes them.

        Parameters
        ----------
        engine : Eager
            What steps run on.
        capacity : int, optional
            Rows of the memory, for predictions alone; default: what the method keeps of the budget.
        """
        from iblurry.augment.pipeline import FeaturePipeline, Pipeline
        from iblurry.network.bodies import StoredFeatures
        from iblurry.network.build import build
        from iblurry.network.network import Network
        from iblurry.parts.context import Context
        from iblurry.parts.memory import Memory
        from iblurry.rng import Rng

        method, on, rng = self.method, engine.device, Rng(self.seed)
        built = build(self.network, self.image, self.rows, rng=rng, initialise=self.initialise, freeze=self.freeze)
        if method.refit is not None:
            built.keep_initial()
        statistics: Any = getattr(built.body, "normalization", (self.mean, self.std))  # of one trained elsewhere
        transforms = check_transforms(self.augment)
        pixels = Pipeline(transforms, shape=self.image, mean=statistics[0], std=statistics[1], device=on)
        trained, pipeline = built, pixels
        if self.freeze == "body":
            if transforms:
                raise InputError(
                    f"augment={self.augment!r} cannot be used with freeze='body', where features are computed once "
                    "and stored; leave it out, or give the names of the body's layers as `freeze`."
                )
            trained, pipeline = Network(StoredFeatures(built.features), self.rows), FeaturePipeline(built.features, on)
            trained.meter = built.meter
        rows = method.capacity(self.memory) if capacity is None else capacity
        network = engine.setup(trained).eval().train_head(method.head.train)
        _check_trained(method, network, self.freeze)
        memory = Memory(rows, pipeline.shape, on)
        context = Context(
            network=network,
            memory=memory,
            pipeline=pipeline,
            spent=network.meter.counter,
            rng=rng,
            engine=engine,
            budget=self.memory - method.pace.samples_outside_memory,
        )
        if self.freeze != "body":
            return context
        body = engine.setup(built).eval()
        frozen = Context(network=body, memory=memory, pipeline=pixels, rng=rng, engine=engine, budget=0)
        return dataclasses.replace(context, frozen=frozen)

    def to_json(self) -> dict[str, Any]:
        """The fields as data; a user's code is written `name@hash`."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return values | {
            "method": self.method.to_json(),
            "image": list(self.image),
            "network": network_key(self.network),
            "augment": [transform.to_json() for transform in check_transforms(self.augment)],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], **changes: Any) -> Self:
        """What `to_json` described, with these fields instead of its own."""
        read = {
            "method": Method.from_json(data["method"]),
            "augment": tuple(Transform.from_json(one) for one in data["augment"]),
        }
        return cls(**{**data, **read, **changes})


def plain_label(label: Any) -> Label:
    """A label as Python's own type; True and False are refused, since they equal 1 and 0."""
    is_scalar = isinstance(label, np.generic) or (isinstance(label, Tensor) and label.numel() == 1)
    plain: Any = label.item() if is_scalar else label
    if isinstance(plain, bool) or not isinstance(plain, str | int):
        raise InputError(f"The label {label!r} is neither a string nor a whole number.")
    return plain


def image_shape(name: str, given: Any) -> Image:
    """The shape of images, given as a parameter of this name."""
    try:
        channels, height, width = (whole_number(name, size, 1) for size in given)
    except (TypeError, ValueError) as error:  # InputError is a ValueError
        raise InputError(
            f"{name}={given!r} is not an image shape; give (channels, height, width), such as (3, 32, 32)."
        ) from error
    return channels, height, width


def _classes(classes: Any) -> int | list[Label]:
    """The rows of the head, or the labels that may come."""
    if isinstance(classes, Integral):
        return whole_number("classes", classes, 1)
    try:
        labels = [plain_label(label) for label in classes] if not isinstance(classes, str) else []
    except TypeError:
        labels = []
    if not labels:
        raise InputError(f"classes={classes!r}: give a number of classes, or a sequence of at least one label.")
    if len(set(labels)) < len(labels):
        twice = next(label for place, label in enumerate(labels) if label in labels[:place])
        raise InputError(f"classes names {twice!r} more than once; name each once.")
    return labels


def _per_channel(name: str, values: Any, default: float, channels: int) -> tuple[float, ...]:
    try:
        found = tuple(map(float, [default] * channels if values is None else values))
    except (TypeError, ValueError):
        found = ()
    is_positive = name != "std" or all(value > 0 for value in found)
    if len(found) != channels or not all(map(math.isfinite, found)) or not is_positive:
        above = " above 0" if name == "std" else ""
        raise InputError(f"{name}={values!r} is not valid; give {channels} finite numbers{above}, one per channel.")
    return found


def _check_boundaries(method: Method, boundaries: Any) -> None:
    """InputError where nobody will say when a task ends, and the method must be told."""
    check_type("boundaries", boundaries, bool)
    if not boundaries and not method.task_free:
        parts = ", ".join(type(part).__name__ for _, part in method.parts() if part.needs_boundaries)
        raise InputError(
            f"{method.name} needs the ends of tasks ({parts}), and this stream has no task boundaries; "
            "use a stream of two or more tasks, such as IBlurry, or a task-free method, such as er or clib."
        )


def _check_trained(method: Method, network: Network, freeze: str) -> None:
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

"""The learner: observes one labelled sample at a time, trains, answers at any moment. The only training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.augment import Augment
from iblurry.augment.pipeline import Pipeline
from iblurry.augment.transform import Transforms
from iblurry.compute import ComputeCounter
from iblurry.engine.eager import Eager
from iblurry.errors import DivergedError, InputError, UnknownLabelError, check_type, whole_number
from iblurry.memory import Batch, Memory, Sample
from iblurry.method import Method
from iblurry.network.build import Initialise, build, fresh_bias, fresh_row, fresh_weight
from iblurry.network.registry import AnyNetwork
from iblurry.parts.context import Context
from iblurry.refitter import Refitter
from iblurry.rng import Rng
from iblurry.trainer import Trainer

Label = str | int
Images = Tensor | NDArray[np.uint8]


class Learner:
    """One network, one memory, one method; final. What differs between methods are the parts.

    Parameters
    ----------
    method : Method
        What is learnt and how, such as `clib()`.
    image : tuple of int
        Shape of the images: channels, height, width.
    classes : int or sequence of labels
        Rows of the head, or the labels that may come, all different.
    memory : int
        The budget K of samples that may be kept.
    network : str, callable or nn.Module
        A name (`convnet`, `mlp`, `resnet18`, `resnet34` or a registered one), with options or without
        (`resnet18:stem=cifar`); a factory from `image` to a body; or a body, which is copied.
    initialise : {"redraw", "keep"}, optional
        Whether the body's weights are drawn by the package's rules or stay as they are made. Default: "redraw" for the
        built-in networks, "keep" for a user's.
    freeze : str, default "none"
        "body", or names of its submodules and parameters, separated by commas, that are not trained.
    augment : Transform or tuple of Transform, optional
        What training images undergo, in this order; () is nothing. Default: images are cropped at random by up to an
        eighth of their side and not mirrored.
    mean, std : sequence of float, optional
        One number per channel, of pixels in [0, 1]; default 0.5 and 0.25.
    seed : int
        Decides all random numbers.
    boundaries : bool
        False says that nobody will call `end_task`, so a method that needs it is refused.
    engine : Eager, optional
        Device and precision; default: the CPU in float32.

    >>> from iblurry.methods.er import er
    >>> learner = Learner(er(), image=(1, 8, 8), classes=["cat", "dog"], memory=20, network="mlp")
    >>> learner.observe(np.zeros((1, 8, 8), dtype=np.uint8), "cat")
    >>> learner.predict(np.zeros((2, 1, 8, 8), dtype=np.uint8))
    ['cat', 'cat']
    """

    def __init__(
        self,
        method: Method,
        *,
        image: tuple[int, int, int],
        classes: int | Sequence[Label] = 100,
        memory: int = 500,
        network: AnyNetwork = "convnet",
        initialise: Initialise | None = None,
        freeze: str = "none",
        augment: Transforms | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        seed: int = 1,
        boundaries: bool = True,
        engine: Eager | None = None,
    ) -> None:
        if not isinstance(method, Method):
            raise InputError(f"method={method!r} is no Method; give one, such as iblurry.METHODS['er']().")
        image, memory, seed = _image_shape(image), whole_number("memory", memory, 1), whole_number("seed", seed, 0)
        check_type("engine", engine, Eager | None)
        check_type("boundaries", boundaries, bool)
        self.announced, rows = _announced(classes)
        if not boundaries and not method.task_free:
            parts = ", ".join(type(part).__name__ for _, part in method.parts() if part.needs_boundaries)
            raise InputError(
                f"{method.name} must be told where tasks end ({parts}), and this stream has no task boundaries; "
                "give it at least two tasks, or use a task-free method such as er or clib."
            )
        method.check_budget(memory)
        self.engine = engine or Eager()
        device, rng = self.engine.device, Rng(seed)
        self.image = image
        self.on_refit: Callable[[int, int], None] = lambda done, total: None  # called after each update of a refit
        self.refitter = Refitter(method.refit, on_progress=lambda *progress: self.on_refit(*progress))
        built = build(network, image, rows, rng=rng, initialise=initialise, freeze=freeze)
        if method.refit is not None:
            built.keep_initial()
        self.context = Context(
            network=self.engine.setup(built).eval(),
            memory=Memory(method.capacity(memory), image, device),
            pipeline=Pipeline(
                Augment(pad=min(4, min(image[1:]) // 8), flip=False) if augment is None else augment,
                shape=image,
                mean=_per_channel("mean", mean, 0.5, image[0]),
                std=_per_channel("std", std, 0.25, image[0]),
                device=device,
            ),
            rng=rng,
            budget=memory - method.pace.samples_outside_memory,
            engine=self.engine,
            refit=self.refitter,
        )
        self.context.network.meter.counter = self.context.spent
        self.method = method.attach(self.context)
        self.parts = dict(self.method.parts())
        pace = method.pace
        streamed = pace.stream_batch if pace.train_stream else 0
        self.trainer = Trainer(self.method, self.context, streamed=streamed, measure_every=pace.measure_every)
        self.refitter.online = self.trainer
        self.stream_batch: list[Sample] = []  # samples of the round to come
        self.credit = 0  # updates owed, in units of 1 / denominator of updates_per_sample
        self._prepared: tuple[int, int, int] | None = None  # samples, updates and tasks of the last `prepare`
        self._head_rows = torch.arange(rows, device=device)

    # ------------------------------------------------------------------------------------------------ learning

    def observe(self, image: Images, label: Label) -> None:
        """Learns from one labelled sample: opens a head row for a new class, and takes the updates that are due.

        Parameters
        ----------
        image : array or tensor
            uint8, (C, H, W); copied.
        label : str or int
            A new one is welcome at any time while the head has rows.
        """
        self.method.readout.finish_pending()
        sample = self._sample(image, label)
        self.context.counters.seen += 1
        self.credit += self.method.pace.updates_per_sample.numerator
        if self.method.readout.takes(sample):
            return
        self.stream_batch.append(sample)
        if self.method.pace.store_when == "before":
            self._store(sample)
        if len(self.stream_batch) == self.method.pace.stream_batch:
            self._round()

    def end_task(self) -> None:
        """A task ended: tells the parts."""
        self.context.counters.tasks += 1
        for part in self.parts.values():
            part.on_boundary()
        self.method.readout.finish_pending()

    def _sample(self, image: Images, label: Label) -> Sample:
        pixels = self._pixels(image, self.image, "observe").clone()  # the caller may use the same array again
        name = _plain_label(label)
        row = self.context.network.row_of(name)
        if row is None:
            row = self._meet(name)
        return Sample(pixels[None], self._head_rows[row : row + 1], row)

    def _meet(self, label: Label) -> int:
        """A class never seen before: parts hear of it, then its head row opens in place."""
        if self.announced is not None and label not in self.announced:
            names = ", ".join(sorted(map(repr, self.announced)))
            raise UnknownLabelError(
                f"The label {label!r} was never announced. Announced: {names}. Add it to `classes`."
            )
        net, rng = self.context.network, self.context.rng
        row = net.known
        if row < net.rows:  # a full head refuses in expose(), and nothing has changed then
            for part in self.parts.values():
                part.on_class(row)
        head = self.method.head
        weight, bias = fresh_row(rng, row, net.features)
        if head.redraw != "own":
            bias = fresh_bias(rng, row, net.rows, net.features)
        if head.redraw == "all":
            weight = fresh_weight(rng, row, net.rows, net.features)
        net.expose(label, weight, bias)
        for shared in self.context.shared.values():
            shared.on_row_opened()
        if head.moments == "forget":
            self.trainer.forget_head()
        elif head.moments == "rebuild":
            self.trainer.forget()
        return row

    def _store(self, sample: Sample) -> None:
        self.context.memory.offered += 1
        self.method.admission.on_offered(sample)
        self.method.admission.admit(sample)

    def _round(self) -> None:
        """Takes the updates owed, on the stream batch and the memory; then the next stream batch begins."""
        pace = self.method.pace
        samples, self.stream_batch = self.stream_batch, []
        stream = self._together(samples if pace.train_stream else [])
        updates, self.credit = divmod(self.credit, pace.updates_per_sample.denominator)
        for left in range(updates - 1, -1, -1):
            self.trainer.update(stream, last_of_round=left == 0)
        if pace.store_when == "after":
            for sample in samples:
                self._store(sample)

    # ------------------------------------------------------------------------------------------------ answering

    def logits(self, images: Images) -> Tensor:
        """The answer to plain images (uint8, (B, C, H, W)), one column per head row; learning is not touched."""
        if not self.context.network.known:
            raise InputError("Nothing was learnt yet, so there is nothing to answer; observe a sample first.")
        pixels = self._pixels(images, (-1, *self.image), "predict")
        self.method.readout.finish_pending()
        context, queries, meter = self.context, self.context.queries, self.context.network.meter
        moment = (context.seen, context.updates, context.tasks)
        if moment != self._prepared:
            is_first = queries.first_time("prepare", moment)  # else repeated after a resume, and counted before
            with meter.counting("queries", into=queries if is_first else ComputeCounter()):
                self.method.readout.prepare()
            self._prepared = moment
        with meter.counting("queries", into=queries):
            return self.method.readout.logits(pixels)

    def probabilities(self, images: Images) -> Tensor:
        """(B, classes met so far), in the order of `labels`."""
        return self.logits(images)[:, : self.context.network.known].softmax(1)

    def predict(self, images: Images) -> list[Label]:
        """The most likely label of each image."""
        return [self.labels[row] for row in self.logits(images).argmax(1).tolist()]

    @property
    def labels(self) -> list[Label]:
        """The classes met so far, in the order they came."""
        return self.context.network.labels

    def check(self) -> None:
        """Raises DivergedError where the loss is no number any more; it never becomes one again."""
        for trainer, what, place in ((self.trainer, "", ""), (self.refitter.trainer, " of a refit", "refit.")):
            if trainer is not None and not trainer.loss.isfinite():
                loss, lr = float(trainer.loss), trainer.training.schedule.lr
                raise DivergedError(
                    f"The loss is {loss} after {trainer.context.updates} updates{what}, at sample {self.context.seen}; "
                    f"a lower learning rate ({place}schedule.initial_lr, now {lr:.3g}) usually helps."
                )

    # ------------------------------------------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resume needs, by reference: save or copy it before the next sample."""
        pixels = self._together(self.stream_batch)
        return {
            "network": dict(self.context.network.state_dict()),
            "labels": list(self.labels),
            "optimizer": self.trainer.optimizer_state(),
            "memory": self.context.memory.state_dict(),
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
            "shared": {name: shared.state_dict() for name, shared in self.context.shared.items()},
            "stream batch": {"images": pixels.images, "labels": pixels.labels},
            "refit": self.refitter.state_dict(),
            "counters": {
                "seen": self.context.seen,
                "updates": self.context.updates,
                "credit": self.credit,
                "tasks": self.context.tasks,
                "spent": self.context.spent.state_dict(),
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from where `state_dict` was taken, bit for bit."""
        self.context.network.load_state_dict(state["network"])
        self.context.network.labels[:] = state["labels"]
        self.trainer.load_optimizer_state(state["optimizer"])
        self.context.memory.load_state_dict(state["memory"])
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        for name, shared in self.context.shared.items():
            shared.load_state_dict(state["shared"][name])
        images, labels = state["stream batch"]["images"], state["stream batch"]["labels"]
        to_device = self.engine.to_device
        self.stream_batch = [
            Sample(to_device(i[None]), to_device(n[None]), int(n)) for i, n in zip(images, labels, strict=True)
        ]
        saved, counters = state["counters"], self.context.counters
        counters.seen, counters.updates, counters.tasks = saved["seen"], saved["updates"], saved["tasks"]
        self.context.spent.load_state_dict(saved["spent"])
        self.credit, self._prepared = saved["credit"], None
        self.refitter.load_state_dict(state["refit"])

    # ------------------------------------------------------------------------------------------------ checking

    def _together(self, samples: list[Sample]) -> Batch:
        if not samples:
            return Batch(self.context.memory.images[:0], self.context.memory.labels[:0])
        return Batch(torch.cat([s.images for s in samples]), torch.cat([s.labels for s in samples]))

    def _pixels(self, images: Images, shape: tuple[int, ...], verb: str) -> Tensor:
        try:
            pixels = images if isinstance(images, Tensor) else np.asarray(images)
        except ValueError as error:  # lists of different lengths
            raise InputError(f"{verb} takes uint8 pixels as an array or a tensor ({error}).") from error
        fits = len(pixels.shape) == len(shape) and all(
            want in (-1, have) for want, have in zip(shape, pixels.shape, strict=True)
        )
        if not fits or pixels.dtype not in (torch.uint8, np.uint8):
            want = str(shape).replace("-1", "any")
            raise InputError(f"{verb} takes uint8 pixels of shape {want}, not {pixels.dtype} {tuple(pixels.shape)}.")
        if not isinstance(pixels, Tensor):  # torch shares only arrays that may be written to
            pixels = torch.from_numpy(pixels if pixels.flags.writeable and pixels.flags.c_contiguous else pixels.copy())
        return self.engine.to_device(pixels)


def _image_shape(image: Any) -> tuple[int, int, int]:
    try:
        channels, height, width = (whole_number("image", size, 1) for size in image)
    except (TypeError, ValueError) as error:  # InputError is a ValueError
        raise InputError(
            f"image={image!r} is no shape; give (channels, height, width), such as (3, 32, 32)."
        ) from error
    return channels, height, width


def _announced(classes: Any) -> tuple[frozenset[Label] | None, int]:
    """The labels that may come, if they were given, and the rows of the head."""
    if isinstance(classes, Integral):
        return None, whole_number("classes", classes, 1)
    try:
        labels = [_plain_label(label) for label in classes] if not isinstance(classes, str) else []
    except TypeError:
        labels = []
    if not labels:
        raise InputError(f"classes={classes!r}: give a number of classes, or a sequence of at least one label.")
    if len(set(labels)) < len(labels):
        twice = next(label for place, label in enumerate(labels) if label in labels[:place])
        raise InputError(f"classes names {twice!r} more than once; name each once.")
    return frozenset(labels), len(labels)


def _plain_label(label: Any) -> Label:
    """A label as Python's own type; True and False are refused, since they equal 1 and 0."""
    is_scalar = isinstance(label, np.generic) or (isinstance(label, Tensor) and label.numel() == 1)
    plain: Any = label.item() if is_scalar else label
    if isinstance(plain, bool) or not isinstance(plain, str | int):
        raise InputError(f"The label {label!r} is neither a string nor a whole number.")
    return plain


def _per_channel(name: str, values: Any, default: float, channels: int) -> tuple[float, ...]:
    try:
        found = tuple(map(float, [default] * channels if values is None else values))
    except (TypeError, ValueError):
        found = ()
    is_positive = name != "std" or all(value > 0 for value in found)
    if len(found) != channels or not all(map(math.isfinite, found)) or not is_positive:
        above = " above 0" if name == "std" else ""
        raise InputError(f"{name}={values!r} does not fit; give {channels} finite numbers{above}, one per channel.")
    return found

"""The learner: observes one labelled sample at a time, trains, answers at any moment. The only training loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from iblurry import learner_file, learner_state
from iblurry.augment import Augment
from iblurry.augment.transform import Transforms
from iblurry.compute import ComputeCounter
from iblurry.engine.eager import Eager, Precision
from iblurry.errors import DivergedError, InputError, UnknownLabelError, whole_number
from iblurry.export import export
from iblurry.learner_arguments import (
    Images,
    Label,
    announced,
    as_engine,
    as_method,
    as_pixels,
    check_boundaries,
    check_trained,
    image_shape,
    per_channel,
    plain_label,
)
from iblurry.learner_context import make_context
from iblurry.memory import REMOVED, Batch, Encoded, Sample
from iblurry.method import Method
from iblurry.network.build import Initialise, fresh_bias, fresh_row, fresh_weight
from iblurry.network.registry import AnyNetwork, network_key, split_frozen
from iblurry.parts.part import Part
from iblurry.refitter import Refitter
from iblurry.rng import Rng
from iblurry.trainer import Trainer


class Learner:
    """One network, one memory, one method; final. What differs between methods are the parts.

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
        "body", or names of its submodules and parameters, separated by commas, that are not trained. Of a frozen body
        the features of each sample are computed once and stored in the memory in place of its pixels.
    augment : Transform or tuple of Transform, optional
        What training images undergo, in this order; () is nothing. Default: images are cropped at random by up to an
        eighth of their side and not mirrored; nothing where features are stored.
    mean, std : sequence of float, optional
        One number per channel, of pixels in [0, 1]; default 0.5 and 0.25.
    seed : int
        Decides all random numbers.
    boundaries : bool
        False says that nobody will call `end_task`, so a method that needs it is refused.
    device : str, optional
        "cpu", "cuda" or one of several GPUs, as "cuda:1". Default: the CPU.
    precision : {"float32", "bfloat16"}, optional
        Of convolutions and products. Default: float32 on the CPU, bfloat16 on a GPU.
    engine : Eager, optional
        Instead of device and precision, what steps run on.

    >>> import numpy as np
    >>> learner = Learner("er", image=(1, 8, 8), classes=["cat", "dog"], memory=20, network="mlp")
    >>> learner.observe(np.zeros((1, 8, 8), dtype=np.uint8), "cat")
    >>> learner.predict(np.zeros((2, 1, 8, 8), dtype=np.uint8))
    ['cat', 'cat']
    """

    def __init__(
        self,
        method: Method | str,
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
        device: str | None = None,
        precision: Precision | None = None,
        engine: Eager | None = None,
    ) -> None:
        method = as_method(method)
        network, freeze = split_frozen(network, freeze)
        network = network_key(network) if isinstance(network, str) else network  # with the hash of a user's code
        image, memory, seed = image_shape(image), whole_number("memory", memory, 1), whole_number("seed", seed, 0)
        check_boundaries(method, boundaries)
        labels, rows = announced(classes)
        self.announced = frozenset(labels) if labels else None
        method.check_budget(memory)
        self.engine = as_engine(engine, device, precision)
        on, rng, self.image = self.engine.device, Rng(seed), image
        self.mean, self.std = per_channel("mean", mean, 0.5, image[0]), per_channel("std", std, 0.25, image[0])
        if augment is None:
            augment = () if freeze == "body" else Augment(pad=min(4, min(image[1:]) // 8), flip=False)
        built_from: dict[str, Any] = {
            "image": image,
            "network": network,
            "initialise": initialise,
            "freeze": freeze,
            "augment": augment,
            "mean": self.mean,
            "std": self.std,
        }
        self.arguments = built_from | {  # a new learner with these is what this one was at the start
            "method": method,
            "classes": labels or rows,
            "memory": memory,
            "seed": seed,
            "boundaries": boundaries,
            "device": str(on),
            "precision": self.engine.precision,
        }
        self.on_refit: Callable[[int, int], None] = lambda done, total: None  # called after each update of a refit
        self.refitter = Refitter(method.refit, on_progress=lambda *progress: self.on_refit(*progress))
        self.context = make_context(
            **built_from,
            rows=rows,
            capacity=method.capacity(memory),
            rng=rng,
            engine=self.engine,
            refits=method.refit is not None,
            budget=memory - method.pace.samples_outside_memory,
            refit=self.refitter,
        )
        self.context.network.train_head(method.head.train)
        check_trained(method, self.context.network, freeze)
        self.context.network.meter.counter = self.context.spent
        self.method = method.attach(self.context)
        self.parts = dict(self.method.parts())
        others = [part for name, part in self.parts.items() if name != "admission"]  # which hears of it by itself
        self._on_stored = [part.on_stored for part in others if type(part).on_stored is not Part.on_stored]
        pace = method.pace
        streamed = pace.stream_batch if pace.train_stream else 0
        self.trainer = Trainer(self.method, self.context, streamed=streamed, measure_every=pace.measure_every)
        self.refitter.online = self.trainer
        self.stream_batch: list[Sample] = []  # samples of the round to come
        self.credit = 0  # updates owed, in units of 1 / denominator of updates_per_sample
        self.prepared_at: tuple[int, int, int] | None = None  # samples, updates and tasks of the last `prepare`
        self._head_rows = torch.arange(rows, device=on)

    # ------------------------------------------------------------------------------------------------ learning

    def encode(self, images: Images) -> Encoded:
        """Images (uint8, (B, C, H, W)) as they are stored: a frozen body computes once what is asked and learnt."""
        return Encoded(self.context.encode(self._pixels(images)))

    def observe(self, image: Images | Encoded, label: Label) -> None:
        """Learns from one labelled sample: opens a head row for a new class, and takes the updates that are due.

        Parameters
        ----------
        image : array or tensor
            uint8, (C, H, W); copied. Or what `encode` made of one image.
        label : str or int
            A new one is welcome at any time while the head has rows.
        """
        self.method.readout.finish_pending()
        sample = self._sample(image, label)
        self.context.counters.seen += 1
        self.credit += self.method.pace.updates_of(self.context.seen)
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

    def _sample(self, image: Images | Encoded, label: Label) -> Sample:
        if isinstance(image, Encoded):
            stored = image.values
        else:
            given = as_pixels(image, self.image, "observe")
            pixels = self.engine.to_device(given)[None]
            stored = self.context.encode(pixels).clone()  # the caller may use the same array again
        name = plain_label(label)
        row = self.context.network.row_of(name)
        if row is None:
            row = self.meet(name)
        return Sample(stored, self._head_rows[row : row + 1], row)

    def meet(self, label: Label) -> int:
        """A class that is not known: parts hear of it, then its head row opens in place; that row."""
        if self.announced is not None and label not in self.announced:
            names = ", ".join(sorted(map(repr, self.announced)))
            raise UnknownLabelError(
                f"The label {label!r} was never announced. Announced: {names}. Add it to `classes`."
            )
        net, rng = self.context.network, self.context.rng
        row = net.next_row
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
            shared.on_rows_changed()
        if head.moments == "forget":
            self.trainer.forget_head()
        elif head.moments == "rebuild":
            self.trainer.forget()
        return row

    def _store(self, sample: Sample) -> None:
        if sample.label == REMOVED:
            self.context.memory.clock += 1  # which numbers samples
            return
        self.context.memory.offered += 1
        self.method.admission.on_offered(sample)
        row = self.method.admission.admit(sample)
        for on_stored in self._on_stored:
            on_stored(row, sample)

    def _round(self) -> None:
        """Takes the updates owed, on the stream batch and the memory; then the next stream batch begins."""
        pace = self.method.pace
        samples, self.stream_batch = self.stream_batch, []
        stream = self._together([s for s in samples if s.label != REMOVED] if pace.train_stream else [])
        updates, self.credit = divmod(self.credit, pace.updates_per_sample.denominator)
        if all(s.label == REMOVED for s in samples) and not self.method.rehearsal.joins(self.context.memory.size):
            updates = 0  # nothing is left to train on
        for left in range(updates - 1, -1, -1):
            self.trainer.update(stream, last_of_round=left == 0)
        if pace.store_when == "after":
            for sample in samples:
                self._store(sample)

    # ------------------------------------------------------------------------------------------------ answering

    def logits(self, images: Images | Encoded, *, prepare: bool = True) -> Tensor:
        """The answer to plain images (uint8, (B, C, H, W)), one column per head row; learning is not touched.

        Without `prepare` a readout answers as it was prepared last, and must have been.
        """
        given = images if isinstance(images, Encoded) else self._pixels(images)
        if prepare:
            self.prepare()
        context = self.context
        with context.network.meter.counting("queries", into=context.queries):
            stored = given.values if isinstance(given, Encoded) else context.encode(given)
            return self.method.readout.logits(stored)

    def _pixels(self, images: Images) -> Tensor:
        return self.engine.to_device(as_pixels(images, (-1, *self.image), "predict"))

    def prepare(self) -> None:
        """Has the readout do what answers need, once at each moment of the stream; `logits` calls it."""
        if self.context.network.open_rows == 0:
            raise InputError("Nothing was learnt yet, so there is nothing to answer; observe a sample first.")
        self.method.readout.finish_pending()
        context, queries, meter = self.context, self.context.queries, self.context.network.meter
        moment = (context.seen, context.updates, context.tasks)
        if moment != self.prepared_at:
            is_first = queries.first_time("prepare", moment)  # else repeated after a resume, and counted before
            with meter.counting("queries", into=queries if is_first else ComputeCounter()):
                self.method.readout.prepare()
            self.prepared_at = moment

    def snapshot(self) -> list[Tensor]:
        """Copies, on the CPU, of what answers now: `load_snapshot` of a readout of the same settings takes them over.

        What was prepared before stays prepared: `logits(prepare=False)` answers as if this had not been called.
        """
        return learner_state.snapshot(self)

    def probabilities(self, images: Images) -> Tensor:
        """(B, classes met so far), in the order of `labels`."""
        return self.logits(images)[:, : self.context.network.known].softmax(1)

    def predict(self, images: Images) -> list[Label]:
        """The most likely label of each image."""
        return [self.labels[row] for row in self.logits(images).argmax(1).tolist()]

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes the network that answers now to a file that needs no iblurry: pixels in, logits out, on a CPU.

        Normalisation, the readout's correction and the class names are inside; a call takes up to 65,535 images.

        Parameters
        ----------
        path : path
            NAME.pt2 for torch.export, read by `iblurry.load_exported` or torch.export.load; or NAME.onnx.
        """
        export(self, path)

    @property
    def labels(self) -> list[Any]:
        """The classes (str or int) met so far, in the order they came; None where one was deleted."""
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
        return learner_state.take(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from where `state_dict` was taken, bit for bit."""
        learner_state.restore(self, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything to one file, from which `load` makes a learner that goes on bit for bit.

        Parameters
        ----------
        path : path
            Usually NAME.safetensors; an interrupted write leaves what was there.
        """
        body = None if self.context.frozen is None else dict(self.context.frozen.network.body.state_dict())
        initial = self.context.network.initial
        learner_file.write(path, self.arguments, self.state_dict(), initial=initial, frozen=body)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        network: AnyNetwork | None = None,
        classes: int | None = None,
        device: str | None = None,
        precision: Precision | None = None,
    ) -> Self:
        """The learner that was saved; CheckpointError if the file is damaged or something else.

        Parameters
        ----------
        path : path
            What `save` wrote; or the folder of a run or of a live service, whose newest intact checkpoint is read. The
            run or service may be at work meanwhile, and is not changed by what this learner does.
        network : callable or nn.Module, optional
            Again the object that the learner was given, in another process; its weights come from the file.
        classes : int, optional
            Rows of the head, no fewer than it had; labels need not be among those announced any more.
        device, precision : str, optional
            Default: what the learner had.
        """
        given = {"network": network, "classes": classes, "device": device, "precision": precision}
        arguments, saved = learner_file.read(path, **given)
        learner = cls(**arguments)
        with learner_file.fitting(path):
            learner.load_state_dict(learner_file.fitted(saved["state"], learner, path))
            learner.context.network.load_initial(saved["initial"])
            if learner.context.frozen is not None and saved["frozen"] is not None:
                learner.context.frozen.network.body.load_state_dict(saved["frozen"])
        return learner

    # ------------------------------------------------------------------------------------------------ checking

    def _together(self, samples: list[Sample]) -> Batch:
        if not samples:
            return Batch(self.context.memory.images[:0], self.context.memory.labels[:0])
        return Batch(torch.cat([s.images for s in samples]), torch.cat([s.labels for s in samples]))

"""The learner: observes one labelled sample at a time, trains, answers at any moment. The only training loop."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from iblurry.augment import Augment
from iblurry.augment.transform import Transforms
from iblurry.compute import ComputeCounter
from iblurry.engine.eager import Eager, Precision
from iblurry.engine.threads import default_threads, torch_threads
from iblurry.errors import DivergedError, InputError, UnknownLabelError, counted, whole_number
from iblurry.learner import file as learner_file
from iblurry.learner import state as learner_state
from iblurry.learner.arguments import (
    Images,
    Label,
    announced,
    as_engine,
    as_labels,
    as_method,
    as_pixels,
    check_boundaries,
    check_trained,
    image_shape,
    per_channel,
)
from iblurry.learner.context import make_context
from iblurry.learner.export import export
from iblurry.learner.refitter import Refitter
from iblurry.learner.trainer import Trainer
from iblurry.methods.method import Method
from iblurry.network.build import fresh_bias, fresh_row, fresh_weight
from iblurry.network.registry import AnyNetwork, Initialise, network_key, split_frozen
from iblurry.parts.memory import REMOVED, Batch, Encoded, Sample
from iblurry.parts.part import Part
from iblurry.rng import Rng
from iblurry.storage.untrusted import named


class Observed(NamedTuple):
    """What a learner did with the samples that `observe` was given."""

    samples: int
    updates: int  # optimizer steps taken; others may be owed until a stream batch is full
    new_classes: list[Label]
    loss: Tensor | None  # of the last of these updates, before it; None where there was none
    lr: float  # of the last update


class Learner:
    """One network, one memory and one method. Methods differ only in their parts.

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
    threads : int, optional
        Torch threads while it learns or answers; another number changes the last digits. Default: 1 for "convnet" and
        "mlp" on the CPU; torch's number for others and if you set one (torch.set_num_threads, OMP_NUM_THREADS).
    engine : Eager, optional
        Instead of device, precision and threads, what steps run on; torch's number of threads is left alone.

    >>> import numpy as np
    >>> learner = Learner("er", image=(1, 8, 8), classes=["cat", "dog"], memory=20, network="mlp")
    >>> learner.observe(np.zeros((1, 8, 8), dtype=np.uint8), "cat").new_classes
    ['cat']
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
        threads: int | None = None,
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
        self.threads = None if threads is None else whole_number("threads", threads, 1)
        self.engine = as_engine(engine, device, precision)
        self._chooses_threads = engine is None and self.engine.device.type == "cpu"
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
        self.trainer = Trainer(self.method, self.context, streamed=streamed, pace=pace)
        self.refitter.online = self.trainer
        self.stream_batch: list[Sample] = []  # samples of the round to come
        self.credit = 0  # updates owed, in units of 1 / denominator of updates_per_sample
        self.prepared_at: tuple[int, int, int] | None = None  # samples, updates and tasks of the last `prepare`
        self._head_rows = torch.arange(rows, device=on)

    def __repr__(self) -> str:
        given, context, memory = self.arguments, self.context, self.context.memory
        network = given["network"]
        shown = {name: given[name] for name in ("image", "classes", "memory", "network", "freeze", "seed", "device")}
        shown["network"] = network if isinstance(network, str) else type(network)
        arguments = ", ".join(f"{name}={reprlib.repr(value)}" for name, value in shown.items())
        seen, updates = counted(context.seen, "sample"), counted(context.updates, "update")
        known, stored = counted(context.network.open_rows, "class"), f"{memory.size} of {memory.capacity} rows stored"
        return f"Learner({given['method'].name!r}, {arguments}; {seen} seen, {updates}, {known}, {stored})"

    # ------------------------------------------------------------------------------------------------ learning

    def encode(self, images: Images) -> Encoded:
        """Images (B, C, H, W) as they are stored: pixels, or the features of a frozen body."""
        with self._threads():
            return Encoded(self.context.encode(self._pixels(images)))

    def observe(self, images: Images | Encoded, labels: Label | Sequence[Label] | Images) -> Observed:
        """Learns from one labelled sample, or from the samples of a batch one by one, as if each had come alone.

        A new class opens a row of the head; then the updates that are due are taken.

        Parameters
        ----------
        images : array or tensor
            One image (C, H, W) or a batch (B, C, H, W), copied: uint8, or floats from 0 to 1, which are rounded
            to 256 levels. Or the result of `encode`.
        labels : str or int, or a sequence, array or tensor of B of them
            A new label is allowed at any time while the head has free rows. A batch with a label that
            cannot be learnt is refused as a whole.

        Returns
        -------
        Observed
            `samples`, `updates`, `new_classes`, `loss` (a tensor, or None) and `lr`.
        """
        with self._threads():
            self.method.readout.finish_pending()
            encoded = isinstance(images, Encoded)
            given = images.values if isinstance(images, Encoded) else self._pixels(images, "observe", may_be_one=True)
            names = as_labels(
                labels, len(given), is_one=np.ndim(labels if encoded else images) == (0 if encoded else 3)
            )
            new, before = self._new_classes(names), self.context.updates
            for at, name in enumerate(names):
                one = given[at : at + 1]  # cloned, since the caller may use the same array again
                self._observe(self._sample(one if encoded else self.context.encode(one).clone(), name))
            updates = self.context.updates - before
            return Observed(len(names), updates, new, self.trainer.loss.clone() if updates else None, self.trainer.lr)

    def _new_classes(self, labels: Sequence[Label]) -> list[Label]:
        """Those without a row; UnknownLabelError if a batch has one that will not get any."""
        net = self.context.network
        new = [label for label in dict.fromkeys(labels) if net.row_of(label) is None]
        for label in new:
            if self.announced is not None and label not in self.announced:
                names = ", ".join(sorted(map(repr, self.announced)))
                raise UnknownLabelError(f"The label {label!r} is not in `classes` ({names}). Add it to `classes`.")
        if len(labels) > 1 and len(new) > net.rows - net.open_rows:  # one alone is refused when it comes
            raise UnknownLabelError(
                f"The batch has {counted(len(new), 'new label')}, {new!r:.80}, and {net.open_rows} of the head's "
                f"{net.rows} rows are taken; build the network with `classes` of at least {net.open_rows + len(new)}."
            )
        return new

    def _sample(self, stored: Tensor, label: Label) -> Sample:
        row = self.context.network.row_of(label)
        if row is None:
            row = self.meet(label)
        return Sample(stored, self._head_rows[row : row + 1], row)

    def _observe(self, sample: Sample) -> None:
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
        """Tell the parts that a task has ended."""
        with self._threads():
            self.context.counters.tasks += 1
            for part in self.parts.values():
                part.on_boundary()
            self.method.readout.finish_pending()

    def _threads(self) -> AbstractContextManager[None]:
        """Torch has this learner's threads meanwhile."""
        chosen = default_threads(self.arguments["network"]) if self._chooses_threads else None
        return torch_threads(self.threads or chosen)

    def meet(self, label: Label) -> int:
        """Add a new class: tell the parts, then open its head row in place; returns the row."""
        self._new_classes([label])
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
        """Logits of images (B, C, H, W), one column per head row; learning is not changed.

        With `prepare=False` a readout uses what it prepared last; it must have been prepared before.
        """
        given = images if isinstance(images, Encoded) else self._pixels(images)
        context = self.context
        with self._threads():
            if prepare:
                self.prepare()
            with context.network.meter.counting("queries", into=context.queries):
                stored = given.values if isinstance(given, Encoded) else context.encode(given)
                return self.method.readout.logits(stored)

    def _pixels(self, images: Images, verb: str = "predict", *, may_be_one: bool = False) -> Tensor:
        return self.engine.to_device(as_pixels(images, self.image, verb, may_be_one=may_be_one))

    def prepare(self) -> None:
        """Let the readout compute what predictions need, once at each moment of the stream; `logits` calls it."""
        if self.context.network.open_rows == 0:
            raise InputError("The learner has no classes yet; call observe with at least one sample first.")
        self.method.readout.finish_pending()
        context, queries, meter = self.context, self.context.queries, self.context.network.meter
        moment = (context.seen, context.updates, context.tasks)
        if moment != self.prepared_at:
            is_first = queries.first_time("prepare", moment)  # else repeated after a resume, and counted before
            with self._threads(), meter.counting("queries", into=queries if is_first else ComputeCounter()):
                self.method.readout.prepare()
            self.prepared_at = moment

    def snapshot(self) -> list[Tensor]:
        """Copies, on the CPU, of what predictions use now, for `load_snapshot` of a readout of the same settings.

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
        """DivergedError if the loss is NaN or infinite."""
        for trainer, what, place in ((self.trainer, "", ""), (self.refitter.trainer, " of a refit", "refit.")):
            if trainer is not None and not trainer.loss.isfinite():
                loss, lr = float(trainer.loss), trainer.training.schedule.lr
                raise DivergedError(
                    f"The loss is {loss} after {trainer.context.updates} updates{what}, at sample {self.context.seen}; "
                    f"a lower learning rate ({place}schedule.initial_lr, now {lr:.3g}) usually helps."
                )

    def check_weights(self) -> None:
        """DivergedError if a weight is NaN or infinite; the loss does not show it until the next update."""
        for name, values in self.context.network.state_dict().items():
            if not values.sum().isfinite() and not values.isfinite().all():  # a sum is quicker, and may overflow
                raise DivergedError(
                    f"The network ({name}) has NaN or infinite weights at sample {self.context.seen}; a lower learning "
                    f"rate (schedule.initial_lr, now {self.trainer.training.schedule.lr:.3g}) usually helps."
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
            In another process: the network object of the saved learner again; its weights come from the file.
        classes : int, optional
            Rows of the head, at least as many as before; labels outside its `classes` are then allowed, too.
        device, precision : str, optional
            Default: what the learner had.
        """
        given = {"network": network, "classes": classes, "device": device, "precision": precision}
        with named(path, remedy="It does not fit this network; give the one it had."):
            arguments, saved = learner_file.read(path, **given)
            learner = cls(**arguments)
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

"""The learner: observes one labelled sample at a time, trains, answers at any moment. The only training loop."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import reprlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.compute import ComputeCounter
from iblurry.engine.devices import make_engine
from iblurry.engine.eager import Eager, Precision
from iblurry.engine.threads import default_threads, torch_threads
from iblurry.errors import (
    CheckpointError,
    DataError,
    DivergedError,
    FolderError,
    InputError,
    UnknownLabelError,
    check_type,
    counted,
    whole_number,
)
from iblurry.learner.config import Label, LearnerConfig, plain_label
from iblurry.learner.export import export
from iblurry.learner.refits import Refitter
from iblurry.learner.trainer import Trainer
from iblurry.methods.method import Method
from iblurry.network.build import open_row
from iblurry.network.registry import AnyNetwork
from iblurry.parts.memory import REMOVED, Batch, Encoded, Sample
from iblurry.parts.part import Part
from iblurry.storage import checkpoint
from iblurry.storage.files import as_path, write_errors, write_file
from iblurry.storage.tensor_file import State, pack, unpack
from iblurry.storage.untrusted import named
from iblurry.version import __version__

LOGGER = logging.getLogger(__name__)
FORMAT = 1  # of the file that `save` writes
KIND = "learner"
WANTED = "a file that Learner.save wrote, or the folder of a run or service"
Images = Tensor | NDArray[np.uint8]


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
    method : Method, str or LearnerConfig
        What is learnt and how, such as `clib()` or "clib"; or the whole configuration.
    threads : int, optional
        Torch threads while it learns or answers; another number changes the last digits. Default: 1 for "convnet" and
        "mlp" on the CPU; torch's number for others and if you set one (torch.set_num_threads, OMP_NUM_THREADS).
    engine : Eager, optional
        What steps run on, instead of the configuration's device and precision; torch's number of threads is left alone.
    on_refit : callable, optional
        Called with the updates done and the updates in all, after each update of a refit.
    **config
        `image`, which is needed, and the other fields of a `LearnerConfig`: `classes`, `memory`, `network`,
        `initialise`, `freeze`, `augment`, `mean`, `std`, `seed`, `boundaries`, `device`, `precision`.

    >>> import numpy as np
    >>> learner = Learner("er", image=(1, 8, 8), classes=["cat", "dog"], memory=20, network="mlp")
    >>> learner.observe(np.zeros((1, 8, 8), dtype=np.uint8), "cat").new_classes
    ['cat']
    >>> learner.predict(np.zeros((2, 1, 8, 8), dtype=np.uint8))
    ['cat', 'cat']
    """

    def __init__(
        self,
        method: Method | str | LearnerConfig,
        *,
        threads: int | None = None,
        engine: Eager | None = None,
        on_refit: Callable[[int, int], None] = lambda done, total: None,
        **config: Any,
    ) -> None:
        if isinstance(method, LearnerConfig):
            given = dataclasses.replace(method, **config)
        else:
            given = LearnerConfig(method=method, **config)  # type: ignore[arg-type]  # by its name
        check_type("engine", engine, Eager | None)
        if engine is not None and not isinstance(method, LearnerConfig) and (given.device or given.precision):
            raise InputError(
                f"engine={engine!r} already has a device and a precision; give either engine, or device and precision."
            )
        self.threads = None if threads is None else whole_number("threads", threads, 1)
        self.engine = engine or make_engine(given.device or "cpu", given.precision)
        self.config = dataclasses.replace(given, device=str(self.engine.device), precision=self.engine.precision)
        self._chooses_threads = engine is None and self.engine.device.type == "cpu"
        self.on_refit = on_refit
        context = self.config.build_context(self.engine)
        self.refitter = Refitter(
            given.method.refit,
            context,
            on_progress=lambda done, total: self.on_refit(done, total),
            on_changed=lambda: self.trainer.forget(),
        )
        self.context = dataclasses.replace(context, refit=self.refitter)
        self.method = given.method.attach(self.context)
        self.parts = dict(self.method.parts())
        others = [part for name, part in self.parts.items() if name != "admission"]  # which hears of it by itself
        self._on_stored = [part.on_stored for part in others if type(part).on_stored is not Part.on_stored]
        pace = self.method.pace
        streamed = pace.stream_batch if pace.train_stream else 0
        self.trainer = Trainer(self.method, self.context, streamed=streamed, pace=pace)
        self.stream_batch: list[Sample] = []  # samples of the round to come
        self.credit = 0  # updates owed, in units of 1 / denominator of updates_per_sample
        self.prepared_at: tuple[int, int, int] | None = None  # samples, updates and tasks of the last `prepare`
        self._head_rows = torch.arange(self.config.rows, device=self.engine.device)

    def __repr__(self) -> str:
        config, context, memory = self.config, self.context, self.context.memory
        names = ("image", "classes", "memory", "network", "freeze", "seed", "device")
        shown = {name: getattr(config, name) for name in names}
        if not isinstance(config.network, str):
            shown["network"] = type(config.network)
        arguments = ", ".join(f"{name}={reprlib.repr(value)}" for name, value in shown.items())
        seen, updates = counted(context.seen, "sample"), counted(context.updates, "update")
        known, stored = counted(context.network.open_rows, "class"), f"{memory.size} of {memory.capacity} rows stored"
        return f"Learner({config.method.name!r}, {arguments}; {seen} seen, {updates}, {known}, {stored})"

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
            is_one = np.ndim(labels if encoded else images) == (0 if encoded else 3)
            names = _as_labels(labels, len(given), is_one=is_one)
            new, before = self._new_classes(names), self.context.updates
            for at, name in enumerate(names):
                one = given[at : at + 1]  # cloned, since the caller may use the same array again
                self._observe(one if encoded else self.context.encode(one).clone(), name)
            updates = self.context.updates - before
            return Observed(len(names), updates, new, self.trainer.loss.clone() if updates else None, self.trainer.lr)

    def _new_classes(self, labels: Sequence[Label]) -> list[Label]:
        """Returns the labels without a row; UnknownLabelError if there is one that will not get any."""
        net, announced = self.context.network, self.config.labels
        new = [label for label in dict.fromkeys(labels) if net.row_of(label) is None]
        for label in new:
            if announced is not None and label not in announced:
                names = ", ".join(sorted(map(repr, announced)))
                raise UnknownLabelError(f"The label {label!r} is not in `classes` ({names}). Add it to `classes`.")
        if len(new) > net.rows - net.open_rows:
            raise UnknownLabelError(
                f"{new!r:.80} would be {counted(len(new), 'new class')}, and {net.open_rows} of the head's {net.rows} "
                f"rows are taken; build the network with `classes` of at least {net.open_rows + len(new)}."
            )
        return new

    def _observe(self, stored: Tensor, label: Label) -> None:
        known = self.context.network.row_of(label)
        row = self.meet(label) if known is None else known
        sample = Sample(stored, self._head_rows[row : row + 1], row)
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
        chosen = default_threads(self.config.network) if self._chooses_threads else None
        return torch_threads(self.threads or chosen)

    def meet(self, label: Label) -> int:
        """Add a new class: tell the parts, then open its head row in place; returns the row."""
        self._new_classes([label])
        net, head = self.context.network, self.method.head
        for part in self.parts.values():
            part.on_class(net.next_row)
        row = open_row(net, label, self.context.rng, redraw=head.redraw)
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
        return self.engine.to_device(_as_pixels(images, self.config.image, verb, may_be_one=may_be_one))

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
        readout, before = self.method.readout, self.prepared_at
        held = [values.clone() for values in readout.prepared().values()] if readout.prepare_every > 1 else []
        self.prepare()
        made = [values.cpu().clone() for values in readout.answers_with()]
        if held:
            for values, old in zip(readout.prepared().values(), held, strict=True):
                values.copy_(old)
            self.prepared_at = before
        return made

    def probabilities(self, images: Images) -> Tensor:
        """(B, classes met so far), in the order of `labels`."""
        return self.logits(images)[:, : self.context.network.known].softmax(1)

    def predict(self, images: Images) -> list[Label]:
        """The most likely label of each image."""
        return [self.labels[row] for row in self.logits(images).argmax(1).tolist()]

    def export(self, path: str | os.PathLike[str], *, columns: int | None = None) -> None:
        """Writes the network that answers now to a file that needs no iblurry: pixels in, logits out, on a CPU.

        Normalisation, the readout's correction and the class names are inside; a call takes up to 65,535 images.

        Parameters
        ----------
        path : path
            NAME.pt2 for torch.export, read by `iblurry.load_exported` or torch.export.load; or NAME.onnx.
        columns : int, optional
            Of a table, whose rows (B, columns) float32 are then the input in place of pixels.
        """
        self.prepare()
        export(self.config, self.method.readout, path, columns=columns)

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
        """Everything that a resume needs, by reference: save or copy it before the next sample.

        A frozen body is no part of it: the configuration makes the same again.
        """
        context, waiting = self.context, self._together(self.stream_batch)
        return {
            "network": dict(context.network.state_dict()),
            "labels": list(self.labels),
            "optimizer": self.trainer.optimizer_state(),
            "memory": context.memory.state_dict(),
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
            "shared": {name: shared.state_dict() for name, shared in context.shared.items()},
            "stream batch": {"images": waiting.images, "labels": waiting.labels},
            "refit": self.refitter.state_dict(),
            "counters": {
                "seen": context.seen,
                "updates": context.updates,
                "credit": self.credit,
                "tasks": context.tasks,
                "spent": context.spent.state_dict(),
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from where `state_dict` was taken, bit for bit."""
        context, to_device = self.context, self.engine.to_device
        context.network.load_state_dict(state["network"])
        context.network.labels[:] = [label if label is None else plain_label(label) for label in state["labels"]]
        self.trainer.load_optimizer_state(state["optimizer"])
        context.memory.load_state_dict(state["memory"])
        for name, shared in context.shared.items():
            shared.load_state_dict(state["shared"][name])
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        images, labels = state["stream batch"]["images"], state["stream batch"]["labels"]
        self.stream_batch = [
            Sample(to_device(i[None]), to_device(n[None]), int(n)) for i, n in zip(images, labels, strict=True)
        ]
        saved, counters = state["counters"], context.counters
        counters.seen, counters.updates, counters.tasks = saved["seen"], saved["updates"], saved["tasks"]
        context.spent.load_state_dict(saved["spent"])
        self.credit, self.prepared_at = saved["credit"], None
        self.refitter.load_state_dict(state["refit"])
        self.check_weights()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything to one file, from which `load` makes a learner that goes on bit for bit.

        Parameters
        ----------
        path : path
            Usually NAME.safetensors; an interrupted write leaves what was there.
        """
        place, frozen = as_path(path), self.context.frozen
        kept = {
            "state": self.state_dict(),
            "initial": self.context.network.initial,  # the body's first weights, where refits start from them again
            "frozen": None if frozen is None else dict(frozen.network.body.state_dict()),
        }
        about = {"kind": KIND, "format": FORMAT, "version": __version__, "arguments": self.config.to_json()}
        data = pack(kept, about)
        with write_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_file(place, data)

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
        changes = {name: value for name, value in given.items() if value is not None}
        place = as_path(path)
        with named(path, remedy="It does not fit this network; give the one it had."):
            arguments, saved = _read_folder(place) if place.is_dir() else _read_file(place)
            learner = cls(LearnerConfig.from_json(arguments, **changes))
            learner.load_state_dict(learner._fitted(saved["state"], place))
            learner.context.network.load_initial(saved["initial"])
            if learner.context.frozen is not None and saved["frozen"] is not None:
                learner.context.frozen.network.body.load_state_dict(saved["frozen"])
        return learner

    def _fitted(self, state: State, path: Path) -> State:
        """A state for the rows that this new learner's head has, as if it had had them from the beginning."""
        rows, wanted = len(state["network"]["open"]), self.context.network.rows
        if wanted < rows:
            raise InputError(
                f"classes={wanted} is less than the {rows} rows of the head in {path}; give at least {rows}."
            )
        if wanted == rows:
            return state
        like = self.state_dict() | {"optimizer": self.trainer.zero_state(state["optimizer"])}
        grown: State = _widened(state, like, (rows, wanted))
        return grown

    def _together(self, samples: list[Sample]) -> Batch:
        if not samples:
            return Batch(self.context.memory.images[:0], self.context.memory.labels[:0])
        return Batch(torch.cat([s.images for s in samples]), torch.cat([s.labels for s in samples]))


def _signature() -> inspect.Signature:
    """Makes the signature of `Learner`, with the fields of its configuration by name, for help() and editors."""
    own = inspect.signature(Learner.__init__).parameters
    fields = inspect.signature(LearnerConfig).parameters
    configured = [fields[name] for name in fields if name != "method"]
    return inspect.Signature([own["method"], *configured, *(own[name] for name in ("threads", "engine", "on_refit"))])


def _read_folder(place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    loaded = checkpoint.load_latest(place, remedy="Put back a good copy of the folder.")
    if loaded is None:
        raise FolderError(
            f"{place} has no checkpoint, so no learner can be loaded; give the folder of a run or of a service that "
            "has learnt something."
        )
    for sentence in loaded.skipped:
        LOGGER.warning(sentence)
    # first weights, and those of a frozen body, are made again from the arguments
    return loaded.state["arguments"], {"state": loaded.state["learner"], "initial": None, "frozen": None}


def _read_file(place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        data = place.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise DataError(f"{str(place)!r} cannot be read ({error}); give {WANTED}.") from error
    try:
        state, about = unpack(data, format=FORMAT)
    except CheckpointError as error:
        raise CheckpointError(f"{place} cannot be used: {error}. Give {WANTED}.") from error
    if about.get("kind") != KIND:
        raise CheckpointError(f"{place} is not a saved learner; give {WANTED}.")
    return about["arguments"], state


def _widened(state: Any, like: Any, rows: tuple[int, int]) -> Any:
    """Tensors and lists with so many rows and so many wanted take the others from `like`."""
    if isinstance(state, dict) and isinstance(like, dict):
        return {name: _widened(value, like.get(name), rows) for name, value in state.items()}
    if isinstance(state, list) and isinstance(like, list) and (len(state), len(like)) == rows:
        return state + like[len(state) :]
    if not isinstance(state, Tensor) or not isinstance(like, Tensor) or state.dim() != like.dim():
        return state
    differing = {sizes for sizes in zip(state.shape, like.shape, strict=True) if sizes[0] != sizes[1]}
    if differing != {rows}:  # equal, or of another network, which `load_state_dict` refuses
        return state
    grown = like.clone().to(state.device)
    grown[tuple(slice(size) for size in state.shape)] = state
    return grown


def _as_labels(labels: Any, images: int, *, is_one: bool) -> list[Label]:
    """A label for each of so many images; InputError where there are not so many."""
    try:
        plain = [plain_label(label) for label in ([labels] if is_one or isinstance(labels, str) else labels)]
    except TypeError:  # a number
        plain = []
    if len(plain) != images:
        raise InputError(f"labels={labels!r:.80} is not valid; give a label for each image, {images}.")
    return plain


def _as_pixels(images: Images, image: tuple[int, ...], verb: str, *, may_be_one: bool = False) -> Tensor:
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


Learner.__signature__ = _signature()  # type: ignore[attr-defined]

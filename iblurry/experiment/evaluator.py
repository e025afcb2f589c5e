"""The evaluator: asks a learner about the test images of the classes met so far and counts right answers per class.

Queries that are answered by networks of their own (GDumb) are asked through `DeferredQueries`: on a GPU these networks
are trained many at a time, later. `device_images` keeps the training images on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.compute import ComputeCounter
from iblurry.data.dataset import Dataset
from iblurry.data.images import Decoders, PictureFiles, batches, eager_bytes
from iblurry.engine.eager import AsyncRead
from iblurry.errors import DivergedError
from iblurry.learner.learner import Learner
from iblurry.learner.refits import MemorySnapshot, RefitStack
from iblurry.parts import Refit
from iblurry.parts.context import Context
from iblurry.parts.memory import Encoded

CHUNK = 512  # test images that go to the device together
COPIED = 4096  # training images copied together, so that the buffer on the way takes little memory
Counts = tuple[tuple[int, ...], tuple[int, ...]]  # right answers and test images, class by class


class Evaluator:
    """Keeps the test images in the order their classes were met, so that a query is one pass.

    Parameters
    ----------
    dataset : Dataset
        Whose test images are asked about.
    device : torch.device
        Where they are kept, and where the learner is.
    decoders : Decoders, optional
        Read images that stay on the disk.
    budget : int, optional
        Test images of more than so many bytes are not kept on the device but read for each query; None: twice
        $IBLURRY_EAGER_BYTES, by default 8 GiB, in which those of ImageNet fit.
    learner : Learner, optional
        Whose stored form of the images is kept, so that a frozen body sees each once; None: pixels are.
    """

    def __init__(
        self,
        dataset: Dataset,
        device: torch.device,
        *,
        decoders: Decoders | None = None,
        budget: int | None = None,
        learner: Learner | None = None,
    ) -> None:
        self.dataset, self.device, self.decoders = dataset, device, decoders
        self._context = learner.context if learner is not None and learner.context.frozen is not None else None
        shape = dataset.shape if self._context is None else self._context.memory.images.shape[1:]
        count, size = len(dataset.test), math.prod(shape)
        self.is_kept = count * size <= (2 * eager_bytes() if budget is None else budget)
        room = count if self.is_kept else 0
        self._images = torch.empty(room, *shape, dtype=torch.uint8, device=device)  # in the order of _indices
        self._indices = np.empty(0, dtype=np.int64)  # (asked,) of test images of the classes met
        self._targets = torch.empty(0, dtype=torch.int64, device=device)  # (asked,) rows of the head
        self._totals: list[int] = []  # test images of each class met
        self._is_new = True  # whether the features of the class now added were never computed in this run

    def ask(self, learner: Learner) -> PendingAnswer:
        """Query the learner about all classes it has met; on a GPU this does not wait for the answer."""
        self.meet(learner.labels)
        answer = PendingAnswer(at=learner.context.seen, lr=learner.method.schedule.lr)
        is_stored = self._context is not None
        logits = (lambda stored: learner.logits(Encoded(stored))) if is_stored else learner.logits
        self.count(logits, len(learner.labels), answer)
        return answer

    def meet(self, labels: Sequence[str | int]) -> int:
        """Adds the questions about classes that are new; returns how many there are about all of these."""
        for label in labels[len(self._totals) :]:
            self._add_class(str(label))
        return len(self._indices)

    def count(self, logits: Callable[[Tensor], Tensor], classes: int, answer: PendingAnswer) -> None:
        """Counts right answers about the classes that were met first.

        Parameters
        ----------
        logits : callable
            Answers to images as they are kept, (uint8).
        classes : int
            How many of the classes.
        answer : PendingAnswer
            Gets the counts.
        """
        totals = self._totals[:classes]
        targets = self._targets[: sum(totals)]
        chosen, finite = [targets[:0]], [torch.ones((), dtype=torch.bool, device=self.device)]  # if none is asked
        count = len(targets)
        for pixels in [self._images[:count]] if self.is_kept else self._read(self._indices[:count]):
            answers = logits(pixels)[:, :classes]
            chosen.append(answers.argmax(1))
            finite.append(answers.isfinite().all())
        right = (torch.cat(chosen) == targets).long()
        correct = torch.zeros(classes, dtype=torch.int64, device=self.device)
        correct.index_add_(0, targets, right)
        values = torch.cat([correct, torch.stack(finite).all().long()[None]])
        answer.fill(values, tuple(totals))

    def _add_class(self, label: str) -> None:
        indices = np.flatnonzero(self.dataset.test.labels == self.dataset.classes.index(label))
        if self.is_kept:
            if self._context is not None:
                self._is_new = self._context.queries.first_time(f"features of {label}", ())
            start = len(self._indices)
            for pixels in self._read(indices):
                self._images[start : start + len(pixels)] = pixels
                start += len(pixels)
        row = torch.full((len(indices),), len(self._totals), dtype=torch.int64, device=self.device)
        self._indices, self._targets = np.concatenate([self._indices, indices]), torch.cat([self._targets, row])
        self._totals.append(len(indices))

    def _read(self, indices: NDArray[np.int64]) -> Iterator[Tensor]:
        for pixels in batches(self.dataset.test.images, indices, CHUNK, self.decoders):
            images = torch.from_numpy(pixels).to(self.device)
            yield images if self._context is None else self._encoded(images, self._context)

    def _encoded(self, images: Tensor, context: Context) -> Tensor:
        """Counted as a query's; what is kept is counted once, however often the run is interrupted."""
        is_new = self._is_new or not self.is_kept
        with context.network.meter.counting("queries", into=context.queries if is_new else ComputeCounter()):
            return context.encode(images)


class PendingAnswer:
    """Right answers per class, counted on the device and read by the host once they are there.

    Parameters
    ----------
    at : int
        Samples seen, for the error message.
    lr : float
        Learning rate, for the error message.
    begin : callable, optional
        Begins to count, and fills this; None: whoever made it does.
    """

    def __init__(self, *, at: int, lr: float, begin: Callable[[], None] = lambda: None) -> None:
        self.at, self.lr, self._begin = at, lr, begin
        self._values: AsyncRead | None = None

    def fill(self, values: Tensor, totals: tuple[int, ...]) -> None:
        """Give the counts.

        Parameters
        ----------
        values : Tensor
            (classes + 1,) int64: right answers of each class, then 1 if all logits were finite.
        totals : tuple of int
            Test images of each class.
        """
        self._values, self.totals = AsyncRead(values), totals

    def is_ready(self) -> bool:
        """Whether `counts` would return at once."""
        return self._values is not None and self._values.ready()

    def is_deferred(self) -> bool:
        """Whether counting was not begun yet."""
        return self._values is None

    def counts(self) -> Counts:
        """Wait for the counts; DivergedError if a logit was not finite."""
        if self._values is None:
            self._begin()
        assert self._values is not None
        *correct, is_finite = self._values.tolist()
        if not is_finite:
            raise DivergedError(
                f"The network returns NaN or infinite values at sample {self.at}; a lower learning rate "
                f"(schedule.initial_lr, now {self.lr:.3g}) usually helps."
            )
        return tuple(correct), self.totals


class DeferredQueries:
    """Asks a learner at once, or where refits can be stacked, keeps the memory as it is now and asks when enough wait.

    A refit for a query changes nothing in the learner, so it may as well come later. What the answers cost is counted
    when they are asked for.

    Parameters
    ----------
    learner : Learner
        Who is asked.
    evaluator : Evaluator
        Has the questions.
    on_progress : callable
        Called with the updates done and the updates in all, after each update of stacked refits.
    """

    def __init__(self, learner: Learner, evaluator: Evaluator, on_progress: Callable[[int, int], None]) -> None:
        self.learner, self.evaluator, self.on_progress = learner, evaluator, on_progress
        self.waiting: list[tuple[MemorySnapshot, PendingAnswer]] = []
        self._stack: RefitStack | None = None

    def ask(self) -> PendingAnswer:
        """Query the learner about all classes that it has met."""
        readout, context = self.learner.method.readout, self.learner.context
        training = self.learner.refitter.training
        if not isinstance(readout, Refit) or readout.at != "query" or not RefitStack.fits(training, context):
            return self.evaluator.ask(self.learner)
        if self._stack is None:
            assert training is not None
            self._stack = RefitStack(training, context, epochs=readout.epochs, on_progress=self.on_progress)
        context.queries.forward["queries"] += self.evaluator.meet(self.learner.labels)
        if context.queries.first_time("refit", (context.memory.offered,)):
            context.queries.include(self._stack.cost)
        if self.waiting and self.waiting[-1][0].seen == context.seen:  # at the end of a task, for instance
            return self.waiting[-1][1]
        answer = PendingAnswer(at=context.seen, lr=self.learner.method.schedule.lr, begin=self.answer_all)
        self.waiting.append((MemorySnapshot.take(context), answer))
        if len(self.waiting) == self._stack.models:
            self.answer_all()
        return answer

    def answer_all(self) -> None:
        """Trains the networks that wait, and asks them."""
        assert self._stack is not None
        self._stack.train([snapshot for snapshot, _ in self.waiting])
        with self.learner.context.network.meter.counting("queries", into=ComputeCounter()):  # counted before
            for model, (snapshot, answer) in enumerate(self.waiting):
                self.evaluator.count(partial(self._stack.logits, model), len(snapshot.labels), answer)
        self.waiting = []


_copies: WeakKeyDictionary[Dataset, dict[torch.device, Tensor]] = WeakKeyDictionary()  # freed with the data set


def device_images(dataset: Dataset, device: torch.device) -> Tensor | None:
    """(N, C, H, W) uint8 on the device; None where images stay on the disk or take more than `eager_bytes`."""
    images = dataset.train.images
    if isinstance(images, PictureFiles) or math.prod(images.shape) > eager_bytes():
        return None
    copies = _copies.setdefault(dataset, {})
    if device not in copies:
        copies[device] = _copy(dataset, device)
    return copies[device]


def _copy(dataset: Dataset, device: torch.device) -> Tensor:
    images = dataset.train.images
    copy = torch.empty(images.shape, dtype=torch.uint8, device=device)
    for start in range(0, len(images), COPIED):
        chunk = np.array(images[start : start + COPIED])  # torch shares only arrays that may be written to
        copy[start : start + COPIED] = torch.from_numpy(chunk)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # runs in other CUDA streams must not read before it is there
    return copy

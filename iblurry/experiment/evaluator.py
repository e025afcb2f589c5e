"""The evaluator: asks a learner about the test images of the classes met so far and counts right answers per class."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.compute import ComputeCounter
from iblurry.data.dataset import Dataset
from iblurry.data.images import eager_bytes
from iblurry.data.prefetch import Decoders, batches
from iblurry.engine.eager import AsyncRead
from iblurry.errors import DivergedError
from iblurry.learner.learner import Learner
from iblurry.parts.context import Context
from iblurry.parts.memory import Encoded

CHUNK = 512  # images that go to the device together
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
        lr, at = learner.method.schedule.lr, learner.context.seen
        return self.count(self._logits_of(learner), len(learner.labels), at=at, lr=lr)

    def _logits_of(self, learner: Learner) -> Callable[[Tensor], Tensor]:
        if self._context is None:
            return learner.logits
        return lambda stored: learner.logits(Encoded(stored))

    def meet(self, labels: Sequence[str | int]) -> int:
        """Adds the questions about classes that are new; returns how many there are about all of these."""
        for label in labels[len(self._totals) :]:
            self._add_class(str(label))
        return len(self._indices)

    def count(self, logits: Callable[[Tensor], Tensor], classes: int, *, at: int, lr: float) -> PendingAnswer:
        """Counts right answers about the classes that were met first.

        Parameters
        ----------
        logits : callable
            Answers to images as they are kept, (uint8).
        classes : int
            How many of the classes.
        at, lr : int, float
            Samples seen and learning rate, for the error message.
        """
        totals = self._totals[:classes]
        targets = self._targets[: sum(totals)]
        chosen, finite = [targets[:0]], [torch.ones((), dtype=torch.bool, device=self.device)]  # if none is asked
        for pixels in self._batches(sum(totals)):
            answers = logits(pixels)[:, :classes]
            chosen.append(answers.argmax(1))
            finite.append(answers.isfinite().all())
        right = (torch.cat(chosen) == targets).long()
        correct = torch.zeros(classes, dtype=torch.int64, device=self.device)
        correct.index_add_(0, targets, right)
        values = torch.cat([correct, torch.stack(finite).all().long()[None]])
        return PendingAnswer(values, tuple(totals), at=at, lr=lr)

    def _batches(self, count: int) -> Iterator[Tensor]:
        return iter([self._images[:count]]) if self.is_kept else self._read(self._indices[:count])

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
    values : Tensor
        (classes + 1,) int64: right answers of each class, then 1 if all logits were finite.
    totals : tuple of int
        Test images of each class.
    at : int
        Samples seen, for the error message.
    lr : float
        Learning rate, for the error message.
    """

    def __init__(self, values: Tensor, totals: tuple[int, ...], *, at: int, lr: float) -> None:
        self.totals, self.at, self.lr = totals, at, lr
        self._values = AsyncRead(values)

    def ready(self) -> bool:
        """Whether `counts` would return at once."""
        return self._values.ready()

    def counts(self) -> Counts:
        """Wait for the counts; DivergedError if a logit was not finite."""
        *correct, is_finite = self._values.tolist()
        if not is_finite:
            raise DivergedError(
                f"The network returns NaN or infinite values at sample {self.at}; a lower learning rate "
                f"(schedule.initial_lr, now {self.lr:.3g}) usually helps."
            )
        return tuple(correct), self.totals

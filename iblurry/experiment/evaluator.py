"""The examiner: asks a learner about the test images of the classes met so far and counts right answers per class."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.data.dataset import Dataset
from iblurry.data.images import eager_bytes
from iblurry.data.prefetch import Decoders, batches
from iblurry.experiment.answer import Answer
from iblurry.learner import Learner

PIECE = 512  # images that go to the device together


class Evaluator:
    """Keeps the test images in the order their classes were met, so that a query is one pass.

    Test images of more than `budget` bytes (twice $IBLURRY_EAGER_BYTES: 8 GiB, in which ImageNet's fit) are not kept,
    but read anew for each query. `decoders` read those that stay on the disk.
    """

    def __init__(
        self, dataset: Dataset, device: torch.device, *, decoders: Decoders | None = None, budget: int | None = None
    ) -> None:
        self.dataset, self.device, self.decoders = dataset, device, decoders
        count, size = len(dataset.test), math.prod(dataset.shape)
        self.kept = count * size <= (2 * eager_bytes() if budget is None else budget)
        room = count if self.kept else 0
        self._images = torch.empty(room, *dataset.shape, dtype=torch.uint8, device=device)  # in the order of _asked
        self._asked = np.empty(0, dtype=np.int64)  # (questions,) rows of the test images
        self._rows = torch.empty(0, dtype=torch.int64, device=device)  # (questions,) the right answers
        self._totals: list[int] = []  # questions of each class met

    def ask(self, learner: Learner) -> Answer:
        """Right answers and questions of each class met, in the order they were met; nobody waits for them here."""
        for label in learner.labels[len(self._totals) :]:
            self._meet(str(label))
        chosen, sound = [self._rows[:0]], [torch.ones((), dtype=torch.bool, device=self.device)]  # if nothing is asked
        for pixels in self._questions():
            logits = learner.logits(pixels)[:, : len(self._totals)]
            chosen.append(logits.argmax(1))
            sound.append(logits.isfinite().all())
        right = (torch.cat(chosen) == self._rows).long()
        correct = torch.zeros(len(self._totals), dtype=torch.int64, device=self.device).index_add_(0, self._rows, right)
        told = torch.cat([correct, torch.stack(sound).all().long()[None]])
        return Answer(told, tuple(self._totals), at=learner.context.seen, rate=learner.method.schedule.lr)

    def _questions(self) -> Iterator[Tensor]:
        return iter([self._images[: len(self._asked)]]) if self.kept else self._read(self._asked)

    def _meet(self, label: str) -> None:
        mine = np.flatnonzero(self.dataset.test.labels == self.dataset.classes.index(label))
        if self.kept:
            at = len(self._asked)
            for pixels in self._read(mine):
                self._images[at : at + len(pixels)] = pixels
                at += len(pixels)
        row = torch.full((len(mine),), len(self._totals), dtype=torch.int64, device=self.device)
        self._asked, self._rows = np.concatenate([self._asked, mine]), torch.cat([self._rows, row])
        self._totals.append(len(mine))

    def _read(self, rows: NDArray[np.int64]) -> Iterator[Tensor]:
        for pixels in batches(self.dataset.test.images, rows, PIECE, self.decoders):
            yield torch.from_numpy(pixels).to(self.device)

"""The examiner: asks a learner about the test images of the classes met so far and counts right answers per class."""

from __future__ import annotations

import numpy as np
import torch

from iblurry.data.dataset import Dataset
from iblurry.errors import DivergedError
from iblurry.learner import Learner


class Examiner:
    """Keeps the test images in the order their classes were met, so that a query is one pass."""

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self.dataset = dataset
        self.device = device
        self._images = torch.empty(0, *dataset.shape, dtype=torch.uint8, device=device)  # (questions, C, H, W)
        self._rows = torch.empty(0, dtype=torch.int64, device=device)  # (questions,) the right answers
        self._totals: list[int] = []  # questions of each class met

    def ask(self, learner: Learner) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Right answers and questions of each class met, in the order they were met."""
        for label in learner.labels[len(self._totals) :]:
            self._meet(str(label))
        logits = learner.logits(self._images)[:, : len(self._totals)]
        if not logits.isfinite().all():  # the answers of a broken network are not worth counting
            raise DivergedError(
                f"The network's answers are no numbers any more at sample {learner.bench.seen}; a lower learning rate "
                f"(schedule.rate, now {learner.method.schedule.now:.3g}) usually helps."
            )
        right = (logits.argmax(1) == self._rows).long()
        correct = torch.zeros(len(self._totals), dtype=torch.int64, device=self.device).index_add_(0, self._rows, right)
        return tuple(correct.tolist()), tuple(self._totals)

    def _meet(self, label: str) -> None:
        mine = self.dataset.test.labels == self.dataset.classes.index(label)
        pixels = torch.from_numpy(np.ascontiguousarray(self.dataset.test.images[mine])).to(self.device)
        row = torch.full((len(pixels),), len(self._totals), dtype=torch.int64, device=self.device)
        self._images, self._rows = torch.cat([self._images, pixels]), torch.cat([self._rows, row])
        self._totals.append(len(pixels))

"""The examiner: asks a learner about the test images of the classes met so far and counts right answers per class."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from iblurry.data.dataset import Dataset
from iblurry.learner import Learner


class Examiner:
    """Keeps the test images in the order their classes were met, so that a query is one pass over a prefix."""

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self.dataset = dataset
        self.device = device
        self._images: list[Tensor] = []  # one tensor per class met
        self._totals: list[int] = []

    def ask(self, learner: Learner) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Right answers and questions of each class met, in the order they were met."""
        for label in learner.labels[len(self._images) :]:
            mine = self.dataset.test.labels == self.dataset.classes.index(str(label))
            pixels = np.ascontiguousarray(self.dataset.test.images[mine])
            self._images.append(torch.from_numpy(pixels).to(self.device))
            self._totals.append(len(pixels))
        learner.method.readout.settle()
        rows = torch.arange(len(self._totals)).repeat_interleave(torch.tensor(self._totals)).to(self.device)
        right = (learner.logits(torch.cat(self._images)).argmax(1) == rows).long()
        correct = torch.zeros(len(self._totals), dtype=torch.int64, device=self.device).index_add_(0, rows, right)
        return tuple(correct.tolist()), tuple(self._totals)

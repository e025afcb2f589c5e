"""Sigmoid transitions: disjoint groups of classes, each fading into the next."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.rng import Rng
from iblurry.streams.order import Order, i_blurry
from iblurry.streams.stream import Stream


class Sigmoid(Stream):
    """Groups of classes that follow each other gradually.

    The classes are divided as in the disjoint split of `IBlurry`. Between a group of n_L samples that would end at
    sample e and the next, of n_R samples, sample t (from 0) comes from the right one with probability

        1 / (1 + exp(-4 (t - e) / (width min(n_L, n_R))))

    and from the left one otherwise; with several transitions, each decides in turn, from the first one,
    whether t lies after it. If the chosen group has no samples left, the nearest group that has some gives one. Width 0
    is the disjoint split.

    The formula is that of the gradual streams of CapyMOA (Gomes et al., 2025) and, before, of MOA's concept drift.

    Parameters
    ----------
    tasks : int
        How many groups of classes there are. A run gets no task boundaries.
    width : float
        Width of a transition, as a fraction of the smaller of its two groups.
    """

    ranges: ClassVar = {"tasks": "[1, inf)", "width": "[0, 1]"}
    has_boundaries: ClassVar[bool] = False

    tasks: int = 5
    width: float = 0.5

    def order(self, dataset: Dataset, seed: int) -> Order:
        split = i_blurry(dataset.train.labels, tasks=self.tasks, disjoint=100, blur=0, seed=seed, mode="uneven")
        beyond = np.cumprod(self._right([len(task) for task in split.tasks]), axis=0)  # of each transition
        drawn = (Rng(seed).uniforms("sigmoid", 0, len(split)) < beyond).sum(axis=0)
        left = [task[::-1].tolist() for task in split.tasks]  # the next one last
        samples = []
        for group in drawn.tolist():
            if not left[group]:
                group = min((other for other in range(len(left)) if left[other]), key=lambda other: abs(other - group))
            samples.append(left[group].pop())
        return Order((np.array(samples),), split.classes, disjoint=0)

    def _right(self, sizes: list[int]) -> NDArray[np.float64]:
        """Returns of each transition and sample the probability of the right group, (transitions, samples)."""
        since = np.arange(sum(sizes)) - np.cumsum(sizes)[:-1, None]
        right: NDArray[np.float64] = np.heaviside(since, 1.0)
        if self.width:
            scale = np.maximum(1e-9, self.width * np.minimum(sizes[:-1], sizes[1:]))[:, None]
            right = (1 + np.tanh(2 * since / scale)) / 2  # the same function, which does not overflow
        return right

"""The Gaussian schedule: each class comes around a time of its own, more and more and then less, without tasks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.rng import Rng
from iblurry.streams.order import Order
from iblurry.streams.stream import Stream

GROUPS = 5  # at sigma 0 the published streams have so many groups of classes, each mixed within


class Gaussian(Stream):
    """Classes whose samples come at normally distributed times, so that they change gradually.

    The C classes are shuffled. A sample of the class at place i (from 0) comes at the time

        t = i / C + sigma z + p,    z ~ Normal(0, 1),    p ~ uniform among 0, ..., periods - 1

    and the stream is the samples by their times, from the earliest to the last; none is cut off. A period ends where t
    passes a whole number. With sigma 0, as in the published files, five groups of classes follow each other: the time
    is floor(5 i / C) / 5 + p. Period p has round(C (initial + (1 - initial) (p + 1) / periods)) classes, the first of
    the shuffled ones; what would come before its class enters is left out.

    Koh et al., "Online boundary-free continual learning by scheduled data prior", ICLR 2023.

    Parameters
    ----------
    sigma : float
        Standard deviation of a class's times, as a share of a period.
    periods : int
        How often each class comes. The order has a task for each period, but a run gets no task boundaries.
    initial : float
        Fraction of the classes that are there from the start; the others are divided equally over all periods.
    """

    ranges: ClassVar = {"sigma": "[0, inf)", "periods": "[1, inf)", "initial": "[0, 1]"}
    has_boundaries: ClassVar[bool] = False

    sigma: float = 0.1
    periods: int = 1
    initial: float = 1.0

    def order(self, dataset: Dataset, seed: int) -> Order:
        rng, labels = Rng(seed), dataset.train.labels
        names, positions = np.unique(labels, return_inverse=True)
        shuffled = rng.permutation("gaussian.classes", 0, len(names))
        place = np.argsort(shuffled)[positions]  # of each sample's class
        period = (rng.uniforms("gaussian.periods", 0, len(labels)) * self.periods).astype(np.int64)
        if self.sigma:
            time = place / len(names) + self.sigma * _normals(rng, "gaussian.times", len(labels)) + period
        else:
            time = GROUPS * place // len(names) / GROUPS + period
        there = period >= self._entered(len(names))[place]
        samples = rng.permutation("gaussian.ties", 0, len(labels))  # a stable sort keeps equal times in this order
        samples = samples[np.argsort(time[samples], kind="stable")]
        samples = samples[there[samples]]
        tasks = np.split(samples, np.searchsorted(time[samples], np.arange(1, self.periods)))
        met = np.unique(labels[samples])
        classes = [name for name in names[shuffled].tolist() if name in met]
        return Order(tuple(task for task in tasks if len(task)), tuple(classes), disjoint=0)

    def _entered(self, classes: int) -> NDArray[np.int64]:
        """The period, from 0, in which the class at each place enters."""
        shares = self.initial + (1 - self.initial) * np.arange(1, self.periods + 1) / self.periods
        entered: NDArray[np.int64] = np.searchsorted(np.round(classes * shares), np.arange(classes), side="right")
        return entered


def _normals(rng: Rng, purpose: str, n: int) -> NDArray[np.float64]:
    """n standard normal numbers (Box and Muller, 1958)."""
    one, other = rng.uniforms(purpose, 0, 2 * n).reshape(2, n)
    normals: NDArray[np.float64] = np.sqrt(-2 * np.log1p(-one)) * np.cos(2 * np.pi * other)
    return normals

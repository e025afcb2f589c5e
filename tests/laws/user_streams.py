"""Streams as a user writes them; the laws are run over them."""

from __future__ import annotations

import numpy as np

from iblurry import Order, Rng, Stream


class Yearly(Stream):
    """Classes in turn, each year again."""

    years: int = 2

    def order(self, dataset, seed):
        labels = dataset.train.labels
        parts = np.array_split(Rng(seed).permutation("yearly", 0, len(labels)), self.years)
        years = [part[np.argsort(labels[part], kind="stable")] for part in parts]
        return Order.from_indices(np.concatenate(years), labels, ends=np.cumsum([len(year) for year in years]))


class Drifting(Yearly):
    """The same order, but nobody is told where a year ends."""

    has_boundaries = False


class Brightest(Stream):
    """No tasks; the brightest images first, so it looks at pixels."""

    def order(self, dataset, seed):
        brightness = np.array([int(image.sum()) for image in dataset.train.images[:]])
        return Order.from_indices(np.argsort(-brightness, kind="stable"), dataset.train.labels)

"""Si-Blurry: i-Blurry with random numbers of classes and of blurred samples in each task."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.errors import InputError
from iblurry.rng import Rng
from iblurry.storage.untrusted import exact
from iblurry.streams.order import Order
from iblurry.streams.stream import Stream


class SiBlurry(Stream):
    """Stochastic i-Blurry: tasks of unequal numbers of classes, and unequal shares of them blurred.

    Of C shuffled classes the first D = T floor(floor(C N / 100) / T) are disjoint, the next T floor((C - D) / T) are
    blurry, and what is left over is dropped. Both are cut at T - 1 uniformly random places into the classes of each
    task, possibly none. M % of the blurry samples are a pool, which is cut at random as well: task t gives its first
    q_t blurry samples in the data set's order, or all it has, into the pool, and takes the next q_t of the shuffled
    pool. A task without a sample is left out.

    Moon et al., "Online class incremental learning on stochastic blurry task boundary via mask and visual prompt
    tuning", ICCV 2023. Differs: blurry samples are counted, so classes may be of unequal size.

    Parameters
    ----------
    tasks : int
        T, how many tasks the stream has, unless one is empty.
    disjoint : float
        N, per cent of the classes that come in one task only.
    blur : float
        M, per cent of the blurry classes' samples that go through the pool.
    """

    ranges: ClassVar = {"tasks": "[1, inf)", "disjoint": "[0, 100]", "blur": "[0, 100]"}

    tasks: int = 5
    disjoint: float = 50.0
    blur: float = 10.0

    def order(self, dataset: Dataset, seed: int) -> Order:
        rng, labels = Rng(seed), dataset.train.labels
        names, sizes = np.unique(labels, return_counts=True)
        disjoint, blurry = self._count_classes(len(names))
        shuffled = rng.permutation("si_blurry.classes", 0, len(names))[: disjoint + blurry]
        apart = np.split(shuffled[:disjoint], self._cuts(rng, "si_blurry.disjoint", disjoint))
        mixed = np.split(shuffled[disjoint:], self._cuts(rng, "si_blurry.blurry", blurry))

        pooled = int(exact(self.blur) * int(sizes[shuffled[disjoint:]].sum()) / 100)
        cuts = self._cuts(rng, "si_blurry.quotas", pooled)
        quotas = np.diff([0, *cuts, pooled])
        own = [np.flatnonzero(np.isin(labels, names[classes])) for classes in mixed]  # in the data set's order
        pool = np.concatenate([samples[:quota] for samples, quota in zip(own, quotas, strict=True)])
        pool = pool[rng.permutation("si_blurry.pool", 0, len(pool))] if len(pool) else pool
        taken = np.split(pool, cuts)  # fewer for the last tasks where some had fewer to give
        tasks = []
        for t, (classes, samples, quota) in enumerate(zip(apart, own, quotas, strict=True)):
            whole = np.flatnonzero(np.isin(labels, names[classes]))
            task = np.concatenate([whole, samples[quota:], taken[t]])
            tasks += [task[rng.permutation(f"si_blurry.task.{t}", 0, len(task))]] if len(task) else []
        return Order(tuple(tasks), tuple(names[shuffled].tolist()), disjoint)

    def _count_classes(self, classes: int) -> tuple[int, int]:
        """How many are disjoint and how many blurry."""
        disjoint = int(exact(self.disjoint) * classes / 100) // self.tasks * self.tasks
        blurry = (classes - disjoint) // self.tasks * self.tasks
        if not disjoint + blurry:
            raise InputError(f"tasks={self.tasks} is more than the {classes} classes there are; give fewer tasks.")
        return disjoint, blurry

    def _cuts(self, rng: Rng, purpose: str, n: int) -> NDArray[np.int64]:
        """Where a list of n is cut into one part for each task: uniformly among 0 to n - 1, with replacement."""
        cuts: NDArray[np.int64] = np.sort((rng.uniforms(purpose, 0, self.tasks - 1) * n).astype(np.int64))
        return cuts

    @property
    def title(self) -> str:
        return f"Si-Blurry-{self.disjoint:g}-{self.blur:g}"

"""A share of a labelled set: some images of every class, as a pure function of the labels and a seed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iblurry.rng import Rng


def a_share(labels: ArrayLike, share: float, *, seed: int) -> NDArray[np.int64]:
    """Indices, ascending, of floor(share * n) of the n images of each class, at least one.

    They are the first of a shuffled list, so a smaller share is part of a larger one.

    >>> a_share([0, 1, 0, 1, 0, 1, 0], 0.5, seed=1).tolist()
    [0, 5, 6]
    """
    ids, exact, rng = np.asarray(labels), Fraction(str(share)), Rng(seed)
    names, sizes = np.unique(ids, return_counts=True)
    samples = np.split(np.argsort(ids, kind="stable"), np.cumsum(sizes)[:-1])  # of each class, ascending
    kept = [
        mine[rng.permutation(f"share.{name}", 0, len(mine))[: max(1, int(exact * len(mine)))]]
        for name, mine in zip(names.tolist(), samples, strict=True)
    ]
    return np.sort(np.concatenate(kept))

"""Walks an order over a data set, one sample at a time, and can be put anywhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.data.prefetch import decoders_for, prefetch
from iblurry.errors import InputError
from iblurry.streams.order import Order


class StreamItem(NamedTuple):
    """One sample as it is met."""

    image: NDArray[np.uint8]  # (C, H, W)
    label: str  # the class name
    index: int  # type: ignore[assignment]  # which training sample; hides tuple.index, which no one needs here
    task: int  # from 0
    last_of_task: bool


class Stream:
    """The samples of an order; `position` is how many have been handed over.

    Iterating goes on from `position`, also after a `break`. Pictures that stay on the disk are decoded `ahead` in as
    many processes as `workers` says (usually one for each core but one; 0: when they are due, in this process), which
    start with the first sample and end with `close`; images in memory need none.
    """

    def __init__(self, dataset: Dataset, order: Order, *, workers: int | None = None, ahead: int | None = None) -> None:
        if int(order.indices.max()) >= len(dataset.train):
            raise InputError(
                f"The order uses sample {order.indices.max()}, but {dataset.name!r} has {len(dataset.train)} training "
                f"samples, 0 to {len(dataset.train) - 1}; make the order from this data set's labels."
            )
        self.dataset = dataset
        self.order = order
        self._ends, self._indices = order.ends, order.indices
        self._position = 0
        self.decoders = decoders_for(dataset.train.images, workers=workers, ahead=ahead)
        self._ahead = prefetch(dataset.train.images, self._indices, self.decoders)

    @property
    def position(self) -> int:
        """How many samples have been handed over."""
        return self._position

    def seek(self, position: int) -> None:
        """Go on after the first `position` samples."""
        if not 0 <= position <= len(self):
            raise InputError(f"The stream cannot go to {position}; it has {len(self)} samples: give 0 to {len(self)}.")
        self._position = int(position)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[StreamItem]:
        while self._position < len(self):
            self._position += 1  # before handing over: whoever stops at this sample has had it
            yield self.last

    @property
    def last(self) -> StreamItem:
        """The sample that was handed over last."""
        assert self._position, "none was handed over yet"
        train, at = self.dataset.train, self._position - 1
        index, task = int(self._indices[at]), bisect_right(self._ends, at)
        label = self.dataset.classes[train.labels[index]]
        image = train.images[index] if self._ahead is None else self._ahead[at]
        return StreamItem(image, label, index, task, at + 1 == self._ends[task])

    def close(self) -> None:
        """End the processes that decode ahead, if any; iterating on starts new ones."""
        if self.decoders is not None:
            self.decoders.close()

"""Iterates over a data set in a given order, one sample at a time, from any position."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.data.images import PictureFiles, decoders_for
from iblurry.errors import InputError
from iblurry.streams.order import Order


class StreamItem(NamedTuple):
    """One sample of a stream.

    Parameters
    ----------
    image : ndarray of uint8
        (C, H, W).
    label : str
        The class name.
    index : int
        Which training sample of the data set.
    task : int
        Its task, from 0.
    last_of_task : bool
        Whether the task ends with this sample.
    """

    image: NDArray[np.uint8]
    label: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which no one needs here
    task: int
    last_of_task: bool


class StreamIterator:
    """The training samples of a data set in a given order.

    Iterating continues from `position`, also after a `break`. Worker processes start with the first sample and end with
    `close`; images in memory need none. `decoders` are others of them, for whoever reads test images meanwhile.

    Parameters
    ----------
    dataset : Dataset
    order : Order
        Indices of the data set's training samples.
    workers : int, optional
        Processes that decode picture files ahead; one per core but one unless given, 0 decodes in this process.
    ahead : int, optional
        Pictures decoded ahead; 32 per worker unless given.
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
        images = dataset.train.images
        self._decoders = decoders_for(images, workers=workers, ahead=ahead)
        self.decoders = decoders_for(images, workers=workers, ahead=ahead)
        self._ahead: Iterator[NDArray[np.uint8]] = iter(())
        self._next = -1  # the position of the picture that _ahead yields next; -1: of none
        self._held: tuple[int, NDArray[np.uint8]] | None = None  # the last one read, and its position

    @property
    def position(self) -> int:
        """Number of samples yielded so far."""
        return self._position

    def seek(self, position: int) -> None:
        """Continue after the first `position` samples."""
        if not 0 <= position <= len(self):
            raise InputError(f"Cannot seek to {position}: the stream has {len(self)} samples; give 0 to {len(self)}.")
        self._position = int(position)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[StreamItem]:
        while self._position < len(self):
            self._position += 1  # before yielding: a caller that stops at this sample has had it
            yield self.last

    @property
    def last(self) -> StreamItem:
        """The sample that was yielded last."""
        assert self._position, "none was yielded yet"
        train, at = self.dataset.train, self._position - 1
        index, task = int(self._indices[at]), bisect_right(self._ends, at)
        label = self.dataset.classes[train.labels[index]]
        return StreamItem(self._image(at), label, index, task, at + 1 == self._ends[task])

    def _image(self, at: int) -> NDArray[np.uint8]:
        images = self.dataset.train.images
        if self._decoders is None or not isinstance(images, PictureFiles):
            return images[int(self._indices[at])]
        if self._held is None or self._held[0] != at:
            if self._next != at:
                self._ahead = self._decoders.read(images, self._indices[at:])
            self._next = -1  # after an error
            self._held = at, next(self._ahead)
            self._next = at + 1
        return self._held[1]

    def close(self) -> None:
        """End the worker processes, if any; iterating further starts new ones."""
        for decoders in (self._decoders, self.decoders):
            if decoders is not None:
                decoders.close()

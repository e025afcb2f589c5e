"""Pictures in the order they will be needed, decoded ahead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from iblurry.data.decoders import Decoders, usual_workers
from iblurry.data.images import Images
from iblurry.data.pictures import Pictures
from iblurry.errors import InputError

STREAM, TESTS = range(2)  # lanes: who reads


class Prefetch:
    """`rows` of the pictures by position: asking for one has the next `ahead` decoded meanwhile.

    It is quick in order, and right in any. At most `ahead` decoded images wait, whatever the length.
    """

    def __init__(self, pictures: Pictures, rows: NDArray[np.int64], decoders: Decoders, *, lane: int = STREAM) -> None:
        self.pictures, self.rows, self.decoders = pictures, rows, decoders
        self._first = lane * decoders.ahead
        self._next, self._begun = 0, 0  # positions from _next up to _begun are on their way
        self._closed = decoders.closed
        self._last: tuple[int, NDArray[np.uint8]] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> NDArray[np.uint8]:
        """(C, H, W), in memory of its own; DataError, which names the file, where it cannot be read."""
        if self._last is None or self._last[0] != at:
            self._last = at, self._take(at)
        return self._last[1]

    def _take(self, at: int) -> NDArray[np.uint8]:
        if at != self._next or self._closed != self.decoders.closed:
            self._begun, self._closed = at, self.decoders.closed
        self._begin(at)
        found = self.decoders.finish(self._slot(at))
        image = self.pictures[int(self.rows[at])] if found is None else found.copy()
        self._next = at + 1
        self._begin(at + 1)  # into the slot that was just emptied
        return image

    def _begin(self, at: int) -> None:
        while self._begun < min(at + self.decoders.ahead, len(self)):
            self.decoders.begin(self._slot(self._begun), self.pictures, int(self.rows[self._begun]))
            self._begun += 1

    def _slot(self, at: int) -> int:
        return self._first + at % self.decoders.ahead


def decoders_for(images: Images, *, workers: int | None = None, ahead: int | None = None) -> Decoders | None:
    """Processes to decode these images ahead; None where they lie in memory, or with workers=0."""
    if not isinstance(images, Pictures):
        return None
    workers = usual_workers() if workers is None else workers
    if workers < 0:
        raise InputError(f"workers={workers} is not possible; give 0 to decode in this process, or more.")
    return Decoders(images.image, workers=workers, ahead=ahead) if workers else None


def prefetch(
    images: Images, rows: NDArray[np.int64], decoders: Decoders | None, *, lane: int = STREAM
) -> Prefetch | None:
    """None where there is nothing to decode, or nobody to do it."""
    return Prefetch(images, rows, decoders, lane=lane) if isinstance(images, Pictures) and decoders else None


def batches(
    images: Images, rows: NDArray[np.int64], size: int, decoders: Decoders | None
) -> Iterator[NDArray[np.uint8]]:
    """`rows` of the images, `size` at a time: (size, C, H, W), contiguous; the last one may be smaller."""
    ahead = prefetch(images, rows, decoders, lane=TESTS)
    for start in range(0, len(rows), size):
        stop = min(start + size, len(rows))
        yield images[rows[start:stop]] if ahead is None else np.stack([ahead[at] for at in range(start, stop)])

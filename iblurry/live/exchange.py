"""What the HTTP side and the learner's side say to each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Labelled(NamedTuple):
    """A sample to learn."""

    label: str
    pixels: NDArray[np.uint8]  # (C, H, W), of the service's shape


class Receipt(NamedTuple):
    """The numbers under which samples were accepted, from 1."""

    first: int
    last: int
    repeated: bool = False  # this request had been accepted before


class Answers(NamedTuple):
    """What one published state of the model makes of some images."""

    model: int  # samples it had learnt
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]  # (B, len(labels))


class Kept(NamedTuple):
    """A sample in the memory."""

    row: int
    label: str
    importance: float | None
    since: int  # the sample's number
    pixels: NDArray[np.uint8]  # (C, H, W)

"""What holds images: an array in memory, or a store that reads them when they are asked for."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import InputError

EAGER_BYTES = 4 * 2**30  # images that take more stay on the disk; $IBLURRY_EAGER_BYTES changes it


class Images(Protocol):
    """(N, C, H, W) bytes by row: an int gives one image, an array of ints or a slice gives several."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> NDArray[np.uint8]: ...


def eager_bytes() -> int:
    """How many bytes of images may be in memory at once: $IBLURRY_EAGER_BYTES, or 4 GiB."""
    return whole_number("IBLURRY_EAGER_BYTES", EAGER_BYTES)


def whole_number(variable: str, usual: int) -> int:
    """An environment variable that counts something."""
    given = os.environ.get(variable, "")
    if given and not given.isdecimal():
        raise InputError(f"{variable}={given!r} is no whole number; give one from 0, or leave it out for {usual}.")
    return int(given) if given else usual

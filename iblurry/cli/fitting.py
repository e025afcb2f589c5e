"""Pictures that are larger than a service takes, brought to its size on this side."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iblurry.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from iblurry.cli.samples import Sample

PIXELS = 178_956_970  # twice what Pillow takes without a warning: beyond, it opens nothing


class Fitted:
    """The images of samples, each made fit when it is due."""

    def __init__(self, samples: Sequence[Sample], shape: tuple[int, ...]) -> None:
        self.samples, self.shape = samples, shape

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, place: int, /) -> Any:
        image = self.samples[place].image
        return fitted(image, self.shape) if isinstance(image, Path) else image


def fitted(path: Path, shape: tuple[int, ...]) -> Path | NDArray[np.uint8]:
    """The path; or of a picture beyond a service's limits, (C, H, W) as the service itself would make of it."""
    from iblurry.data.images import read_bytes
    from iblurry.live.http.pictures import Pictures
    from iblurry.live.limits import Limits
    from iblurry.live.refusal import Refusal

    if not _too_large(path):
        return path
    channels, height, width = shape
    try:
        with _large_ones_allowed():
            return Pictures((channels, height, width), Limits(pixels=PIXELS)).decode(read_bytes(str(path)), str(path))
    except Refusal as refusal:
        raise DataError(str(refusal)) from refusal


def _too_large(path: Path) -> bool:
    """By its bytes, or by what its header claims."""
    from PIL import Image

    from iblurry.live.client.parcels import BYTES, weight
    from iblurry.live.http.pictures import FORMATS
    from iblurry.live.limits import Limits

    if weight(path) > BYTES:
        return True
    try:
        with _large_ones_allowed(), Image.open(path, formats=FORMATS) as picture:
            return picture.width * picture.height > Limits().pixels
    except Image.DecompressionBombError:
        return True
    except Exception:  # a decoder fed with garbage raises whatever it stumbles over; the service will refuse it
        return False


@contextmanager
def _large_ones_allowed() -> Iterator[None]:
    """These are the user's own pictures."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield

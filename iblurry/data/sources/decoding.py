"""Decodes picture files into one array of bytes."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import DataError, InputError

MODES = {1: "L", 3: "RGB"}


def decode_all(
    names: Sequence[str], read: Callable[[str], bytes], *, size: int | None, channels: int, title: str
) -> NDArray[np.uint8]:
    """(N, channels, H, W): every picture turned upright, converted to grey or RGB and resized to (size, size).

    Without a size, all pictures must share the size of the first. A bar shows the progress on a terminal.
    """
    check_form(size=size, channels=channels)
    if not names:
        return np.empty((0, channels, size or 1, size or 1), dtype=np.uint8)
    first = decode(read(names[0]), names[0], size=size, channels=channels)
    images = np.empty((len(names), *first.shape), dtype=np.uint8)
    for row, name in enumerate(_with_bar(names, title)):
        image = decode(read(name), name, size=size, channels=channels)
        if image.shape != first.shape:
            raise DataError(
                f"{name} is {image.shape[2]} x {image.shape[1]} pixels but {names[0]} is {first.shape[2]} x "
                f"{first.shape[1]}; give size=... so that all are resized to one size."
            )
        images[row] = image
    return images


def decode(raw: bytes, name: str, *, size: int | None, channels: int) -> NDArray[np.uint8]:
    """(channels, H, W) of one picture in any format Pillow reads."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(raw)) as picture:
            upright: Image.Image = ImageOps.exif_transpose(picture)
            if "transparency" in upright.info:  # Pillow converts a palette with transparency in two steps only
                upright = upright.convert("RGBA")
            plain = upright.convert(MODES[channels])
            if size is not None and plain.size != (size, size):
                plain = plain.resize((size, size), Image.Resampling.BILINEAR)
            image = np.asarray(plain)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        # Pillow would name the object that it read from, which nobody has given
        why = "of no kind that is known" if isinstance(error, UnidentifiedImageError) else error
        raise DataError(
            f"{name} is not a readable picture ({why}); replace it with a good copy or remove it."
        ) from error
    return image[None] if channels == 1 else image.transpose(2, 0, 1)


def check_form(*, size: int | None, channels: int) -> None:
    """Whether pictures can be brought into this form."""
    if channels not in MODES:
        raise InputError(f"channels={channels} is not possible; give 1 (grey) or 3 (colour).")
    if size is not None and size < 1:
        raise InputError(f"size={size} is not possible; give a number of pixels of at least 1.")


def _with_bar(names: Sequence[str], title: str) -> Any:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(names, description=title, console=console, transient=True, disable=not console.is_terminal)

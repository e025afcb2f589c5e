"""Drawn shapes: any number of classes and images from a seed, to try things on without a download."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.errors import InputError
from iblurry.rng import Rng

_Field = NDArray[Any]  # (n, size, size) float32

_MOST = 2**36  # bytes of pixels at once
CHUNK = 64  # images drawn at once; an image is the same however many are asked for
GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples spread evenly over a circle, for any number of them


def shapes(
    *,
    classes: int = 10,
    train: int = 200,  # images per class
    test: int = 50,
    size: int = 16,
    channels: int = 1,
    seed: int = 0,
    noise: float = 0.1,  # standard deviation added to pixels in [0, 1]
) -> Dataset:
    """A class is a shape on a ground: class c has shape c mod 10, and each further ten get their own stripes and hue.

    Place, size, turn, contrast, phase and noise are drawn per image. Pixels need only + - * / abs and sqrt, which every
    machine rounds alike, so a seed means the same bytes everywhere.

    >>> shapes(classes=12, train=3, test=1).classes[9:]
    ('moon', 'bar 1', 'disc 1')
    """
    for name, value, least in (("classes", classes, 1), ("train", train, 1), ("test", test, 0), ("size", size, 4)):
        if value < least:
            raise InputError(f"shapes needs {name} of at least {least}, not {value}.")
    if channels not in (1, 3):
        raise InputError(f"shapes draws channels=1 (grey) or 3 (colour), not {channels}.")
    if not 0 <= noise <= 1:
        raise InputError(f"shapes needs a noise between 0 and 1, not {noise}.")
    if classes * (train + test) * channels * size * size > _MOST:
        raise InputError(
            f"shapes of {classes} classes, {train} + {test} images each, {channels}x{size}x{size}, are more than "
            f"{_MOST // 2**30} GiB; ask for fewer or smaller ones."
        )
    parts = []
    for part, count in (("train", train), ("test", test)):
        images = np.empty((classes, count, channels, size, size), dtype=np.uint8)
        for label in range(classes):
            rng = Rng(seed)  # a new one per class: it keeps the last block of every purpose
            for start in range(0, count, CHUNK):
                drawn = _draw(rng, f"shapes {part} {label}", start // CHUNK, label, size, channels, noise)
                images[label, start : start + CHUNK] = drawn[: count - start]
        parts.append((images.reshape(-1, channels, size, size), np.repeat(np.arange(classes), count)))
    names = [f"{kind} {round_}" if round_ else kind for round_, kind in map(_kind, range(classes))]
    return Dataset.from_arrays(*parts[0], *parts[1], name="shapes", classes=names, layout="NCHW")


def _kind(label: int) -> tuple[int, str]:
    round_, at = divmod(label, len(KINDS))
    return round_, list(KINDS)[at]


def _draw(rng: Rng, purpose: str, step: int, label: int, size: int, channels: int, noise: float) -> NDArray[np.uint8]:
    """(CHUNK, channels, size, size): the shape over its ground, then noise."""
    round_, kind = _kind(label)
    chances = rng.uniforms(purpose, step, CHUNK * 8).reshape(8, CHUNK, 1, 1)
    dx, dy, turn, scale, phase, ink, paper, hue = (chances - 0.5).astype(np.float32)  # each in [-0.5, 0.5)

    axis = (np.arange(size, dtype=np.float32) + 0.5) * 2 / size - 1
    x, y = axis[None, None, :] - 0.5 * dx, axis[None, :, None] - 0.5 * dy
    cos, sin = _direction(0.8 * turn)  # up to 23 degrees either way
    reach = 0.65 + 0.2 * scale
    u, v = (cos * x + sin * y) / reach, (cos * y - sin * x) / reach
    edge = reach * size / 2  # pixels per unit of distance: edges are one pixel soft
    inside = np.clip(0.5 - KINDS[kind](u, v) * edge, 0, 1)

    ground = 0.25 + 0.2 * paper + (_stripes(x, y, round_, phase) if round_ else 0)
    top = 0.85 + 0.2 * ink
    grey = (ground + inside * (top - ground))[:, None]
    if channels == 3:
        grey = grey * _tint(inside, round_, hue)
    blur = rng.uniforms(f"{purpose} noise", step, grey.size).reshape(grey.shape) - 0.5
    pixels = grey + noise * math.sqrt(12) * blur.astype(np.float32)  # a uniform has variance 1/12
    image_bytes: NDArray[np.uint8] = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    return image_bytes


def _direction(angle: _Field) -> tuple[_Field, _Field]:
    """Cosine and sine by the half-angle formula with tan(a/2) ~ a/2: a true unit vector from exact operations."""
    half = angle / 2
    return (1 - half * half) / (1 + half * half), 2 * half / (1 + half * half)


def _stripes(x: _Field, y: _Field, round_: int, phase: _Field) -> _Field:
    """A triangle wave whose direction and width belong to the round, and whose phase to the image."""
    angle = math.pi * (round_ * GOLDEN % 1)
    waves = 1.5 + 2 * (round_ * GOLDEN * GOLDEN % 1)
    along = waves / 2 * math.cos(angle) * x + waves / 2 * math.sin(angle) * y + phase
    return 1.2 * np.abs(along - np.floor(along) - 0.5) - 0.3


def _tint(inside: _Field, round_: int, hue: _Field) -> _Field:
    """(n, 3, H, W) of factors: the shape in the hue of its round, the ground in the opposite one."""
    turn = (round_ * GOLDEN + 0.15 * hue) % 1  # (n, 1, 1)
    thirds = np.array([0, 1 / 3, 2 / 3], dtype=np.float32)[None, :, None, None]
    away = np.abs((turn[:, None] - thirds + 0.5) % 1 - 0.5)  # 0 at the hue, 0.5 opposite
    shape, ground = 1 - 1.4 * away, 0.3 + 1.4 * away
    return ground + inside[:, None] * (shape - ground)


def _box(u: _Field, v: _Field, width: float, height: float) -> _Field:
    return np.maximum(np.abs(u) - width, np.abs(v) - height)


def _round(u: _Field, v: _Field) -> _Field:
    distance: _Field = np.sqrt(u * u + v * v)
    return distance


# Roughly the distance to the edge of each shape of size 1, negative inside.
KINDS: dict[str, Callable[[_Field, _Field], _Field]] = {
    "bar": lambda u, v: _box(u, v, 1.0, 0.28),
    "disc": lambda u, v: _round(u, v) - 0.85,
    "cross": lambda u, v: np.minimum(_box(u, v, 1.0, 0.25), _box(u, v, 0.25, 1.0)),
    "ring": lambda u, v: np.abs(_round(u, v) - 0.72) - 0.24,
    "post": lambda u, v: _box(u, v, 0.28, 1.0),
    "wedge": lambda u, v: np.maximum(0.88 * np.abs(u) - 0.47 * (v + 1), v - 0.75),
    "frame": lambda u, v: np.abs(_box(u, v, 0.72, 0.72)) - 0.2,
    "corner": lambda u, v: np.minimum(_box(u, v - 0.65, 0.9, 0.25), _box(u + 0.65, v, 0.25, 0.9)),
    "pair": lambda u, v: _box(np.abs(u) - 0.6, v, 0.25, 0.8),
    "moon": lambda u, v: np.maximum(_round(u, v) - 0.9, 0.7 - _round(u - 0.45, v)),
}  # fmt: skip

"""Shear, shift and turn: each output pixel takes the nearest pixel of where it comes from, or black."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = tuple[float, float, float, float, float, float]  # (a, b, c, d, e, f): x from ax + by + c, y from dx + ey + f


def matrix(operation: str, magnitude: float, height: int, width: int) -> Matrix:
    """Where an output point comes from; the origin is the top left corner and pixel (0, 0) has its centre at 0.5, 0.5.

    A shear keeps the top left corner, a rotation (counter-clockwise, in degrees) the middle. A positive shift goes to
    the right or down.

    >>> matrix("TranslateX", 3, 32, 32)
    (1.0, 0.0, -3.0, 0.0, 1.0, 0.0)
    """
    if operation == "ShearX":
        return 1.0, magnitude, 0.0, 0.0, 1.0, 0.0
    if operation == "ShearY":
        return 1.0, 0.0, 0.0, magnitude, 1.0, 0.0
    if operation == "TranslateX":
        return 1.0, 0.0, -float(magnitude), 0.0, 1.0, 0.0
    if operation == "TranslateY":
        return 1.0, 0.0, 0.0, 0.0, 1.0, -float(magnitude)
    assert operation == "Rotate", operation
    cos, sin = math.cos(math.radians(magnitude)), math.sin(math.radians(magnitude))
    x, y = width / 2, height / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y


def sources(matrix: Matrix, height: int, width: int) -> NDArray[np.int64]:
    """(H*W,) the pixel that each output pixel shows; H*W is black.

    In double precision on the host, so all devices show the same pixels. A source exactly between two pixels is rounded
    to the even one; torchvision leaves such a tie to the noise of float32. No step of a policy comes near one up to 64.
    """
    a, b, c, d, e, f = matrix
    y, x = np.mgrid[:height, :width].reshape(2, -1) + 0.5
    column = np.rint(a * x + b * y + c - 0.5).astype(np.int64)
    row = np.rint(d * x + e * y + f - 0.5).astype(np.int64)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return np.where(inside, row * width + column, height * width)


def warp(images: Tensor, sources: Tensor) -> Tensor:
    """(B, C, H, W) uint8 and (B, H*W) sources -> (B, C, H, W) uint8."""
    n, channels, height, width = images.shape
    framed = torch.constant_pad_nd(images.flatten(2), (0, 1))  # one black pixel at the end
    return framed.gather(2, sources.unsqueeze(1).expand(n, channels, height * width)).view(images.shape)

"""Image operations on whole batches, uint8 in and out: blends, tables of grey levels, and warps."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = tuple[float, float, float, float, float, float]  # (a, b, c, d, e, f): x from ax + by + c, y from dx + ey + f


def blend(images: Tensor, other: Tensor | float, own: Tensor, rest: Tensor) -> Tensor:
    """own * images + rest * other, cut to 0..255 and rounded down; own is 1 + magnitude, rest is -magnitude.

    Beyond 1 it moves away from `other`: more colour, a sharper image. 1 and 0 leave an image exactly as it is.
    """
    return (own * images + rest * other).clamp_(0, 255).to(torch.uint8)


def grey(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, 1, H, W) uint8: luminance, rounded down; grey images as they are."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    luminance: Tensor = 0.2989 * red + 0.587 * green + 0.114 * blue
    return luminance.to(torch.uint8)


def smooth(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> the same: each pixel five times and its eight neighbours once; the border as it is.

    A sum over 13 is never halfway between two whole numbers, so no order of adding can change the rounding.
    """
    values = images.float()
    rows = values[:, :, :-2] + values[:, :, 1:-1] + values[:, :, 2:]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * values[:, :, 1:-1, 1:-1]
    smoothed = images.clone()
    smoothed[:, :, 1:-1, 1:-1] = sums.div_(13).round_().to(torch.uint8)
    return smoothed


def level_table(operation: str, magnitude: float) -> Tensor:
    """(256,) uint8, the same for every image: Invert, Posterize (bits kept), Solarize (threshold), Brightness.

    >>> level_table("Posterize", 4)[[15, 16, 255]].tolist(), level_table("Solarize", 170.0)[[169, 170, 255]].tolist()
    ([0, 16, 240], [169, 85, 0])
    """
    level = torch.arange(256, dtype=torch.uint8)
    if operation == "Invert":
        return 255 - level
    if operation == "Posterize":
        dropped = 8 - int(magnitude)
        return level >> dropped << dropped
    if operation == "Solarize":
        return torch.where(level >= magnitude, 255 - level, level)
    assert operation == "Brightness", operation
    return blend(level, 0, *blend_weights(magnitude))


def blend_weights(magnitude: float) -> Tensor:
    """(2,) float32: the weights of the image itself and of what it is blended with."""
    own = 1.0 + magnitude
    return torch.tensor((own, 1.0 - own), dtype=torch.float32)


def contrast_table(images: Tensor, own: Tensor, rest: Tensor) -> Tensor:
    """(B, C, H, W) uint8, (B, 1, 1) twice -> (B, 1, 256) uint8: a blend with the mean of the grey image, not rounded.

    The sum is of whole numbers and exact, so the mean is the same however it is added up.
    """
    height, width = images.shape[2:]
    mean = grey(images).sum((2, 3), dtype=torch.int64).float().div_(height * width)  # (B, 1)
    return blend(torch.arange(256, device=images.device), mean.unsqueeze(2), own, rest)


def apply_tables(images: Tensor, tables: Tensor) -> Tensor:
    """(B, C, H, W) uint8 and (B, C or 1, 256) uint8 -> (B, C, H, W) uint8."""
    n, channels, _, _ = images.shape
    return tables.expand(n, channels, 256).gather(2, images.flatten(2).long()).view(images.shape)


def autocontrast_table(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, C, 256) uint8: darkest to 0, brightest to 255; a channel of one level stays."""
    pixels, level = images.flatten(2), torch.arange(256, device=images.device)
    low, high = pixels.amin(2, keepdim=True).float(), pixels.amax(2, keepdim=True).float()  # a third of aminmax's time
    flat = low == high
    scale = torch.where(flat, 1, (high - low).reciprocal() * 255)  # in two roundings, as torchvision's 255 / tensor
    return ((level - torch.where(flat, 0, low)) * scale).clamp_(0, 255).to(torch.uint8)


def equalize_table(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, C, 256) uint8: levels spread so that each is about as frequent as any other.

    step = (pixels but those of the brightest level) // 255; level v becomes (pixels darker than v + step // 2) // step.
    With a step of 0 the channel stays as it is.
    """
    pixels = images.flatten(2).long()
    n, channels, size = pixels.shape
    one = torch.ones((), dtype=torch.int64, device=images.device)
    counts = torch.zeros(n, channels, 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, pixels, one.expand(pixels.shape))
    brightest = pixels.amax(2, keepdim=True)
    step = torch.div(size - counts.gather(2, brightest), 255, rounding_mode="floor")  # (B, C, 1)
    darker = counts.cumsum(2).sub_(counts)
    spread = torch.div(darker + torch.div(step, 2, rounding_mode="floor"), step.clamp(min=1), rounding_mode="floor")
    level = torch.arange(256, device=images.device)
    return torch.where(step == 0, level, spread.clamp_(max=255)).to(torch.uint8)


def affine_matrix(operation: str, magnitude: float, height: int, width: int) -> Matrix:
    """Maps an output point to its source; the origin is the top left corner, the centre of pixel (0, 0) is 0.5, 0.5.

    A shear keeps the top left corner, a rotation (counter-clockwise, in degrees) the middle. A positive shift goes to
    the right or down.

    >>> affine_matrix("TranslateX", 3, 32, 32)
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


def source_pixels(matrix: Matrix, height: int, width: int) -> NDArray[np.int64]:
    """(H*W,) the source pixel of each output pixel; H*W means black.

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

"""Point operations as tables: what each of the 256 grey levels becomes, per image and channel."""

from __future__ import annotations

import torch
from torch import Tensor

from iblurry.augment.colour import blend, grey


def fixed(operation: str, magnitude: float) -> Tensor:
    """(256,) uint8, the same for every image: Invert, Posterize (bits kept), Solarize (threshold), Brightness.

    >>> fixed("Posterize", 4)[[15, 16, 255]].tolist(), fixed("Solarize", 170.0)[[169, 170, 255]].tolist()
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
    return blend(level, 0, *factors(magnitude))


def factors(magnitude: float) -> Tensor:
    """(2,) float32: the shares of the image itself and of what it is blended with."""
    own = 1.0 + magnitude
    return torch.tensor((own, 1.0 - own), dtype=torch.float32)


def contrast(images: Tensor, own: Tensor, rest: Tensor) -> Tensor:
    """(B, C, H, W) uint8, (B, 1, 1) twice -> (B, 1, 256) uint8: a blend with the mean of the grey image, not rounded.

    The sum is of whole numbers and exact, so the mean is the same however it is added up.
    """
    height, width = images.shape[2:]
    mean = grey(images).sum((2, 3), dtype=torch.int64).float().div_(height * width)  # (B, 1)
    return blend(torch.arange(256, device=images.device), mean.unsqueeze(2), own, rest)


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """(B, C, H, W) uint8 and (B, C or 1, 256) uint8 -> (B, C, H, W) uint8."""
    n, channels, _, _ = images.shape
    return tables.expand(n, channels, 256).gather(2, images.flatten(2).long()).view(images.shape)

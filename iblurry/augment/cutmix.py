"""CutMix: a box of every image is replaced by the same box of another image of the batch.

Yun et al., "CutMix: regularization strategy to train strong classifiers with localizable features", ICCV 2019.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Box(NamedTuple):
    """Rows x1:x2 and columns y1:y2 (x is the first spatial axis, tensor dim 2), and the share of the image outside."""

    x1: int
    y1: int
    x2: int
    y2: int
    lam: float


def box(lam: float, cx: int, cy: int, height: int, width: int) -> Box:
    """The box that leaves about `lam` of the image, around (cx, cy), clipped to the image.

    Half a side is floor(side * sqrt(1 - lam)) // 2, so sides are even before clipping; lam becomes 1 - area / (H*W).

    >>> box(0.5, 16, 16, 32, 32)
    Box(x1=5, y1=5, x2=27, y2=27, lam=0.52734375)
    """
    ratio = math.sqrt(1 - lam)
    half_x, half_y = int(height * ratio) // 2, int(width * ratio) // 2
    x1, x2 = max(cx - half_x, 0), min(cx + half_x, height)
    y1, y2 = max(cy - half_y, 0), min(cy + half_y, width)
    return Box(x1, y1, x2, y2, 1 - (x2 - x1) * (y2 - y1) / (height * width))


class Mix:
    """Paste the partner's box, without asking whether there is one."""

    def __init__(self, *, height: int, width: int, device: torch.device | str = "cpu") -> None:
        row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        self._pixels = torch.stack((row, column, -row - 1, -column - 1)).to(device)  # (4, H, W)
        self._signs = torch.tensor([1, 1, -1, -1], device=device)

    def __call__(self, images: Tensor, partner: Tensor, edges: Tensor) -> Tensor:
        """(B, C, H, W) float, (B,) int64 and (4,) int64 x1, y1, x2, y2 -> (B, C, H, W); equal edges are no box."""
        # A pixel is inside when row >= x1, column >= y1, -row - 1 >= -x2 and -column - 1 >= -y2.
        inside = (self._pixels >= (edges * self._signs).view(4, 1, 1)).all(0)
        # lerp by 0 or 1 gives either end exactly, and takes a third of where's time on a CPU.
        return torch.lerp(images, images.index_select(0, partner), inside.to(images.dtype))

"""Random crop and flip as one gather, and CutMix, for whole batches."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class CropFlip:
    """Shifts each image by up to `pad` pixels over a black border and mirrors half of them.

    An output pixel is read from the padded image at start + path[pixel]: `start` is the crop's corner and there are two
    paths, mirrored and upright. So one gather does both, and one addition makes its index.
    """

    def __init__(self, *, pad: int, flip: bool, height: int, width: int, device: torch.device | str = "cpu") -> None:
        self.pad, self.flip = pad, flip
        self._choices = np.array([[2 * pad + 1], [2 * pad + 1], [2]])
        self._stride = width + 2 * pad
        self._height = height
        rows = torch.arange(height)[:, None] * self._stride
        columns = torch.arange(width)
        paths = torch.stack((rows + (columns.flip(0) if flip else columns), rows + columns))
        self.paths = paths.view(2, 1, height * width).to(device)  # (2, 1, H*W) int64: mirrored, upright

    def offsets(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Uniforms (..., 3, n) for y, x and mirroring -> (..., 2, n): the corner of each crop, and its path.

        An offset is floor(u * (2*pad + 1)); an image is mirrored if u < 0.5. These integers are made on the host:
        NumPy needs a third of torch's time for them, and all devices see the same crops.
        """
        offsets: NDArray[np.int64] = (uniforms * self._choices).astype(np.int64)
        offsets[..., 1, :] += offsets[..., 0, :] * self._stride
        return offsets[..., 1:, :]

    def rows(self, offsets: Tensor, channels: int) -> Tensor:
        """(steps, 2, n) offsets -> (steps, n, C * H): where each row of a crop begins in the padded images."""
        starts, upright = offsets.unbind(1)
        y, x = starts // self._stride, starts % self._stride
        wide = self._stride * (1 + self.flip)  # with the mirrored row behind each
        if self.flip:
            x = torch.where(upright == 0, self._stride + 2 * self.pad - x, x)
        plane = wide * (self._height + 2 * self.pad)
        first = y * wide + x + torch.arange(y.shape[1]) * (channels * plane)
        rows = torch.arange(channels)[:, None] * plane + torch.arange(self._height) * wide
        return first[:, :, None] + rows.flatten()

    def __call__(self, images: Tensor, offsets: Tensor, rows: Tensor | None = None) -> Tensor:
        """(B, C, H, W) uint8 and (2, B) offsets -> (B, C, H, W) uint8; with `rows` of them in half of a CPU's time."""
        if not (self.pad or self.flip):
            return images
        n, channels, height, width = images.shape
        if rows is not None:
            padded = torch.constant_pad_nd(images, (self.pad,) * 4)
            padded = torch.cat((padded, padded.flip(3)), 3) if self.flip else padded
            return padded.flatten().unfold(0, width, 1).index_select(0, rows.flatten()).view_as(images)
        starts, paths = offsets.unbind()
        index = self.paths.index_select(0, paths).add_(starts.view(n, 1, 1))  # (B, 1, H*W)
        padded = torch.constant_pad_nd(images, (self.pad,) * 4).flatten(2)
        return padded.gather(2, index.expand(n, channels, height * width)).view_as(images)


class CutMix:
    """Replaces a box of every image by the same box of another image of the batch; an empty box changes nothing.

    Yun et al., "CutMix: regularization strategy to train strong classifiers with localizable features", ICCV 2019.
    """

    def __init__(self, *, height: int, width: int, device: torch.device | str = "cpu") -> None:
        row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        self._pixels = torch.stack((row, column, -row - 1, -column - 1)).to(device)[:, None, None]  # (4, 1, 1, H, W)
        self._signs = torch.tensor([[1], [1], [-1], [-1]], device=device)

    def __call__(self, images: Tensor, partner: Tensor, inside: Tensor) -> Tensor:
        """(B, C, H, W) float, (B,) int64 and what `inside` returns -> (B, C, H, W)."""
        # lerp by 0 or 1 gives either end exactly, and takes a third of where's time on a CPU.
        return torch.lerp(images, images.index_select(0, partner), inside)

    def inside(self, edges: Tensor) -> Tensor:
        """1 for each pixel inside its box, else 0, (1 or B, 1, H, W) float; equal edges are no box.

        Parameters
        ----------
        edges : Tensor
            x1, y1, x2 and y2: int64, (4,), or (4, B) where each image has a box of its own.
        """
        # A pixel is inside when row >= x1, column >= y1, -row - 1 >= -x2 and -column - 1 >= -y2.
        pixels = self._pixels >= (edges.view(4, -1) * self._signs)[:, :, None, None, None]
        return pixels.all(0).to(torch.float32)


class CutMixBox(NamedTuple):
    """Rows x1:x2 and columns y1:y2 (x is the first spatial axis, tensor dim 2), and the share of the image outside."""

    x1: int
    y1: int
    x2: int
    y2: int
    lam: float


def cutmix_box(lam: float, cx: int, cy: int, height: int, width: int) -> CutMixBox:
    """The box that leaves about `lam` of the image, around (cx, cy), clipped to the image.

    Half a side is floor(side * sqrt(1 - lam)) // 2, so sides are even before clipping; lam becomes 1 - area / (H*W).

    >>> cutmix_box(0.5, 16, 16, 32, 32)
    CutMixBox(x1=5, y1=5, x2=27, y2=27, lam=0.52734375)
    """
    ratio = math.sqrt(1 - lam)
    half_x, half_y = int(height * ratio) // 2, int(width * ratio) // 2
    x1, x2 = max(cx - half_x, 0), min(cx + half_x, height)
    y1, y2 = max(cy - half_y, 0), min(cy + half_y, width)
    return CutMixBox(x1, y1, x2, y2, 1 - (x2 - x1) * (y2 - y1) / (height * width))

"""Two hidden layers on rows of numbers, which the memory keeps as the bytes of float32."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from iblurry.network.mlp import MLP

BYTES = 4  # of a float32
FAR = 10.0  # standard deviations; what lies beyond counts as this far


class Numbers(nn.Module):
    """Puts each number together again, standardises it by all rows met so far, then twice linear and ReLU.

    A row of n numbers is an image (1, n, 4) of bytes, so a memory of pixels keeps it to the last bit. Its scale belongs
    to the network and not to what is stored: it may go on moving while rows stay what they were.

    >>> body = Numbers((1, 2, BYTES))
    >>> for row in to_bytes(np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float32)):
    ...     body.meet(torch.from_numpy(row))
    >>> body.mean.tolist(), body.scale().tolist()
    ([2.0, 5.0], [1.0, 1.0])
    """

    met: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, image: tuple[int, int, int], *, width: int = 256) -> None:
        super().__init__()
        _, numbers, size = image
        assert size == BYTES, "a number is four bytes"
        self.layers = MLP((1, 1, numbers), width=width)
        self.features = width
        self.register_buffer("met", torch.zeros((), dtype=torch.int64))  # rows
        self.register_buffer("mean", torch.zeros(numbers, dtype=torch.float64))  # of each number over these rows
        self.register_buffer("squares", torch.zeros(numbers, dtype=torch.float64))  # sum of squared distances from it

    def forward(self, images: Tensor) -> Tensor:
        """(B, 1, n, 4) bytes as floats, whole and from 0 to 255 -> (B, width)."""
        standard = (_numbers(images.to(torch.uint8)) - self.mean) / self.scale()
        features: Tensor = self.layers(standard.clamp_(-FAR, FAR).float())
        return features

    @torch.no_grad()
    def meet(self, image: Tensor) -> None:
        """One more row (uint8, (1, n, 4)) counts for mean and scale (Welford, Technometrics 1962)."""
        row = _numbers(image[None])[0]
        self.met += 1
        before = row - self.mean
        self.mean += before / self.met
        self.squares += before * (row - self.mean)

    def scale(self) -> Tensor:
        """The standard deviation of each number; 1 where it never changed, (n,)."""
        deviation = (self.squares / self.met).sqrt()
        return torch.where(deviation > 0, deviation, 1.0)


def to_bytes(rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """(N, n) -> (N, 1, n, 4)."""
    return np.ascontiguousarray(rows, dtype=np.float32).view(np.uint8).reshape(len(rows), 1, -1, BYTES)


def from_bytes(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(N, 1, n, 4) -> (N, n)."""
    return np.ascontiguousarray(images).view(np.float32)[:, 0, :, 0]


def _numbers(images: Tensor) -> Tensor:
    """(B, 1, n, 4) uint8 -> (B, n) float64, in which a large mean can be taken away without loss."""
    return images.contiguous().view(torch.float32)[:, 0, :, 0].double()

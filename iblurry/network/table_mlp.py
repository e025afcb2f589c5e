"""An MLP on rows of numbers (tables), which the memory of images keeps as the bytes of float32."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from iblurry.network.bodies import MLP

BYTES = 4  # of a float32
CLIP = 10.0  # standard deviations: standardised values are clipped to ±CLIP


class TableMLP(nn.Module):
    """Decodes each row, standardises it by the running mean and deviation, then twice linear and ReLU.

    A row of n numbers is an image (1, n, 4) of bytes, so a memory of pixels keeps it exactly. The statistics belong to
    the network and not to what is stored: they may go on moving while stored rows stay what they were.

    Parameters
    ----------
    image : tuple of int
        (1, n, 4): n numbers of four bytes.
    width : int, default 256
        Units of each hidden layer.

    Examples
    --------
    >>> body = TableMLP((1, 2, BYTES))
    >>> for row in to_bytes(np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float32)):
    ...     body.update_statistics(torch.from_numpy(row))
    >>> body.mean.tolist(), body.scale().tolist()
    ([2.0, 5.0], [1.0, 1.0])
    """

    count: Tensor
    mean: Tensor
    sum_squares: Tensor

    def __init__(self, image: tuple[int, int, int], *, width: int = 256) -> None:
        super().__init__()
        _, numbers, size = image
        assert size == BYTES, "a number is four bytes"
        self.layers = MLP((1, 1, numbers), width=width)
        self.features = width
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))  # rows
        self.register_buffer("mean", torch.zeros(numbers, dtype=torch.float64))  # (n,)
        self.register_buffer(
            "sum_squares", torch.zeros(numbers, dtype=torch.float64)
        )  # (n,) squared deviations from the mean

    def forward(self, images: Tensor) -> Tensor:
        """(B, 1, n, 4) bytes as floats, whole and from 0 to 255 -> (B, width)."""
        features: Tensor = self.layers(self.standardised(images))
        return features

    def standardised(self, images: Tensor) -> Tensor:
        """(B, 1, n, 4) bytes as floats -> (B, n), by the statistics of now."""
        standard = (_numbers(images.to(torch.uint8)) - self.mean) / self.scale()
        return standard.clamp_(-CLIP, CLIP).float()

    @torch.no_grad()
    def update_statistics(self, image: Tensor) -> None:
        """Counts one row, uint8 (1, n, 4), into mean and deviation (Welford, Technometrics 1962)."""
        row = _numbers(image[None])[0]
        self.count += 1
        before = row - self.mean
        self.mean += before / self.count
        self.sum_squares += before * (row - self.mean)

    def scale(self) -> Tensor:
        """The standard deviation of each number; 1 where it never changed, (n,)."""
        deviation = (self.sum_squares / self.count).sqrt()
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

"""Random crop with zero padding and horizontal flip, as one gather."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class CropFlip:
    """Shift each image by up to `pad` pixels over a black border and mirror half of them.

    An output pixel lies in the padded image at start + path[pixel]: `start` is where the crop begins and there are two
    paths, mirrored and upright. So one gather does both, and one addition makes its index.
    """

    def __init__(self, *, pad: int, flip: bool, height: int, width: int, device: torch.device | str = "cpu") -> None:
        self.pad, self.flip = pad, flip
        self._choices = np.array([[2 * pad + 1], [2 * pad + 1], [2]])
        self._stride = width + 2 * pad
        rows = torch.arange(height)[:, None] * self._stride
        columns = torch.arange(width)
        paths = torch.stack((rows + (columns.flip(0) if flip else columns), rows + columns))
        self._paths = paths.view(2, 1, height * width).to(device)  # (2, 1, H*W) int64: mirrored, upright

    def places(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Uniforms (..., 3, n) for y, x and mirroring -> (..., 2, n): where each crop starts, and which path it takes.

        An offset is floor(u * (2*pad + 1)); an image is mirrored if u < 0.5. These whole numbers are made on the host:
        NumPy needs a third of torch's time for them, and all devices see the same crops.
        """
        whole: NDArray[np.int64] = (uniforms * self._choices).astype(np.int64)
        whole[..., 1, :] += whole[..., 0, :] * self._stride
        return whole[..., 1:, :]

    def __call__(self, images: Tensor, places: Tensor) -> Tensor:
        """(B, C, H, W) uint8 and (2, B) places -> (B, C, H, W) uint8."""
        if not (self.pad or self.flip):
            return images
        n, channels, height, width = images.shape
        starts, paths = places.unbind()
        index = self._paths.index_select(0, paths).add_(starts.view(n, 1, 1))  # (B, 1, H*W)
        padded = torch.constant_pad_nd(images, (self.pad,) * 4).flatten(2)
        return padded.gather(2, index.expand(n, channels, height * width)).view_as(images)

"""Training images on the device: copied once for all runs of this process on the same data set."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from iblurry.data.dataset import Dataset
from iblurry.data.images import PictureFiles, eager_bytes

CHUNK = 4096  # images copied together, so that the buffer on the way takes little memory

_copies: WeakKeyDictionary[Dataset, dict[torch.device, Tensor]] = WeakKeyDictionary()  # freed with the data set


def device_images(dataset: Dataset, device: torch.device) -> Tensor | None:
    """(N, C, H, W) uint8 on the device; None where images stay on the disk or take more than `eager_bytes`."""
    images = dataset.train.images
    if isinstance(images, PictureFiles) or math.prod(images.shape) > eager_bytes():
        return None
    copies = _copies.setdefault(dataset, {})
    if device not in copies:
        copies[device] = _copy(dataset, device)
    return copies[device]


def _copy(dataset: Dataset, device: torch.device) -> Tensor:
    images = dataset.train.images
    copy = torch.empty(images.shape, dtype=torch.uint8, device=device)
    for start in range(0, len(images), CHUNK):
        chunk = np.array(images[start : start + CHUNK])  # torch shares only arrays that may be written to
        copy[start : start + CHUNK] = torch.from_numpy(chunk)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # runs in other CUDA streams must not read before it is there
    return copy

"""AutoContrast and Equalize: tables made from the grey levels that an image has, channel by channel."""

from __future__ import annotations

import torch
from torch import Tensor


def autocontrast(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, C, 256) uint8: darkest to 0, brightest to 255; a channel of one level stays."""
    pixels, level = images.flatten(2), torch.arange(256, device=images.device)
    low, high = pixels.amin(2, keepdim=True).float(), pixels.amax(2, keepdim=True).float()  # a third of aminmax's time
    flat = low == high
    scale = torch.where(flat, 1, (high - low).reciprocal() * 255)  # in two roundings, as torchvision's 255 / tensor
    return ((level - torch.where(flat, 0, low)) * scale).clamp_(0, 255).to(torch.uint8)


def equalize(images: Tensor) -> Tensor:
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

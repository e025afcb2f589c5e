"""The unit every convolutional body is made of: convolution, batch norm, ReLU."""

from __future__ import annotations

from torch import nn


class Unit(nn.Sequential):
    """A convolution without bias that keeps the side (over the stride), batch norm with eps 1e-6, ReLU."""

    def __init__(self, channels: int, width: int, *, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(width, eps=1e-6, momentum=0.1),
            nn.ReLU(inplace=True),
        )

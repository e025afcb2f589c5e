"""The unit every convolutional body is made of: convolution, batch norm, ReLU."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F


class Norm(nn.BatchNorm2d):
    """Batch norm that does not count its batches: nobody reads the number, and counting is a kernel for each layer."""

    def forward(self, maps: Tensor) -> Tensor:
        mean, var, momentum = self.running_mean, self.running_var, self.momentum
        assert momentum is not None
        return F.batch_norm(maps, mean, var, self.weight, self.bias, self.training, momentum, self.eps)


class Unit(nn.Sequential):
    """A convolution without bias that keeps the side (over the stride), batch norm with eps 1e-6, ReLU."""

    folded: Callable[..., Tensor] | None = None  # does the same in eval mode, where someone prepared it, and then adds

    learn: Callable[[Tensor, Unit], Tensor] | None = None  # its convolution by another way, where someone has one

    rounded: Tensor | None = None  # its weights in bfloat16, while someone keeps them so

    def __init__(self, channels: int, width: int, *, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False),
            Norm(width, eps=1e-6, momentum=0.1),
            nn.ReLU(inplace=True),
        )

    def forward(self, maps: Tensor) -> Tensor:
        if self.folded is not None:
            return self.folded(maps)
        layers = iter(self)
        if self.learn is not None:
            next(layers)
            maps = self.learn(maps, self)
        for layer in layers:
            maps = layer(maps)
        return maps

    @property
    def convolution(self) -> nn.Conv2d:
        conv = self[0]
        assert isinstance(conv, nn.Conv2d)
        return conv

    @property
    def norm(self) -> nn.BatchNorm2d:
        norm = self[1]
        assert isinstance(norm, nn.BatchNorm2d)
        return norm

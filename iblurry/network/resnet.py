"""ResNet-18 and ResNet-34 with the stems for small and for large images, ReLU before the sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from iblurry.network.unit import Unit

Stem = Literal["cifar", "imagenet"]

# The side whose last map is 2x2, so that batch norm can train on one image.
SMALLEST: dict[Stem, int] = {"cifar": 16, "imagenet": 64}


class ResNet(nn.Module):
    """Stem, four stages of blocks (widths 64, 128, 256, 512; strides 1, 2, 2, 2), global average pool.

    cifar stem: 3x3 unit, stride 1. imagenet stem: 7x7 unit, stride 2, then 3x3 max-pool, stride 2.

    He et al., "Deep residual learning for image recognition", CVPR 2016.
    Differs: ReLU before the sum on both branches (see Block), as in the published experiments of CLIB.
    """

    def __init__(self, channels: int, *, blocks: Sequence[int], stem: Stem) -> None:
        super().__init__()
        layers: list[nn.Module] = (
            [Unit(channels, 64)]
            if stem == "cifar"
            else [Unit(channels, 64, kernel=7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)]
        )
        last = 64
        for width, stride, depth in zip((64, 128, 256, 512), (1, 2, 2, 2), blocks, strict=True):
            layers += [Block(last, width, stride=stride), *(Block(width, width) for _ in range(depth - 1))]
            last = width
        self.layers = nn.Sequential(*layers)
        self.features = last

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, 512)."""
        maps: Tensor = self.layers(images)
        return maps.mean(dim=(2, 3))


class Block(nn.Module):
    """unit(unit(x)) + shortcut(x): both branches end with ReLU, and nothing follows the sum.

    The shortcut is the identity when the shape stays, else a full 1x1 unit. The ReLU that the ImageNet variant has
    after the sum is left out: behind its stem both terms are never negative, so it changes nothing.
    """

    def __init__(self, channels: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        last = Unit(width, width)
        self.branch = nn.Sequential(Unit(channels, width, stride=stride), last)
        self._last = (last,)  # not a second child
        same = channels == width and stride == 1
        self.shortcut = nn.Identity() if same else Unit(channels, width, kernel=1, stride=stride)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, width, H / stride, W / stride)."""
        (last,) = self._last
        if last.folded is not None:
            return last.folded(self.branch[0](maps), plus=self.shortcut(maps))
        added: Tensor = self.branch(maps) + self.shortcut(maps)
        return added

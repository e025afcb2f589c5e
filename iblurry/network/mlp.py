"""Two hidden layers on flattened pixels."""

from __future__ import annotations

import math

from torch import Tensor, nn


class MLP(nn.Module):
    """Flatten, then twice linear and ReLU."""

    def __init__(self, image: tuple[int, int, int], *, width: int) -> None:
        super().__init__()
        pixels = math.prod(image)
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.features = width

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, width)."""
        features: Tensor = self.layers(images)
        return features

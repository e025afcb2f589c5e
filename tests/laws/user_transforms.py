"""Transforms as a user would write them: the laws hold for methods that train with them."""

from typing import ClassVar

import torch

from iblurry import Transform


class Negative(Transform):
    """Inverts some images."""

    uniforms: ClassVar[int] = 1

    p: float = 0.5

    def __call__(self, images, uniforms):
        return torch.where(uniforms[:, :, None, None] < self.p, 255 - images, images)


class Brightness(Transform):
    """Adds a number of its own to each normalised image."""

    uniforms: ClassVar[int] = 1
    works_on: ClassVar = "floats"

    scale: float = 0.5

    def __call__(self, images, uniforms):
        return images + self.scale * (2 * uniforms[:, :, None, None] - 1)

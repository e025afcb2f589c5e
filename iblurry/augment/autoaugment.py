"""AutoAugment for a batch: the host draws a sub-policy per image, the device does its two deeds."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.augment.image_ops import Groups, ImageOp, ImageOps
from iblurry.augment.policies import POLICIES, SIGNED, magnitudes
from iblurry.errors import InputError

DRAWS = 5  # uniforms per image: the sub-policy, whether each of its steps is taken, and their signs


class AutoAugment:
    """One of 25 sub-policies for each image, each of two steps, each taken with its own chance and a random sign."""

    def __init__(self, policy: str, shape: tuple[int, int, int], device: torch.device | str = "cpu") -> None:
        channels, height, width = shape
        if channels not in (1, 3):
            raise InputError(
                f"policy is {policy!r}, but AutoAugment varies grey or colour images and these have {channels} "
                "channels; use policy=None."
            )
        strengths = magnitudes(height, width)
        numbers: dict[ImageOp, int] = {ImageOp("Identity"): 0}

        def number(operation: str, at: int | None, sign: int) -> int:
            strength = 0.0 if at is None else strengths[operation][at]
            deed = ImageOp(operation, -strength if operation in SIGNED and sign == 0 else strength)
            return numbers.setdefault(deed, len(numbers))

        steps = POLICIES[policy]
        self._chance = np.array([[step.chance for step in pair] for pair in steps])  # (25, 2)
        self._numbers = np.array(
            [[[number(step.operation, step.bin, sign) for sign in (0, 1)] for step in pair] for pair in steps]
        )  # (25, 2, 2): sub-policy, step, sign
        self.image_ops = ImageOps(list(numbers), shape, device)

    def draw(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Uniforms (..., 5, n) -> (..., 2, n) numbers of deeds.

        A step is taken if its uniform is at most its chance; a signed magnitude is negative if its own is below 0.5.
        """
        chosen = (uniforms[..., :1, :] * len(self._chance)).astype(np.int64)
        step = np.arange(2)[:, None]
        taken = uniforms[..., 1:3, :] <= self._chance[chosen, step]
        sign = (uniforms[..., 3:5, :] * 2).astype(np.int64)
        return np.where(taken, self._numbers[chosen, step, sign], 0)

    def __call__(self, images: Tensor, numbers: Tensor, groups: tuple[Groups, Groups] | None) -> Tensor:
        """(B, C, H, W) uint8 and (2, B) numbers -> (B, C, H, W) uint8; the first step first."""
        for step, mine in enumerate(numbers.unbind()):
            images = (
                self.image_ops.dense(images, mine)
                if groups is None
                else self.image_ops.grouped(images, mine, groups[step])
            )
        return images

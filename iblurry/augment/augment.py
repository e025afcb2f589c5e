"""Augment: the paper's recipe, crop and flip, AutoAugment, CutMix."""

from __future__ import annotations

from typing import ClassVar, Literal

from iblurry.augment.transform import Transform
from iblurry.components.lazy_torch import Tensor, torch

UNIFORMS = 5  # of a policy, per image: the sub-policy, whether each of its steps is applied, and their signs


class Augment(Transform):
    """How training images are augmented; the defaults are the paper's.

    Parameters
    ----------
    pad : int, default 4
        Pixels of black border for the random crop; 0 switches it off.
    flip : bool, default True
        Whether half of the images are mirrored.
    policy : {"cifar10", "imagenet", "randaugment"}, optional
        One of AutoAugment's policies, or RandAugment, applied after crop and flip; None leaves it out.
    cutmix : float, default 0.5
        Probability that a batch is mixed by CutMix, after all other transforms; 0 switches it off.
    """

    ranges: ClassVar = {"pad": "[0, inf)", "cutmix": "[0, 1]"}
    uniforms: ClassVar[int] = 3 + UNIFORMS

    pad: int = 4
    flip: bool = True
    policy: Literal["cifar10", "imagenet", "randaugment"] | None = None
    cutmix: float = 0.5

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """Crop, flip and policy for a batch by itself; a Pipeline draws for many updates at once, and mixes."""
        from iblurry.augment.autoaugment import AutoAugment
        from iblurry.augment.crop_cutmix import CropFlip

        _, channels, height, width = images.shape
        device, drawn = images.device, uniforms.double().T.cpu().numpy()
        crop_flip = CropFlip(pad=self.pad, flip=self.flip, height=height, width=width, device=device)
        images = crop_flip(images, torch.from_numpy(crop_flip.offsets(drawn[:3])).to(device))
        if self.policy is None:
            return images
        autoaugment = AutoAugment(self.policy, (channels, height, width), device)
        return autoaugment(images, torch.from_numpy(autoaugment.draw(drawn[3:])).to(device), None)


NO_AUGMENT = Augment(pad=0, flip=False, cutmix=0.0)

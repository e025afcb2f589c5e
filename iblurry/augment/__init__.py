"""Augmentation: whole batches, one draw per image, no branch on data."""

from iblurry.augment.augment import Augment
from iblurry.augment.torch_transform import TorchTransform
from iblurry.augment.transform import Transform

__all__ = ["Augment", "TorchTransform", "Transform"]

"""Augmentation: whole batches, one draw per image, no branch on data."""

from iblurry.augment.transform import Augment, TorchTransform, Transform

__all__ = ["Augment", "TorchTransform", "Transform"]

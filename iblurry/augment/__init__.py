"""Augmentation: whole batches, one draw per image, no branch on data."""

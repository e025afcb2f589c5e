"""Kernels of our own for Hopper GPUs (H100, H200), written in Gluon; imported only where they can run."""

from iblurry.network.hopper import answers, learning

__all__ = ["answers", "learning"]

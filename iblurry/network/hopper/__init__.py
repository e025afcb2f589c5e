"""Kernels of our own for Hopper GPUs (H100, H200), written in Gluon; imported only where they can run."""

from iblurry.network.hopper import answers, learning
from iblurry.network.hopper.first import patches

__all__ = ["answers", "learning", "patches"]

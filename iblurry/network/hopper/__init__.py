"""Own kernels for Hopper GPUs (H100, H200), written in Gluon; imported only where they can run."""

from iblurry.network.hopper import inference, training

__all__ = ["inference", "training"]

"""Own kernels for Hopper GPUs (H100, H200), written in Gluon and Triton; imported only where they can run."""

from iblurry.engine.hopper import inference, norm, prepare, products, training, weight_gradient

__all__ = ["inference", "norm", "prepare", "products", "training", "weight_gradient"]

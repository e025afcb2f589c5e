"""Streams: the order of the training samples and where tasks end, as data, each known by its name."""

from iblurry.streams.stream import Domains, Gaussian, IBlurry, Listed, Published, SiBlurry, Sigmoid, Stream

__all__ = ["Domains", "Gaussian", "IBlurry", "Listed", "Published", "SiBlurry", "Sigmoid", "Stream"]

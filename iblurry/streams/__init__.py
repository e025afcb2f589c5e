"""Streams: the order of the training samples and where tasks end, as data, each known by its name."""

from iblurry.streams.gaussian import Gaussian
from iblurry.streams.listed import Domains, Listed
from iblurry.streams.si_blurry import SiBlurry
from iblurry.streams.sigmoid import Sigmoid
from iblurry.streams.stream import IBlurry, Published, Stream

__all__ = ["Domains", "Gaussian", "IBlurry", "Listed", "Published", "SiBlurry", "Sigmoid", "Stream"]

"""Transform: what maps a batch of training images to augmented ones; a user's own are subclasses."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from iblurry.components.component import Component
from iblurry.components.lazy_torch import Tensor
from iblurry.errors import InputError


class Transform(Component):
    """What training images undergo; queries see images as they are.

    A subclass says with class variables what it needs, and has hyper-parameters as fields. It keeps nothing between
    calls, and every random number comes from `uniforms`: they are a function of the seed and the update, so that a
    resumed run sees the same images. Tensors only, without values read on the host, so that the update can be captured
    as a CUDA graph.

    >>> import torch
    >>> class Darken(Transform, is_known=False):
    ...     most: float = 0.5
    ...     uniforms: ClassVar[int] = 1
    ...     def __call__(self, images, uniforms):
    ...         return (images * (1 - self.most * uniforms[:, :, None, None])).to(torch.uint8)
    >>> Darken()(torch.full((2, 1, 1, 1), 200, dtype=torch.uint8), torch.tensor([[0.0], [0.5]])).flatten().tolist()
    [200, 150]
    """

    kind: ClassVar[str] = "transform"
    uniforms: ClassVar[int] = 0  # random numbers in [0, 1) that it wants for each image
    works_on: ClassVar[Literal["pixels", "floats"]] = "pixels"  # stored uint8, or what normalisation makes of it
    is_capturable: ClassVar[bool] = True  # False: it reads its uniforms, so they are on the CPU; no step is captured

    @abstractmethod
    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """The augmented images, a new tensor of the same shape and type; each image depends on its own numbers.

        Parameters
        ----------
        images : Tensor
            (B, C, H, W), uint8 pixels or float32; not to be written to.
        uniforms : Tensor
            (B, `uniforms`) float32 in [0, 1), on the images' device.
        """


Transforms = Transform | tuple[Transform, ...]


def check_transforms(given: Any) -> tuple[Transform, ...]:
    """One transform or several as a tuple; InputError where they cannot follow each other.

    Parameters
    ----------
    given : Transform or sequence of Transform
        In the order in which they are applied.
    """
    transforms = tuple(given) if isinstance(given, list | tuple) else (given,)
    normalised: Transform | None = None
    for transform in transforms:
        if not isinstance(transform, Transform):
            remedy = f" Wrap it: TorchTransform({type(transform).__name__}(...))." if callable(transform) else ""
            raise InputError(f"augment takes a Transform, such as Augment(), or a tuple, not {transform!r}.{remedy}")
        if normalised is not None and transform.works_on == "pixels" and not transform.is_missing:
            raise InputError(
                f"augment has {type(transform).__name__}, which works on pixels, after {type(normalised).__name__}, "
                "which works on normalised images; put it first."
            )
        normalised = transform if transform.works_on == "floats" else normalised
    names = [type(transform).__name__ for transform in transforms]
    if names.count("Augment") > 1:
        raise InputError(f"augment has Augment {names.count('Augment')} times; give it once.")
    return transforms


def as_field(transforms: tuple[Transform, ...]) -> Transforms:
    """How experiments hold them: one alone as it is, so that equal experiments are written alike."""
    return transforms[0] if len(transforms) == 1 else transforms

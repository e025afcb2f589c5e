"""Transforms: what maps a batch of training images to augmented ones: the paper's recipe, others', and a user's own."""

from __future__ import annotations

import copy
import pickle
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import numpy as np

from iblurry.components import objects
from iblurry.components.code_hash import object_hash
from iblurry.components.component import Component
from iblurry.components.lazy_torch import Tensor, nn, no_grad, torch
from iblurry.errors import InputError

UNIFORMS = 5  # of a policy, per image: the sub-policy, whether each of its steps is applied, and their signs
_BITS = 24  # of a uniform in float32


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


class Augment(Transform):
    """How training images are augmented; the defaults are the paper's.

    Parameters
    ----------
    pad : int, default 4
        Pixels of black border for the random crop; 0 switches it off.
    flip : bool, default True
        Whether half of the images are mirrored.
    policy : {"cifar10", "imagenet", "randaugment"}, optional
        One of AutoAugment's policies, or RandAugment, applied after crop and flip; None leaves it out.
    cutmix : float, default 0.5
        Probability that a batch is mixed by CutMix, after all other transforms; 0 switches it off.
    """

    ranges: ClassVar = {"pad": "[0, inf)", "cutmix": "[0, 1]"}
    uniforms: ClassVar[int] = 3 + UNIFORMS

    pad: int = 4
    flip: bool = True
    policy: Literal["cifar10", "imagenet", "randaugment"] | None = None
    cutmix: float = 0.5

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """Crop, flip and policy for a batch by itself; a Pipeline draws for many updates at once, and mixes."""
        from iblurry.augment.autoaugment import AutoAugment
        from iblurry.augment.crop_cutmix import CropFlip

        _, channels, height, width = images.shape
        device, drawn = images.device, uniforms.double().T.cpu().numpy()
        crop_flip = CropFlip(pad=self.pad, flip=self.flip, height=height, width=width, device=device)
        images = crop_flip(images, torch.from_numpy(crop_flip.offsets(drawn[:3])).to(device))
        if self.policy is None:
            return images
        autoaugment = AutoAugment(self.policy, (channels, height, width), device)
        return autoaugment(images, torch.from_numpy(autoaugment.draw(drawn[3:])).to(device), None)


NO_AUGMENT = Augment(pad=0, flip=False, cutmix=0.0)


class TorchTransform(Transform):
    """Applies a callable that draws from the global generators of torch, NumPy or Python.

    These are seeded from the run's own numbers for each image, and left afterwards as they were. The callable is copied
    and kept in this process by its name and a hash of its content, so an experiment that is read elsewhere can be
    compared but not run. It must keep no state between calls. No update is captured as a CUDA graph.

    Parameters
    ----------
    transform : callable
        From a tensor to one of the same shape and type: a torchvision.transforms.v2 object, an nn.Module, a function.
    per_image : bool, default True
        Whether it gets one image (C, H, W) at a time; else it gets the batch (B, C, H, W), seeded by the first image.
    works_on : {"pixels", "floats"}, default "pixels"
        uint8 pixels, or float32 images after normalisation.
    """

    uniforms: ClassVar[int] = 2
    is_capturable: ClassVar[bool] = False

    transform: str
    per_image: bool = True
    works_on: Literal["pixels", "floats"] = "pixels"  # type: ignore[misc]  # a choice here, fixed in other classes

    def __init__(
        self,
        transform: Callable[[Any], Any] | str,
        *,
        per_image: bool = True,
        works_on: Literal["pixels", "floats"] = "pixels",
    ) -> None:
        is_key = isinstance(transform, str) and "@" in transform  # as to_json writes it
        if not (callable(transform) or is_key):
            raise InputError(
                f"TorchTransform({transform!r}): this cannot be called; give an object, as v2.RandomErasing()."
            )
        key = transform if isinstance(transform, str) else _keep(transform)
        for name, value in {"transform": key, "per_image": per_image, "works_on": works_on}.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Takes the object along to worker processes, where it can be pickled."""
        return _restore, (self.transform, self.per_image, self.works_on, _pickled(objects.kept(self.transform)))

    def refuse(self) -> None:
        self._fetch()

    def _fetch(self) -> Callable[[Any], Any]:
        remedy = "wrap it again in the program that runs, and give worker processes a class or function of a module"
        found: Callable[[Any], Any] = objects.fetch(self.transform, "transform", remedy)
        return found

    @no_grad
    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        transform = self._fetch()
        if isinstance(transform, nn.Module):
            transform.to(images.device)
        images = images.clone()  # it may work in place
        seeds = [high << _BITS | low for high, low in (uniforms.double() * 2**_BITS).long().tolist()]
        with _global_generators(images.device) as seed:
            if not self.per_image or not seeds:
                seed(seeds[0] if seeds else 0)
                done: Tensor = transform(images)
                return done
            made = []
            for image, number in zip(images.unbind(), seeds, strict=True):
                seed(number)
                made.append(transform(image))
            return torch.stack(made)


@contextmanager
def _global_generators(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Yields a function that seeds the global generators; afterwards they are as they were."""
    python, numpy = random.getstate(), np.random.get_state()

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(number)
        if device.type == "cuda":
            torch.cuda.default_generators[device.index].manual_seed(number)
        random.seed(number)
        np.random.seed(number % 2**32)

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield seed
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _keep(transform: Callable[[Any], Any]) -> str:
    name = getattr(transform, "__name__", type(transform).__name__).strip("<>")
    try:
        return objects.keep(name, object_hash(transform), copy.deepcopy(transform))
    except (TypeError, RecursionError, pickle.PicklingError) as error:
        raise InputError(f"TorchTransform({transform!r:.80}): this cannot be copied ({error}).") from error


def _pickled(thing: Any) -> bytes | None:
    try:
        return None if thing is None else pickle.dumps(thing)
    except (pickle.PicklingError, AttributeError, TypeError):  # a lambda, or a class of a notebook
        return None


def _restore(key: str, per_image: bool, works_on: Any, content: bytes | None) -> TorchTransform:
    if content is not None and objects.kept(key) is None:
        objects.receive({key: pickle.loads(content)})
    return TorchTransform(key, per_image=per_image, works_on=works_on)


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

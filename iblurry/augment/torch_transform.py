"""TorchTransform: any callable on tensors, as torchvision's and kornia's, with random numbers that resume exactly."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import numpy as np

from iblurry.augment.transform import Transform
from iblurry.components import objects
from iblurry.components.code_hash import object_hash
from iblurry.components.lazy_torch import Tensor, nn, no_grad, torch
from iblurry.errors import InputError

BITS = 24  # of a uniform in float32


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
        seeds = [high << BITS | low for high, low in (uniforms.double() * 2**BITS).long().tolist()]
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

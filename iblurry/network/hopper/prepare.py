"""Compiles the kernels of a training step before the first one: many at a time, instead of one after the other."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from iblurry.network.bodies import ConvUnit
from iblurry.network.hopper import norm
from iblurry.network.hopper.training import fits

# Before these, `ast.parse` in two threads at once may raise SystemError (CPython issue 106905).
IN_THREADS = sys.version_info >= (3, 12, 2) or (3, 11, 8) <= sys.version_info < (3, 12)
THREADS = 8 if IN_THREADS else 1  # a compilation is half Python, which only one of them runs at a time


class PreparedBody:
    """A body whose kernels for a size of images are compiled when it first sees that size.

    Parameters
    ----------
    body : nn.Module
        What is called.
    """

    def __init__(self, body: nn.Module) -> None:
        self.body = body
        self._known: set[tuple[torch.Size, bool]] = set()

    def __call__(self, images: Tensor) -> Tensor:
        needed = images.shape, torch.is_grad_enabled()
        if needed not in self._known:
            self._known.add(needed)
            prepare(self.body, images, backwards=torch.is_grad_enabled())
        features: Tensor = self.body(images)
        return features


class UnitShape(NamedTuple):
    """What the kernels of a unit depend on."""

    maps: torch.Size
    weight: torch.Size
    stride: int
    adds: bool  # whether a sum follows

    @property
    def after(self) -> tuple[int, ...]:
        """The maps behind it."""
        count, _, high, wide = self.maps
        return count, self.weight[0], high // self.stride, wide // self.stride


def prepare(body: nn.Module, images: Tensor, *, backwards: bool = True) -> None:
    """Runs every kernel of a training step on such images once, on zeros; or those of its forward pass."""
    shapes = unit_shapes(body, images.shape)
    norms = {shape.adds: shape for shape in shapes if shape.weight[0] % norm.ACROSS == 0}  # all sizes have the same
    work = [call for shape in norms.values() for call in _norm_calls(shape, images.device, backwards)]
    for shape in {shape._replace(adds=False) for shape in shapes}:
        work += _convolution_calls(shape, images.device, backwards)

    def run(call: Callable[[], Any]) -> None:
        with torch.cuda.device(images.device), torch.no_grad():
            call()

    with ThreadPoolExecutor(THREADS, initializer=partial(torch.cuda.synchronize, images.device)) as pool:
        for _ in pool.map(run, work):  # threads begin without a CUDA context, which Triton expects and torch makes
            pass  # raises what a thread raised
    torch.cuda.synchronize(images.device)


def unit_shapes(body: nn.Module, images: torch.Size) -> set[UnitShape]:
    """Of every unit, by a pass that computes nothing."""
    found: set[UnitShape] = set()

    def record(unit: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        assert isinstance(unit, ConvUnit)
        conv = unit.convolution
        found.add(UnitShape(args[0].shape, conv.weight.shape, conv.stride[0], given.get("plus") is not None))

    empty = copy.deepcopy(body).to("meta")
    for unit in [module for module in empty.modules() if isinstance(module, ConvUnit)]:
        unit.convolve = unit.finish = None
        unit.register_forward_pre_hook(record, with_kwargs=True)
    empty(torch.empty(images, device="meta"))
    return found


def _convolution_calls(shape: UnitShape, device: torch.device, backwards: bool) -> Iterator[Callable[[], Any]]:
    outputs, _, side, _ = shape.weight
    if fits(shape.maps, outputs, side, shape.stride):
        maps, weight, after = (_zeros(size, device) for size in (shape.maps, shape.weight, shape.after))
        yield lambda: torch.ops.iblurry.convolve(maps, weight, shape.stride, False, 1)
        if backwards:
            yield lambda: torch.ops.iblurry.convolve(after, weight, shape.stride, True, 1)
            yield lambda: torch.ops.iblurry.weight_gradient(after, maps, side, shape.stride, 1)


def _norm_calls(shape: UnitShape, device: torch.device, backwards: bool) -> Iterator[Callable[[], Any]]:
    maps, flat = _zeros(shape.after, device), torch.zeros(shape.weight[0], device=device)
    state = norm.NormState((flat.clone(), flat.clone()), 1.0, 0.1)
    yield lambda: norm.normalise(maps, flat, flat, maps if shape.adds else None, state, 1)
    if backwards and not shape.adds:
        yield lambda: norm.differentiate(maps, maps, flat, flat, torch.stack([flat, flat]), 1)


def _zeros(size: Sequence[int], device: torch.device) -> Tensor:
    return torch.zeros(*size, dtype=torch.bfloat16, device=device).contiguous(memory_format=torch.channels_last)

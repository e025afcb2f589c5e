"""Which kernels a body needs, so that they are compiled before it runs and not one by one when needed."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from iblurry.engine.convolutions import ALIGNED
from iblurry.engine.hopper import inference, norm
from iblurry.engine.hopper.compiler import Call, start, wait
from iblurry.engine.hopper.training import fits, run_convolution
from iblurry.engine.hopper.weight_gradient import LEAST, Descent, can_descend, descend, weight_gradient
from iblurry.network.bodies import ConvUnit, ResidualBlock

MANY = 512  # images of a query: there is one kernel for any large number


class PreparedBody:
    """A body that trains on batches of one size; its kernels are being compiled since this was made.

    Parameters
    ----------
    body : nn.Module
        What is called.
    images : sequence of int
        (B, C, H, W), the shape of a batch.
    device : torch.device
        Where it runs.
    """

    def __init__(self, body: nn.Module, images: Sequence[int], device: torch.device) -> None:
        self.body, shapes = body, unit_shapes(body, images)
        self._forward = start(device, _forward_calls(shapes))
        self._backward = start(device, _backward_calls(shapes))
        start(device, _inference_calls(unit_shapes(body, [MANY, *images[1:]])))

    def __call__(self, images: Tensor) -> Tensor:
        wait(self._forward)
        if torch.is_grad_enabled():
            wait(self._backward)
        features: Tensor = self.body(images)
        return features


def compile_inference(body: nn.Module, images: Sequence[int], device: torch.device) -> None:
    """Compiles what answers to so many images need, if it was not compiled before."""
    wait(start(device, _inference_calls(unit_shapes(body, images))))


def compile_stack(body: nn.Module, images: Sequence[int], device: torch.device, models: int) -> None:
    """Compiles what a training step of so many models like this one needs, on a batch (B, C, H, W) each."""
    shapes = unit_shapes(body, images)
    wait(start(device, [*_forward_calls(shapes, models), *_backward_calls(shapes, models)]))


class UnitShape(NamedTuple):
    """What the kernels of a unit depend on."""

    maps: torch.Size
    weight: torch.Size
    stride: int
    adds: bool  # whether a sum follows
    receives: bool = False  # whether a gradient is added to that of its input

    @property
    def has_patches(self) -> bool:
        """Whether the patch under a pixel is small: see `fits_patch`."""
        return math.prod(self.weight[1:]) <= ALIGNED and self.stride == 1

    @property
    def after(self) -> tuple[int, ...]:
        """The maps behind it."""
        count, _, high, wide = self.maps
        return count, self.weight[0], high // self.stride, wide // self.stride


def unit_shapes(body: nn.Module, images: Sequence[int]) -> list[UnitShape]:
    """Finds the shapes of every unit in order, by a pass that computes nothing; once for bodies that look the same."""
    key = repr(body), tuple(images)
    if key not in _shapes:
        _shapes[key] = _find_shapes(body, images)
    return _shapes[key]


_shapes: dict[Hashable, list[UnitShape]] = {}


def _find_shapes(body: nn.Module, images: Sequence[int]) -> list[UnitShape]:
    found: list[UnitShape] = []

    def record(unit: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        assert isinstance(unit, ConvUnit)
        conv, receives = unit.convolution, unit in receiving
        found.append(
            UnitShape(args[0].shape, conv.weight.shape, conv.stride[0], given.get("plus") is not None, receives)
        )

    empty = copy.deepcopy(body).to("meta")
    blocks = [module for module in empty.modules() if isinstance(module, ResidualBlock)]
    receiving = {block.branch[0] for block in blocks}
    for unit in [module for module in empty.modules() if isinstance(module, ConvUnit)]:
        unit.convolve = unit.finish = unit.fused = None
        unit.register_forward_pre_hook(record, with_kwargs=True)
    empty(torch.empty(*images, device="meta"))
    return found


def _forward_calls(shapes: Sequence[UnitShape], models: int = 1) -> list[tuple[Hashable, Call]]:
    units = [_on_patches(shape)._replace(receives=False) for shape in shapes]
    norms = {(shape.adds, _norm_kind(shape, models)): shape for shape in _normed(units)}
    return [
        *_patches(shapes, LEAST),
        *_keyed("convolve", [shape._replace(adds=False) for shape in units], models, _convolve),
        *((("norm", kind), functools.partial(_normalise, shape, models)) for kind, shape in norms.items()),
    ]


def _backward_calls(shapes: Sequence[UnitShape], models: int = 1) -> list[tuple[Hashable, Call]]:
    shapes = [_on_patches(shape)._replace(adds=False) for shape in shapes]
    norms = {_norm_kind(shape, models): shape for shape in _normed(shapes)}
    return [
        *_keyed("backwards", shapes[1:], models, _convolve_backwards),
        *_keyed("weights", [shape._replace(receives=False) for shape in shapes], models, _weight_gradient),
        *((("norm backwards", kind), functools.partial(_differentiate, norms[kind], models)) for kind in norms),
    ]


def _on_patches(shape: UnitShape) -> UnitShape:
    """A first unit as `convolve_patches` computes it; others as they are."""
    if not shape.has_patches:
        return shape
    count, _, *sides = shape.maps
    return shape._replace(maps=torch.Size((count, LEAST, *sides)), weight=torch.Size((shape.weight[0], LEAST, 1, 1)))


def _patches(shapes: Sequence[UnitShape], values: int) -> list[tuple[Hashable, Call]]:
    """The kernel that writes patches of so many values, which is the same for any number of images."""
    found = {(shape.maps[1:], shape.weight): shape for shape in shapes if shape.has_patches}
    return [
        (("patches", values, size), functools.partial(_write_patches, shape, values)) for size, shape in found.items()
    ]


def _normed(shapes: Sequence[UnitShape]) -> list[UnitShape]:
    """Returns the shapes with own norm kernels, which are the same for all shapes of one depth."""
    return [shape for shape in shapes if shape.weight[0] % norm.ACROSS == 0]


def _inference_calls(shapes: Sequence[UnitShape]) -> list[tuple[Hashable, Call]]:
    """Lists the kernels of `FoldedBody`, whose first layer has patches for channels, or channels of zeros beside the
    given ones.
    """
    first, *others = [shape._replace(receives=False) for shape in shapes]
    count, channels, *sides = first.maps
    outputs, _, side, _ = first.weight
    padded = torch.Size((count, -(-channels // ALIGNED) * ALIGNED, *sides))
    weight = torch.Size((outputs, padded[1], 1, 1) if first.has_patches else (outputs, padded[1], side, side))
    calls = _keyed("answers", [first._replace(maps=padded, weight=weight), *others], 1, _answer)
    return [*_patches([first], ALIGNED), *calls]


def _keyed(
    name: str, shapes: Sequence[UnitShape], models: int, make: Callable[[UnitShape, int], None]
) -> list[tuple[Hashable, Call]]:
    return [((name, shape, models), functools.partial(make, shape, models)) for shape in dict.fromkeys(shapes)]


def _convolve(shape: UnitShape, models: int) -> None:
    if _fits(shape, models):
        run_convolution(_maps(shape, models), _weight(shape, models), shape.stride, False, models)


def _convolve_backwards(shape: UnitShape, models: int) -> None:
    if _fits(shape, models):
        plus = _maps(shape, models) if shape.receives else None
        run_convolution(_after(shape, models), _weight(shape, models), shape.stride, True, models, plus)


def _weight_gradient(shape: UnitShape, models: int) -> None:
    (outputs, channels, side, _), maps, after = shape.weight, _maps(shape, models), _after(shape, models)
    if not _fits(shape, models):
        return
    if models == 1 or not can_descend(channels, outputs, side, models):
        weight_gradient(after, maps, side, shape.stride, models)
        return
    rounded = _weight(shape, models)
    weight, lr = rounded.float(), torch.empty((), device="meta")
    descend(after, maps, shape.stride, models, Descent(weight, rounded, weight, lr, 0.9, 0.0, nesterov=True))


def _norm_kind(shape: UnitShape, models: int) -> tuple[int, ...]:
    """Which norm kernels a pass has: how many loads they have under way, and how many parts the second adds up."""
    maps = _after(shape, models)
    first, second = norm.NormPlan.of(maps, models), norm.NormPlan.finer(maps, models)
    return first.constants["STAGES"], second.constants["STAGES"], norm.room_for(first.sizes[-1])


def _normalise(shape: UnitShape, models: int) -> None:
    maps, flat = _after(shape, models), torch.empty(models * shape.weight[0], device="meta")
    plus, state = maps if shape.adds else None, norm.NormState((flat, flat), 1.0, 0.1)
    norm.normalise(maps, flat, flat, plus, state, models)


def _differentiate(shape: UnitShape, models: int) -> None:
    maps, flat = _after(shape, models), torch.empty(models * shape.weight[0], device="meta")
    norm.differentiate(maps, maps, flat, flat, torch.stack([flat, flat]), models)


def _write_patches(shape: UnitShape, values: int) -> None:
    count, _, *sides = shape.maps
    inference.write_patches(torch.empty(shape.maps, device="meta"), _empty((count, values, *sides)), shape.weight[2])


def _answer(shape: UnitShape, _: int) -> None:
    maps, weight, bias = _maps(shape, 1), _weight(shape, 1), torch.empty(shape.weight[0], device="meta").bfloat16()
    inference.convolve(maps, weight, bias, _after(shape, 1) if shape.adds else None, stride=shape.stride)


def _fits(shape: UnitShape, models: int) -> bool:
    count, *rest = shape.maps
    return fits(torch.Size((models * count, *rest)), shape.weight[0], shape.weight[2], shape.stride, models)


def _maps(shape: UnitShape, models: int) -> Tensor:
    return _empty((models * shape.maps[0], *shape.maps[1:]))


def _after(shape: UnitShape, models: int) -> Tensor:
    return _empty((models * shape.after[0], *shape.after[1:]))


def _weight(shape: UnitShape, models: int) -> Tensor:
    return _empty((models * shape.weight[0], *shape.weight[1:]))


def _empty(size: Sequence[int]) -> Tensor:
    return torch.empty(*size, dtype=torch.bfloat16, device="meta").contiguous(memory_format=torch.channels_last)

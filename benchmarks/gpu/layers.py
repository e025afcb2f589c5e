"""The convolutions of a ResNet-18 whose kernels are compared, and what these are given."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from iblurry.engine.accelerator import accelerator
from iblurry.errors import InputError


class Layer(NamedTuple):
    """A convolution of ResNet-18 on images of 32x32, and how often it is there."""

    channels: int
    outputs: int
    high: int  # before it
    side: int
    stride: int
    times: int


FIRST = Layer(3, 64, 32, 3, 1, 1)
LAYERS = (
    Layer(64, 64, 32, 3, 1, 4),
    Layer(64, 128, 32, 3, 2, 1),
    Layer(64, 128, 32, 1, 2, 1),
    Layer(128, 128, 16, 3, 1, 3),
    Layer(128, 256, 16, 3, 2, 1),
    Layer(128, 256, 16, 1, 2, 1),
    Layer(256, 256, 8, 3, 1, 3),
    Layer(256, 512, 8, 3, 2, 1),
    Layer(256, 512, 8, 1, 2, 1),
    Layer(512, 512, 4, 3, 1, 3),
)


def own_kernels() -> ModuleType:
    """The package of own kernels, which only a GPU for them can run."""
    if accelerator(torch.device("cuda")) is None:
        raise InputError("These kernels are for a Hopper GPU (H100, H200), and need Triton.")
    return importlib.import_module("iblurry.engine.hopper")


class Pair(NamedTuple):
    """The same work twice."""

    ours: Callable[[], Tensor]
    cudnn: Callable[[], Tensor]
    exact: Callable[[], Tensor]  # in float32


def backward_by_torch(layer: Layer, grads: Tensor, maps: Tensor, weight: Tensor, wanted: tuple[bool, ...]) -> Any:
    """Gradients for the maps, the weight and a bias, where they are wanted."""
    half, stride = [layer.side // 2] * 2, [layer.stride] * 2
    return torch.ops.aten.convolution_backward(
        grads, maps, weight, None, stride, half, [1, 1], False, [0, 0], 1, list(wanted)
    )


def maps_and_weight(layer: Layer, count: int) -> tuple[Tensor, Tensor]:
    """What a layer is given, channels last."""
    maps = random_values(count, layer.channels, layer.high, layer.high)
    weight = (
        random_values(layer.outputs, layer.channels, layer.side, layer.side) / (layer.channels * layer.side**2) ** 0.5
    )
    return maps.contiguous(memory_format=torch.channels_last), weight.contiguous(memory_format=torch.channels_last)


def random_values(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in bfloat16, the same for the same shape and seed."""
    generator = torch.Generator("cuda").manual_seed(sum(shape) + seed)
    return torch.randn(*shape, generator=generator, device="cuda").to(torch.bfloat16)

"""A unit for answers alone: one convolution with a bias, its ReLU and the sum behind it, in few kernels."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from iblurry.network.unit import Unit

ALIGNED = 32  # channels: of the first convolution's three, cuDNN makes 223 us for 500 images; of 32, 59 us on an H200


class Convolution:
    """relu(weight * maps + bias) + plus, on a GPU; the weight's channels are filled up with zeros."""

    def __init__(self, unit: Unit, dtype: torch.dtype) -> None:
        conv = unit.convolution
        aligned = -(-conv.in_channels // ALIGNED) * ALIGNED
        weight = conv.weight.new_zeros(conv.out_channels, aligned, *conv.kernel_size, dtype=dtype)
        self.weight, self.bias = weight.contiguous(memory_format=torch.channels_last), weight[:, 0, 0, 0].clone()
        assert not isinstance(conv.padding, str)
        self.stride, self.padding, self.dilation = conv.stride, conv.padding, conv.dilation
        self.is_sparse = conv.kernel_size == (1, 1) and conv.stride != (1, 1)

    def enter(self, images: Tensor, room: Tensor) -> None:
        """Images as this convolution wants them, where it is the first: those channels that there are not stay 0."""
        room[:, : images.shape[1]].copy_(images)

    def fill(self, weight: Tensor) -> None:
        """What it multiplies with."""
        self.weight[:, : weight.shape[1]].copy_(weight)

    def __call__(self, maps: Tensor, plus: Tensor | None = None) -> Tensor:
        own = kernels(maps.device)
        if own is not None and maps.dtype is torch.bfloat16:
            answer: Tensor | None = own.answers.answer(maps, self.weight, self.bias, plus, stride=self.stride[0])
            if answer is not None:
                return answer
        done = self._by_cudnn(maps)
        return done if plus is None else done + plus

    def _by_cudnn(self, maps: Tensor) -> Tensor:
        if self.is_sparse:  # of 1x1 with a stride, cuDNN makes 222 us instead of 30
            down, across = self.stride
            maps = maps[:, :, ::down, ::across].contiguous(memory_format=torch.channels_last)
        stride = (1, 1) if self.is_sparse else self.stride
        done: Tensor = torch.cudnn_convolution_relu(
            maps, self.weight, self.bias, stride, self.padding, self.dilation, 1
        )
        return done


class First(Convolution):
    """Of few channels, by our own kernels: what it meets at a pixel becomes channels, and of it a side of 1 is left."""

    def __init__(self, unit: Unit, dtype: torch.dtype) -> None:
        super().__init__(unit, dtype)
        self.side = unit.convolution.kernel_size[0]
        self.weight = self.weight[:, :ALIGNED, :1, :1].contiguous(memory_format=torch.channels_last)
        self.padding = (0, 0)

    @staticmethod
    def fits(unit: Unit, dtype: torch.dtype) -> bool:
        conv = unit.convolution
        small = conv.in_channels * math.prod(conv.kernel_size) <= ALIGNED and conv.stride == (1, 1)
        return small and dtype is torch.bfloat16 and kernels(conv.weight.device) is not None

    def enter(self, images: Tensor, room: Tensor) -> None:
        own = kernels(images.device)
        assert own is not None
        own.patches(images, room, self.side)

    def fill(self, weight: Tensor) -> None:
        taps = weight.permute(0, 2, 3, 1).flatten(1)  # (outputs, taps * channels)
        self.weight[:, : taps.shape[1], 0, 0].copy_(taps)


class HopperConvolutions:
    """The units of a body that learn by our own kernels."""

    def __init__(self, units: Sequence[Unit], learn: Callable[[Tensor, Unit], Tensor]) -> None:
        self.units = units
        for unit in units:
            unit.learn = learn

    @contextmanager
    def rounded(self) -> Iterator[None]:
        """For a forward pass inside: all weights to bfloat16 by one kernel instead of one each."""
        each: Any = torch
        weights = [unit.convolution.weight.detach() for unit in self.units]
        rounded = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights]
        each._foreach_copy_(rounded, weights)
        try:
            for unit, values in zip(self.units, rounded, strict=True):
                unit.rounded = values
            yield
        finally:
            for unit in self.units:
                unit.rounded = None


def hopper_convolutions(body: nn.Module, device: torch.device) -> HopperConvolutions | None:
    """Has the body's units learn by our own kernels, where there are any for this device."""
    own = kernels(device)
    if own is None:
        return None
    units = [module for module in body.modules() if isinstance(module, Unit)]
    fit = [unit for unit in units if unit.convolution.in_channels % own.learning.LEAST == 0]
    return HopperConvolutions(fit, own.learning.learn)


@functools.cache
def kernels(device: torch.device) -> ModuleType | None:
    """Our own kernels, where the device is one they are written for and Triton is there to compile them."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        return None
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("triton.experimental.gluon") is None:
        return None
    return importlib.import_module("iblurry.network.hopper")

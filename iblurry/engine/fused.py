"""Faster forms of a body's convolutions: batch norm folded in for inference, own kernels of a GPU for training."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iblurry.engine.compile_worker import HOPPER
from iblurry.engine.weight_stream import WeightStream
from iblurry.network.bodies import ConvUnit, ResNet

ALIGNED = 32  # channels: of the first convolution's three, cuDNN makes 223 us for 500 images; of 32, 59 us on an H200


class FoldedBody:
    """The body in eval mode up to rounding: batch norm folded into the convolutions, each with its ReLU one kernel.

    Addresses are fixed, so it can be refreshed and used inside a captured graph.

    Parameters
    ----------
    body : nn.Module
        Its units are used while `__call__` runs; the weights stay the body's own.
    dtype : torch.dtype
        Of maps and weights, such as torch.bfloat16.
    fuse : callable, optional
        Compiles `refresh` into fewer kernels, where there is no own one for all of it.
    """

    def __init__(
        self,
        body: nn.Module,
        dtype: torch.dtype,
        *,
        fuse: Callable[..., Any] | None = None,
    ) -> None:
        self.body, self.dtype = body, dtype
        self.units = [module for module in body.modules() if isinstance(module, ConvUnit)]
        self.convolutions = [
            FirstConvolution(unit, dtype)
            if i == 0 and FirstConvolution.fits(unit, dtype)
            else FusedConvolution(unit, dtype, pad=i == 0 and unit.convolution.weight.is_cuda)
            for i, unit in enumerate(self.units)
        ]
        refresh = self._own_refresh() or (fuse(self._refresh) if fuse else self._refresh)
        self.refresh: Callable[[], None] = refresh  # after weights changed
        self._buffers: dict[int, Tensor] = {}
        self._known: set[torch.Size] = set()  # shapes of images that were met

    def __call__(self, images: Tensor) -> Tensor:
        """(B, C, H, W) float -> (B, features)."""
        if images.shape not in self._known:
            self._known.add(images.shape)
            own = kernels(images.device) if self.units and self.dtype is torch.bfloat16 else None
            if own is not None:
                own.prepare.compile_inference(self.body, images.shape, images.device)
        images = self._to_input(images)
        try:
            for unit, convolution in zip(self.units, self.convolutions, strict=True):
                unit.fused = convolution
            features: Tensor = self.body(images)
        finally:
            for unit in self.units:
                unit.fused = None
        return features

    def _to_input(self, images: Tensor) -> Tensor:
        """Returns images in the layout that the first convolution reads."""
        if not self.units:
            return images.to(self.dtype)
        count, given, *sides = images.shape
        if given == self.convolutions[0].weight.shape[1]:
            return images.to(self.dtype, memory_format=torch.channels_last)
        size = 1 << (count - 1).bit_length()  # few sizes, never freed: a captured graph keeps the address
        if size not in self._buffers:
            channels = self.convolutions[0].weight.shape[1]
            buffer = torch.zeros(size, channels, *sides, dtype=self.dtype, device=images.device)
            self._buffers[size] = buffer.contiguous(memory_format=torch.channels_last)
        self.convolutions[0].write_input(images, self._buffers[size][:count])
        return self._buffers[size][:count]

    def _own_refresh(self) -> Callable[[], None] | None:
        """`_refresh` by one own kernel, which needs no compiler's 13 s before the first query on an H200."""
        own = kernels(self.units[0].convolution.weight.device) if self.units else None
        fold = None if own is None else own.fold.NormFold(self.units, self.convolutions)
        return fold if fold is not None and fold.fits() else None

    def _refresh(self) -> None:
        """gamma (w * x - mean) / sqrt(var + eps) + beta = (w s) * x + (beta - mean s), s = gamma / sqrt(var + eps)."""
        if not self.units:
            return
        each: Any = torch  # its _foreach functions are one kernel for many tensors
        norms = [unit.norm for unit in self.units]
        scales = each._foreach_add([norm.running_var for norm in norms], norms[0].eps)
        each._foreach_sqrt_(scales)
        scales = each._foreach_div([norm.weight for norm in norms], scales)
        shifts = each._foreach_mul([norm.running_mean for norm in norms], scales)
        biases = each._foreach_sub([norm.bias for norm in norms], shifts)
        each._foreach_copy_([convolution.bias for convolution in self.convolutions], biases)
        for unit, scale, convolution in zip(self.units, scales, self.convolutions, strict=True):
            convolution.set_weight(unit.convolution.weight * scale.view(-1, 1, 1, 1))


class FusedConvolution:
    """relu(weight * maps + bias) + plus; with `pad`, the input channels are padded with zeros."""

    def __init__(self, unit: ConvUnit, dtype: torch.dtype, *, pad: bool = False) -> None:
        conv = unit.convolution
        channels = -(-conv.in_channels // ALIGNED) * ALIGNED if pad else conv.in_channels
        weight = conv.weight.new_zeros(conv.out_channels, channels, *conv.kernel_size, dtype=dtype)
        self.weight, self.bias = weight.contiguous(memory_format=torch.channels_last), weight[:, 0, 0, 0].clone()
        assert not isinstance(conv.padding, str)
        self.stride, self.padding, self.dilation = conv.stride, conv.padding, conv.dilation
        self.is_sparse = conv.kernel_size == (1, 1) and conv.stride != (1, 1)

    def write_input(self, images: Tensor, buffer: Tensor) -> None:
        """Copies images into the buffer that the first convolution reads; padded channels stay 0."""
        buffer[:, : images.shape[1]].copy_(images)

    def set_weight(self, weight: Tensor) -> None:
        """Takes the folded weight (outputs, channels, side, side)."""
        self.weight[:, : weight.shape[1]].copy_(weight)

    def __call__(self, maps: Tensor, plus: Tensor | None = None) -> Tensor:
        """(B, channels, H, W) -> (B, outputs, H / stride, W / stride)."""
        own = kernels(maps.device)
        if own is not None and maps.dtype is torch.bfloat16:
            result: Tensor | None = own.inference.convolve(maps, self.weight, self.bias, plus, stride=self.stride[0])
            if result is not None:
                return result
        done = self._by_torch(maps)
        return done if plus is None else done + plus

    def _by_torch(self, maps: Tensor) -> Tensor:
        if self.is_sparse:  # of 1x1 with a stride, cuDNN makes 222 us instead of 30
            down, across = self.stride
            maps = maps[:, :, ::down, ::across].contiguous(memory_format=torch.channels_last)
        stride = (1, 1) if self.is_sparse else self.stride
        given = maps, self.weight, self.bias, stride, self.padding, self.dilation, 1
        done: Tensor = torch.cudnn_convolution_relu(*given) if maps.is_cuda else F.conv2d(*given).relu_()
        return done


class FirstConvolution(FusedConvolution):
    """A convolution of few channels by own kernels: the patch under each pixel becomes channels of a 1x1 one."""

    def __init__(self, unit: ConvUnit, dtype: torch.dtype) -> None:
        super().__init__(unit, dtype, pad=True)
        self.side = unit.convolution.kernel_size[0]
        self.weight = self.weight[:, :ALIGNED, :1, :1].contiguous(memory_format=torch.channels_last)
        self.padding = (0, 0)

    @staticmethod
    def fits(unit: ConvUnit, dtype: torch.dtype) -> bool:
        """Whether a patch has few enough values, and there are kernels for this device and type."""
        has_kernels = kernels(unit.convolution.weight.device) is not None
        return fits_patch(unit.convolution) and dtype is torch.bfloat16 and has_kernels

    def write_input(self, images: Tensor, buffer: Tensor) -> None:
        own = kernels(images.device)
        assert own is not None
        own.inference.write_patches(images, buffer, self.side)

    def set_weight(self, weight: Tensor) -> None:
        taps = weight.permute(0, 2, 3, 1).flatten(1)  # (outputs, taps * channels)
        self.weight[:, : taps.shape[1], 0, 0].copy_(taps)


def fits_patch(conv: nn.Conv2d) -> bool:
    """Whether the patch under a pixel has few enough values to become the channels of a 1x1 convolution."""
    return conv.in_channels * math.prod(conv.kernel_size) <= ALIGNED and conv.stride == (1, 1)


class WeightRows(NamedTuple):
    """How a weight and the folded one lie in memory: as equally many rows, one behind the other."""

    total: int
    each: int  # rows of an output
    given: int  # values of a row
    length: int  # values of a row of the folded weight; behind the given ones they are 0

    @classmethod
    def of(cls, weight: Tensor, folded: Tensor) -> WeightRows:
        """Both channels last; `folded` is the weight of a FusedConvolution."""
        length = folded.shape[1]
        total = folded.numel() // length
        return cls(total, total // len(folded), weight.numel() // total, length)


class OwnConvolutions:
    """The units of a body whose convolutions train in a way of our own.

    Parameters
    ----------
    units : sequence of ConvUnit
        Which.
    convolve : callable
        Their convolution.
    finish : callable, optional
        What follows it; of a `ConvUnit`, like the other.
    weight_stream : WeightStream, optional
        Where their weights' gradients are computed; see `WeightStream`.
    """

    def __init__(
        self,
        units: Sequence[ConvUnit],
        convolve: Callable[[Tensor, ConvUnit], Tensor],
        finish: Callable[[Tensor, ConvUnit, Tensor | None], Tensor] | None = None,
        weight_stream: WeightStream | None = None,
    ) -> None:
        self.units, self.convolve, self.finish, self.weight_stream = units, convolve, finish, weight_stream
        self._rounded: torch.cuda.Event | None = None  # the moment when they were, for passes on other streams
        self._set(convolve, finish)
        for unit in units:
            unit.weight_stream = weight_stream

    def _set(self, convolve: Any, finish: Any) -> None:
        for unit in self.units:
            unit.convolve, unit.finish = convolve, finish

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """A forward pass inside uses torch's own convolutions, which every device has."""
        try:
            self._set(None, None)
            yield
        finally:
            self._set(self.convolve, self.finish)

    def parallel_backward(self) -> AbstractContextManager[None]:
        """A backward pass inside, before which no weight has a gradient, may use a second stream.

        Where there is a stream for it, gradients of weights are computed beside the rest of the pass.
        """
        return nullcontext() if self.weight_stream is None else self.weight_stream.open()

    @contextmanager
    def rounded(self) -> Iterator[None]:
        """Passes inside use weights rounded to bfloat16 once, by one kernel instead of one each.

        They do not change inside. A pass on another stream waits for them when it enters here too.
        """
        if self.units and self.units[0].weight_bf16 is not None:
            if self.weight_stream is not None and self._rounded is not None:
                torch.cuda.current_stream(self.weight_stream.device).wait_event(self._rounded)
            yield
            return
        each: Any = torch
        weights = [unit.convolution.weight.detach() for unit in self.units]
        rounded = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights]
        each._foreach_copy_(rounded, weights)
        if self.weight_stream is not None:
            self._rounded = torch.cuda.current_stream(self.weight_stream.device).record_event()
        try:
            for unit, values in zip(self.units, rounded, strict=True):
                unit.weight_bf16 = values
            yield
        finally:
            self._rounded = None
            for unit in self.units:
                unit.weight_bf16 = None


def hopper_convolutions(body: nn.Module, device: torch.device) -> OwnConvolutions | None:
    """Makes the body's units train by own kernels, where there are any for this device."""
    own = kernels(device)
    if own is None:
        return None
    units = [module for module in body.modules() if isinstance(module, ConvUnit)]
    is_whole = isinstance(body, ResNet)  # kernels for all of it; what is left of other bodies is fused by a compiler
    if not is_whole:
        return OwnConvolutions(units, own.training.convolve) if units else None
    return OwnConvolutions(units, own.training.convolve, own.training.finish, WeightStream(device))


@functools.cache
def kernels(device: torch.device) -> ModuleType | None:
    """The package of own kernels, where the device is one they are written for and Triton can compile them."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != HOPPER:
        return None
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("triton.experimental.gluon") is None:
        return None
    return importlib.import_module("iblurry.engine.hopper")

"""A body for answers: batch norm folded into its convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iblurry.engine.accelerator import accelerator
from iblurry.engine.convolutions import ALIGNED, fits_patch
from iblurry.network.bodies import ConvUnit


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
        Compiles `refresh` into fewer kernels.
    """

    def __init__(self, body: nn.Module, dtype: torch.dtype, *, fuse: Callable[..., Any] | None = None) -> None:
        self.body, self.dtype = body, dtype
        self.units = [module for module in body.modules() if isinstance(module, ConvUnit)]
        self.convolutions = [
            FirstConvolution(unit, dtype)
            if i == 0 and FirstConvolution.fits(unit, dtype)
            else FusedConvolution(unit, dtype, pad=i == 0 and unit.convolution.weight.is_cuda)
            for i, unit in enumerate(self.units)
        ]
        self.refresh: Callable[[], None] = fuse(self._refresh) if fuse else self._refresh  # after weights changed
        self._buffers: dict[int, Tensor] = {}
        self._known: set[torch.Size] = set()  # shapes of images that were met

    def __call__(self, images: Tensor) -> Tensor:
        """(B, C, H, W) float -> (B, features)."""
        if images.shape not in self._known:
            self._known.add(images.shape)
            own = accelerator(images.device) if self.units and self.dtype is torch.bfloat16 else None
            if own is not None:
                own.prepare_answers(self.body, images.shape)
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
        own = accelerator(maps.device)
        if own is not None and maps.dtype is torch.bfloat16:
            result = own.convolve_folded(maps, self.weight, self.bias, plus, stride=self.stride[0])
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
        has_kernels = accelerator(unit.convolution.weight.device) is not None
        return fits_patch(unit.convolution) and dtype is torch.bfloat16 and has_kernels

    def write_input(self, images: Tensor, buffer: Tensor) -> None:
        own = accelerator(images.device)
        assert own is not None
        own.write_patches(images, buffer, self.side)

    def set_weight(self, weight: Tensor) -> None:
        taps = weight.permute(0, 2, 3, 1).flatten(1)  # (outputs, taps * channels)
        self.weight[:, : taps.shape[1], 0, 0].copy_(taps)

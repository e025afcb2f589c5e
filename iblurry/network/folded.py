"""A body for answers alone: batch norm folded into its convolutions, each with its ReLU in one kernel of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iblurry.network.unit import Unit

ALIGNED = 32  # channels: of the first convolution's three, cuDNN makes 223 us for 500 images; of 32, 59 us on an H200
LANES = 2  # parts of a batch that run at the same time: one adds while another multiplies


class Folded:
    """The same answers as the body in eval mode, up to rounding; `refresh` after its weights have changed.

    gamma (w * x - mean) / sqrt(var + eps) + beta = (w s) * x + (beta - mean s), with s = gamma / sqrt(var + eps).
    Fixed addresses: it can be refreshed and used in a captured graph.
    """

    def __init__(
        self,
        body: nn.Module,
        dtype: torch.dtype,
        normalise: Callable[[Tensor], Tensor],
        *,
        fuse: Callable[..., Any] | None = None,
    ) -> None:
        self.body, self.dtype, self.normalise = body, dtype, normalise
        self.units = [module for module in body.modules() if isinstance(module, Unit)]
        self.convs, self.norms = [_conv(unit) for unit in self.units], [_norm(unit) for unit in self.units]
        self.parts = [_empty(conv, dtype) for conv in self.convs]
        self.refresh: Callable[[], None] = fuse(self._refresh) if fuse else self._refresh
        self._enter: Callable[[Tensor], Tensor] = fuse(self._prepared, dynamic=True) if fuse else self._prepared
        self._lanes: list[torch.cuda.Stream] = []

    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) uint8 -> (B, features)."""
        images = self._enter(pixels)
        try:
            for unit, part in zip(self.units, self.parts, strict=True):
                unit.folded = part
            features = self._in_lanes(images) if images.is_cuda and len(images) >= LANES else self.body(images)
        finally:
            for unit in self.units:
                unit.folded = None
        return features

    def _in_lanes(self, images: Tensor) -> Tensor:
        """Each part of the batch on a stream of its own, which can be captured as branches of one graph."""
        here = torch.cuda.current_stream(images.device)
        if not self._lanes:
            self._lanes = [torch.cuda.Stream(images.device) for _ in range(LANES - 1)]
        first, *others = images.chunk(LANES)
        done = []
        for lane, part in zip(self._lanes, others, strict=False):
            lane.wait_stream(here)
            with torch.cuda.stream(lane):
                done.append(self.body(part))
        done.insert(0, self.body(first))
        for lane in self._lanes:
            here.wait_stream(lane)
        return torch.cat(done)

    def _prepared(self, pixels: Tensor) -> Tensor:
        """As the first convolution wants them: its channels filled up with zeros, the last to vary first."""
        images = self.normalise(pixels).to(self.dtype)
        if not self.units:
            return images
        missing = self.parts[0][0].shape[1] - images.shape[1]
        return F.pad(images, (0, 0, 0, 0, 0, missing)).contiguous(memory_format=torch.channels_last)

    def _refresh(self) -> None:
        if not self.units:
            return
        each: Any = torch  # its _foreach functions are one kernel for many tensors
        scales = each._foreach_add([norm.running_var for norm in self.norms], self.norms[0].eps)
        each._foreach_sqrt_(scales)
        scales = each._foreach_div([norm.weight for norm in self.norms], scales)
        shifts = each._foreach_mul([norm.running_mean for norm in self.norms], scales)
        biases = each._foreach_sub([norm.bias for norm in self.norms], shifts)
        each._foreach_copy_([bias for _, bias in self.parts], biases)
        for conv, scale, (weight, _) in zip(self.convs, scales, self.parts, strict=True):
            weight[:, : conv.in_channels].copy_(conv.weight * scale.view(-1, 1, 1, 1))


def _conv(unit: Unit) -> nn.Conv2d:
    conv = unit[0]
    assert isinstance(conv, nn.Conv2d)
    return conv


def _norm(unit: Unit) -> nn.BatchNorm2d:
    norm = unit[1]
    assert isinstance(norm, nn.BatchNorm2d)
    return norm


def _empty(conv: nn.Conv2d, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weight, its channels filled up with zeros, and bias."""
    aligned = -(-conv.in_channels // ALIGNED) * ALIGNED
    weight = conv.weight.new_zeros(conv.out_channels, aligned, *conv.kernel_size, dtype=dtype)
    return weight.contiguous(memory_format=torch.channels_last), weight.new_zeros(conv.out_channels)

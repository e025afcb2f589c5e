"""A body for answers alone: batch norm folded into its convolutions, each with its ReLU in one kernel of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from iblurry.network.convolution import Convolution, First
from iblurry.network.unit import Unit


class Folded:
    """The same answers as the body in eval mode, up to rounding; `refresh` after its weights have changed.

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
        self.parts = [
            First(unit, dtype) if i == 0 and First.fits(unit, dtype) else Convolution(unit, dtype)
            for i, unit in enumerate(self.units)
        ]
        self.refresh: Callable[[], None] = fuse(self._refresh) if fuse else self._refresh
        self._rooms: dict[int, Tensor] = {}

    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) uint8 -> (B, features)."""
        images = self._enter(pixels)
        try:
            for unit, part in zip(self.units, self.parts, strict=True):
                unit.folded = part
            features: Tensor = self.body(images)
        finally:
            for unit in self.units:
                unit.folded = None
        return features

    def _enter(self, pixels: Tensor) -> Tensor:
        """As the first convolution wants them."""
        images = self.normalise(pixels)
        if not self.units:
            return images.to(self.dtype)
        count, _, *sides = images.shape
        size = 1 << (count - 1).bit_length()  # few sizes, never given up: a captured graph keeps the address
        if size not in self._rooms:
            room = torch.zeros(size, self.parts[0].weight.shape[1], *sides, dtype=self.dtype, device=images.device)
            self._rooms[size] = room.contiguous(memory_format=torch.channels_last)
        self.parts[0].enter(images, self._rooms[size][:count])
        return self._rooms[size][:count]

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
        each._foreach_copy_([part.bias for part in self.parts], biases)
        for unit, scale, part in zip(self.units, scales, self.parts, strict=True):
            part.fill(unit.convolution.weight * scale.view(-1, 1, 1, 1))

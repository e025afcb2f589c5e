"""A body for answers alone: batch norm folded into its convolutions, each with its ReLU in one kernel of a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from iblurry.network.unit import Unit

ALIGNED = 8  # channels: tensor cores want multiples of it, and the first convolution has three


class Folded:
    """The same answers as the body in eval mode, up to rounding; `refresh` after its weights have changed.

    gamma (w * x - mean) / sqrt(var + eps) + beta = (w s) * x + (beta - mean s), with s = gamma / sqrt(var + eps).
    Fixed addresses: it can be refreshed and used in a captured graph.
    """

    def __init__(self, body: nn.Module, dtype: torch.dtype) -> None:
        self.body, self.dtype = body, dtype
        self.units = [module for module in body.modules() if isinstance(module, Unit)]
        self.parts = [_empty(unit, dtype) for unit in self.units]

    def __call__(self, images: Tensor) -> Tensor:
        try:
            for unit, part in zip(self.units, self.parts, strict=True):
                unit.folded = part
            features: Tensor = self.body(images.to(self.dtype))
        finally:
            for unit in self.units:
                unit.folded = None
        return features

    def refresh(self) -> None:
        if not self.units:
            return
        norms = [unit[1] for unit in self.units]
        scales = torch._foreach_add([norm.running_var for norm in norms], norms[0].eps)
        torch._foreach_sqrt_(scales)
        scales = torch._foreach_div([norm.weight for norm in norms], scales)
        shifts = torch._foreach_mul([norm.running_mean for norm in norms], scales)
        torch._foreach_copy_([bias for _, bias in self.parts], torch._foreach_sub([n.bias for n in norms], shifts))
        for unit, scale, (weight, _) in zip(self.units, scales, self.parts, strict=True):
            own = unit[0].weight
            torch.mul(own, scale.view(-1, 1, 1, 1), out=weight[:, : own.shape[1]])


def _empty(unit: Unit, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weight, its channels filled up with zeros, and bias."""
    own = unit[0].weight
    width, channels, *kernel = own.shape
    aligned = -(-channels // ALIGNED) * ALIGNED
    weight = torch.zeros(width, aligned, *kernel, dtype=dtype, device=own.device)
    return weight.contiguous(memory_format=torch.channels_last), torch.zeros(width, dtype=dtype, device=own.device)

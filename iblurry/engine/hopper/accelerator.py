"""What engines ask of the kernels for Hopper GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from iblurry.engine.convolutions import OwnConvolutions, WeightStream
from iblurry.engine.hopper import inference, prepare, products, training
from iblurry.engine.hopper.weight_gradient import Descent
from iblurry.network.bodies import ConvUnit, ResNet


class HopperAccelerator:
    """An `Accelerator` for H100 and H200.

    Parameters
    ----------
    device : torch.device
        The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def training(self, body: nn.Module) -> OwnConvolutions | None:
        units = [module for module in body.modules() if isinstance(module, ConvUnit)]
        if isinstance(body, ResNet):
            return OwnConvolutions(units, training.convolve, training.finish, WeightStream(self.device))
        return OwnConvolutions(units, training.convolve) if units else None  # the rest is fused by a compiler

    def prepare(self, body: nn.Module, images: Sequence[int]) -> Callable[[Tensor], Tensor]:
        return prepare.PreparedBody(body, images, self.device)

    def prepare_answers(self, body: nn.Module, images: Sequence[int]) -> None:
        prepare.compile_inference(body, images, self.device)

    def prepare_stack(self, body: nn.Module, images: Sequence[int], models: int) -> None:
        prepare.compile_stack(body, images, self.device, models)

    def convolve_folded(
        self, maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None, *, stride: int
    ) -> Tensor | None:
        return inference.convolve(maps, weight, bias, plus, stride=stride)

    def write_patches(self, images: Tensor, buffer: Tensor, side: int) -> None:
        inference.write_patches(images, buffer, side)

    def convolve_stacked(self, maps: Tensor, unit: ConvUnit, models: int, descent: Any = None) -> Tensor | None:
        conv = unit.convolution
        if training.fits(maps.shape, conv.out_channels, conv.kernel_size[0], conv.stride[0], models):
            return training.convolve_stacked(maps, unit, models, descent)
        if training.has_patches(maps, conv, models):
            return training.convolve_patches(maps, unit, models)
        return None

    def finish_stacked(self, maps: Tensor, unit: ConvUnit, plus: Tensor | None, *, models: int) -> Tensor:
        return training.finish(maps, unit, plus, models)

    def convolve_grouped(self, maps: Tensor, unit: ConvUnit, slot: Tensor, groups: int) -> Tensor | None:
        conv = unit.convolution
        if not training.fits(maps.shape, conv.out_channels, conv.kernel_size[0], conv.stride[0]):
            return None
        return training.convolve_grouped(maps, unit, slot, groups)

    def descent(self, unit: ConvUnit, models: int, momentum: Tensor | None, group: dict[str, Any]) -> Descent | None:
        weight = unit.convolution.weight
        if momentum is None or not Descent.fits(unit, models):
            return None
        return Descent(
            weight.detach(),
            rounded=torch.empty_like(weight, dtype=torch.bfloat16),
            momentum=momentum,
            lr=group["lr"],
            friction=group["momentum"],
            decay=group["weight_decay"],
            nesterov=group["nesterov"],
        )

    def products_with_first(self, gradients: Sequence[Tensor]) -> Tensor:
        return products.with_first(gradients)

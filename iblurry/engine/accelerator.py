"""The seam to kernels of our own: what an engine asks of them, and where it finds those of a device."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from iblurry.engine.convolutions import OwnConvolutions
    from iblurry.network.bodies import ConvUnit

HOPPER = (9, 0)  # the capability of H100 and H200


class Accelerator(Protocol):
    """Kernels for one kind of GPU, in bfloat16. What returns None where no kernel fits is then computed by torch."""

    def training(self, body: nn.Module) -> OwnConvolutions | None:
        """Makes the body's units train by these kernels."""

    def prepare(self, body: nn.Module, images: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """The body for training batches (B, C, H, W) of this shape, whose kernels are compiled from now on."""

    def prepare_answers(self, body: nn.Module, images: Sequence[int]) -> None:
        """Compiles what a folded body needs for so many images, if it was not compiled before."""

    def prepare_stack(self, body: nn.Module, images: Sequence[int], models: int) -> None:
        """Compiles what a training step of so many stacked models needs, on a batch (B, C, H, W) each."""

    def convolve_folded(
        self, maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None, *, stride: int
    ) -> Tensor | None:
        """relu(weight * maps + bias) + plus, padded by half the kernel's side."""

    def write_patches(self, images: Tensor, buffer: Tensor, side: int) -> None:
        """Writes the patch under each pixel into the channels of `buffer`, zeros behind it."""

    def convolve_stacked(self, maps: Tensor, unit: ConvUnit, models: int, descent: Any = None) -> Tensor | None:
        """The unit's convolutions of so many stacked models in a training step; with a descent, SGD's step, too."""

    def finish_stacked(self, maps: Tensor, unit: ConvUnit, plus: Tensor | None, *, models: int) -> Tensor:
        """Batch norm, ReLU and the sum behind such convolutions."""

    def convolve_grouped(self, maps: Tensor, unit: ConvUnit, slot: Tensor, groups: int) -> Tensor | None:
        """The unit's convolution, the gradients of whose weight come back in the slot, for each group apart."""

    def descent(self, unit: ConvUnit, models: int, momentum: Tensor | None, group: dict[str, Any]) -> Any:
        """What takes SGD's steps of the unit's stacked weight in the kernel of its gradient; it has `restart`."""

    def products_with_first(self, gradients: Sequence[Tensor]) -> Tensor:
        """(2, groups): products of the first group's gradient with each one's, and squared lengths.

        Parameters
        ----------
        gradients : sequence of Tensor
            (groups, ...) of each weight, float32.
        """


@functools.cache
def accelerator(device: torch.device) -> Accelerator | None:
    """The kernels for this device: of a Hopper GPU where Triton can compile them, else none."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != HOPPER:
        return None
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("triton.experimental.gluon") is None:
        return None
    from iblurry.engine.hopper.accelerator import HopperAccelerator

    return HopperAccelerator(device)

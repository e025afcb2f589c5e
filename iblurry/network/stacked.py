"""Several networks of one kind as one, for training: their weights are stacked, so that a step of all is one step."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import nullcontext
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iblurry.network.bodies import ConvNet, ConvUnit, ResNet
from iblurry.network.fused import HopperConvolutions, kernels
from iblurry.network.network import FLOOR, Network

ALIGNED = 8  # values: what a product in bfloat16 is fastest with


class StackedNetwork(nn.Module):
    """Networks like a given one that learn side by side, each from its own images; none sees another's.

    A weight of all networks lies in one tensor, one network behind the other along its first axis, and so do images.
    A batch of 16 leaves most of a GPU idle; one of 32 networks does not.

    Parameters
    ----------
    network : Network
        What each is like; see `can_stack`.
    models : int
        How many there are.
    """

    open: Tensor

    def __init__(self, network: Network, models: int) -> None:
        super().__init__()
        assert can_stack(network), "asked before"
        self.models, self.precision, self.layout = models, network.precision, network.layout
        self.body = copy.deepcopy(network.body).train()
        units = [module for module in self.body.modules() if isinstance(module, ConvUnit)]
        own = kernels(network.open.device)
        for unit in units:
            unit.convolution.weight = nn.Parameter(_repeated(unit.convolution.weight, models, network.layout))
            unit.convolve = functools.partial(_convolve, models=models, own=own)
            unit[1] = StackedNorm(unit.norm, models)
        by_kernels = [unit for unit in units if unit.convolution.in_channels % own.training.LEAST == 0] if own else []
        assert units[0].convolve is not None
        self.hopper = HopperConvolutions(by_kernels, units[0].convolve) if own else None
        self.weight = nn.Parameter(network.head.weight.detach()[None].repeat(models, 1, 1))  # (models, rows, features)
        self.bias = nn.Parameter(network.head.bias.detach()[None].repeat(models, 1))
        self.register_buffer("open", network.open[None].repeat(models, 1))
        self._run = network.fuse(self.body) if network.fuse else self.body

    def forward(self, images: Tensor) -> Tensor:
        """(models * B, C, H, W) float -> (models, B, rows) logits, in training mode."""
        images = images.contiguous(memory_format=self.layout)
        rounded = nullcontext() if self.hopper is None else self.hopper.rounded()
        with rounded, torch.autocast(images.device.type, self.precision, enabled=self.precision is not None):
            features = self._run(images).unflatten(0, (self.models, -1))
            logits = torch.baddbmm(self.bias[:, None], features, self.weight.mT)
        return logits.float().masked_fill(~self.open[:, None], FLOOR)

    @torch.no_grad()
    def put(self, model: int, network: Network) -> None:
        """This one of the networks becomes like the given one."""
        for own, given in self._pairs(model, network):
            own.copy_(given)

    @torch.no_grad()
    def get(self, model: int, network: Network) -> None:
        """The given network becomes like this one."""
        for own, given in self._pairs(model, network):
            given.copy_(own)

    def _pairs(self, model: int, network: Network) -> Iterator[tuple[Tensor, Tensor]]:
        given = network.body.state_dict()
        for name, stacked in self.body.state_dict().items():
            yield stacked.chunk(self.models)[model], given[name]
        head = (network.head.weight, network.head.bias, network.open)
        yield from zip((self.weight[model], self.bias[model], self.open[model]), head, strict=True)


def can_stack(network: Network) -> bool:
    """Whether networks like this one can be stacked: the body is made of units, and all weights are trained."""
    return isinstance(network.body, ConvNet | ResNet) and all(weight.requires_grad for weight in network.parameters())


class StackedNorm(nn.Module):
    """Batch norm of stacked networks in training mode: statistics of each over its own images.

    Parameters
    ----------
    norm : nn.BatchNorm2d
        What each is like.
    models : int
        How many there are.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.BatchNorm2d, models: int) -> None:
        super().__init__()
        mean, var, momentum = norm.running_mean, norm.running_var, norm.momentum
        assert mean is not None
        assert var is not None
        assert momentum is not None
        self.models, self.eps, self.momentum = models, norm.eps, momentum
        self.weight = nn.Parameter(norm.weight.detach().repeat(models))
        self.bias = nn.Parameter(norm.bias.detach().repeat(models))
        self.register_buffer("running_mean", mean.repeat(models))
        self.register_buffer("running_var", var.repeat(models))

    def forward(self, maps: Tensor) -> Tensor:
        """(models * B, C, H, W) -> the same shape."""
        apart = maps.unflatten(0, (self.models, -1)).float()
        var, mean = torch.var_mean(apart, (1, 3, 4), correction=0, keepdim=True)
        with torch.no_grad():
            count = apart[0, :, 0].numel()
            self.running_mean.lerp_(mean.flatten(), self.momentum)
            self.running_var.lerp_(var.flatten() * (count / (count - 1)), self.momentum)
        scale = self.weight.view(mean.shape) * torch.rsqrt(var + self.eps)
        done: Tensor = (apart - mean) * scale + self.bias.view(mean.shape)
        return done.to(maps.dtype).flatten(0, 1)


def _repeated(weight: Tensor, models: int, layout: torch.memory_format) -> Tensor:
    return weight.detach().repeat(models, 1, 1, 1).contiguous(memory_format=layout)


def _convolve(maps: Tensor, unit: ConvUnit, *, models: int, own: ModuleType | None) -> Tensor:
    """The unit's convolutions of all networks: by own kernels where they fit, else as products with patches."""
    conv = unit.convolution
    side, stride = conv.kernel_size[0], conv.stride[0]
    if own is not None and own.training.fits(maps.shape, conv.out_channels, side, stride, models):
        done: Tensor = own.training.convolve_stacked(maps, unit, models)
        return done
    assert not isinstance(conv.padding, str)
    patches = F.unfold(maps, side, padding=conv.padding, stride=stride)  # (models * B, values, pixels)
    room = (0, -patches.shape[1] % ALIGNED)
    values = F.pad(patches.mT, room).unflatten(0, (models, -1)).flatten(1, 2)  # (models, B * pixels, values)
    weights = F.pad(conv.weight.flatten(1), room).unflatten(0, (models, -1))
    sizes = (len(maps), maps.shape[2] // stride, maps.shape[3] // stride, conv.out_channels)
    products: Tensor = values @ weights.mT
    return products.view(sizes).permute(0, 3, 1, 2)

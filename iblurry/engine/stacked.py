"""Several networks of one kind as one, for training: their weights are stacked, so that a step of all is one step."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iblurry.engine.accelerator import Accelerator, accelerator
from iblurry.engine.convolutions import OwnConvolutions, WeightStream
from iblurry.engine.network import OptimizedNetwork
from iblurry.network import FLOOR
from iblurry.network.bodies import ConvNet, ConvUnit, ResNet

ALIGNED = 8  # values: what a product in bfloat16 is fastest with


class StackedNetwork(nn.Module):
    """Networks like a given one that learn side by side, each from its own images; none sees another's.

    A weight of all networks lies in one tensor, one network behind the other along its first axis, and so do images.
    A batch of 16 leaves most of a GPU idle; one of 32 networks does not.

    Parameters
    ----------
    network : OptimizedNetwork
        What each is like; see `can_stack`.
    models : int
        How many there are.
    """

    open: Tensor

    def __init__(self, network: OptimizedNetwork, models: int) -> None:
        super().__init__()
        assert can_stack(network), "asked before"
        self.models, self.precision, self.layout = models, network.precision, network.layout
        self.body = copy.deepcopy(network.body).train()
        units = [module for module in self.body.modules() if isinstance(module, ConvUnit)]
        self.own = accelerator(network.open.device)
        for unit in units:
            unit.convolution.weight = nn.Parameter(_repeated(unit.convolution.weight, models, network.layout))
            unit[1] = StackedNorm(unit.norm, models)
        convolve, finish, weight_stream = functools.partial(_convolve, models=models, own=self.own), None, None
        if self.own is not None:
            finish = functools.partial(self.own.finish_stacked, models=models)
            weight_stream = WeightStream(network.open.device)
        self.convolutions = OwnConvolutions(units, convolve, finish, weight_stream)
        self.descents: list[Any] = []  # of weights that take their steps in the backward pass
        self.weight = nn.Parameter(network.head.weight.detach()[None].repeat(models, 1, 1))  # (models, rows, features)
        self.bias = nn.Parameter(network.head.bias.detach()[None].repeat(models, 1))
        self.register_buffer("open", network.open[None].repeat(models, 1))

    def descend(self, optimizer: torch.optim.SGD) -> None:
        """Makes steps of SGD a part of the gradients' kernels, where there are kernels for it.

        These weights get no gradient; the optimizer keeps their momentum and leaves them alone.
        """
        others, (group,) = [], optimizer.param_groups
        if self.own is None:
            return
        for unit in self.convolutions.units:
            momentum = optimizer.state[unit.convolution.weight].get("momentum_buffer")
            descent = self.own.descent(unit, self.models, momentum, group)
            if descent is None:
                others.append(unit)
                continue
            unit.convolve = functools.partial(_convolve, models=self.models, own=self.own, descent=descent)
            self.descents.append(descent)
        self.convolutions.units = others

    def prepare(self, body: nn.Module, images: Sequence[int]) -> None:
        """Compiles own kernels, where there are any, for a batch (B, C, H, W) of each network; `body` is of one."""
        if self.own is not None:
            self.own.prepare_stack(body, images, self.models)

    def forward(self, images: Tensor) -> Tensor:
        """(models * B, C, H, W) float -> (models, B, rows) logits, in training mode."""
        images = images.contiguous(memory_format=self.layout)
        rounded = nullcontext() if self.own is None else self.convolutions.rounded()
        with rounded, _autocast(images, self.precision):
            features = self.body(images).unflatten(0, (self.models, -1))
            logits = torch.baddbmm(self.bias[:, None], features, self.weight.mT)
        return logits.float().masked_fill(~self.open[:, None], FLOOR)

    @torch.no_grad()
    def put(self, model: int, network: OptimizedNetwork) -> None:
        """This one of the networks becomes like the given one."""
        for own, given in self._pairs(model, network):
            own.copy_(given)

    @torch.no_grad()
    def restart(self) -> None:
        """After weights were put."""
        for descent in self.descents:
            descent.restart()

    @torch.no_grad()
    def get(self, model: int, network: OptimizedNetwork) -> None:
        """The given network becomes like this one."""
        for own, given in self._pairs(model, network):
            given.copy_(own)

    def _pairs(self, model: int, network: OptimizedNetwork) -> Iterator[tuple[Tensor, Tensor]]:
        given = network.body.state_dict()
        for name, stacked in self.body.state_dict().items():
            yield stacked.chunk(self.models)[model], given[name]
        head = (network.head.weight, network.head.bias, network.open)
        yield from zip((self.weight[model], self.bias[model], self.open[model]), head, strict=True)


def can_stack(network: OptimizedNetwork) -> bool:
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


class GroupedNetwork(nn.Module):
    """A network in eval mode whose gradients come apart for each group of a batch, by one backward pass.

    In eval mode no image changes what becomes of another, so that groups can pass together; only the sums over images
    that are gradients of weights must be kept apart.

    Parameters
    ----------
    network : OptimizedNetwork
        What passes; its weights are used as they are at each call. See `can_stack`.
    groups : int
        How many there are, of equal size.
    """

    def __init__(self, network: OptimizedNetwork, groups: int) -> None:
        super().__init__()
        assert can_stack(network), "asked before"
        self.network, self.groups, self.own = network, groups, accelerator(network.open.device)
        self.body = copy.deepcopy(network.body)  # what runs: the same layers, which have the network's own weights
        units = [unit for unit in network.body.modules() if isinstance(unit, ConvUnit)]
        copies = [unit for unit in self.body.modules() if isinstance(unit, ConvUnit)]
        self._slots: list[Tensor] = []  # where gradients come back: one for each weight, in the order of `parameters`
        for unit, copied in zip(units, copies, strict=True):
            slot = self._slot(unit.convolution.weight)
            copied.convolution.weight = unit.convolution.weight
            copied.convolve = functools.partial(_convolve_grouped, slot=slot, groups=groups, own=self.own)
            copied.finish = None  # in eval mode, fused by a compiler
            copied[1] = GroupedNorm(unit.norm, self._slot(unit.norm.weight), self._slot(unit.norm.bias), groups)
        self._head = self._slot(network.head.weight), self._slot(network.head.bias)
        self._run = network.fuse(self.body) if network.fuse else self.body

    def _slot(self, weight: Tensor) -> Tensor:
        """Zeros of (groups * length, ...) that take no memory."""
        slot = weight.new_zeros(()).expand(self.groups * len(weight), *weight.shape[1:]).requires_grad_()
        self._slots.append(slot)
        return slot

    def gradients(self, images: Tensor, labels: Tensor) -> list[Tensor]:
        """Returns the gradient of each group's mean cross-entropy, by weight: (groups, *shape), in the network's order.

        Parameters
        ----------
        images : Tensor
            (groups * B, C, H, W) float, one group behind the other.
        labels : Tensor
            (groups * B,) head rows.
        """
        network, groups = self.network, self.groups
        images = images.contiguous(memory_format=network.layout)
        with torch.enable_grad():
            with _autocast(images, network.precision):
                features = self._run(images).unflatten(0, (groups, -1))
                weight, bias = (
                    (own.detach() + slot.unflatten(0, (groups, -1)))
                    for own, slot in zip((network.head.weight, network.head.bias), self._head, strict=True)
                )
                logits = torch.baddbmm(bias[:, None], features, weight.mT)
            logits = logits.float().masked_fill(~network.open, FLOOR).flatten(0, 1)
            loss = F.cross_entropy(logits, labels, reduction="sum") * (groups / len(labels))
            slopes = torch.autograd.grad(loss, self._slots)
        return [slope.unflatten(0, (groups, -1)) for slope in slopes]

    @torch.no_grad()
    def similarities(self, gradients: Sequence[Tensor]) -> Tensor:
        """Cosines between the first group's gradient and each other's, over all weights together, (groups - 1,)."""
        if self.own is not None:
            products, squares = self.own.products_with_first(gradients)
        else:
            rows = torch.cat([gradient.flatten(1) for gradient in gradients], 1)
            products, squares = rows @ rows[0], rows.square().sum(1)
        lengths = squares.sqrt().clamp(min=1e-8)
        cosines: Tensor = products[1:] / (lengths[1:] * lengths[:1])
        return cosines


class GroupedNorm(nn.Module):
    """Batch norm in eval mode whose gradients come apart for each group.

    Parameters
    ----------
    norm : nn.BatchNorm2d
        Whose weights and statistics are used.
    weight, bias : Tensor
        (groups * C,) zeros: where gradients come back.
    groups : int
        How many there are.
    """

    def __init__(self, norm: nn.BatchNorm2d, weight: Tensor, bias: Tensor, groups: int) -> None:
        super().__init__()
        self._given = norm, weight, bias, groups  # in a tuple: no child of this module

    def forward(self, maps: Tensor) -> Tensor:
        """(groups * B, C, H, W) -> the same shape."""
        norm, weight, bias, groups = self._given
        assert norm.running_mean is not None
        assert norm.running_var is not None
        apart = maps.unflatten(0, (groups, -1)).float()
        shape = (-1, 1, len(norm.running_mean), 1, 1)
        scale = norm.weight.detach().view(shape) + weight.view(shape)
        shift = norm.bias.detach().view(shape) + bias.view(shape)
        done: Tensor = (apart - norm.running_mean.view(shape)) * torch.rsqrt(norm.running_var.view(shape) + norm.eps)
        return (done * scale + shift).to(maps.dtype).flatten(0, 1)


def _autocast(images: Tensor, precision: torch.dtype | None) -> torch.autocast:
    """Without a cache: a captured graph would keep what it holds."""
    return torch.autocast(images.device.type, precision, enabled=precision is not None, cache_enabled=False)


def _repeated(weight: Tensor, models: int, layout: torch.memory_format) -> Tensor:
    return weight.detach().repeat(models, 1, 1, 1).contiguous(memory_format=layout)


def _convolve(maps: Tensor, unit: ConvUnit, *, models: int, own: Accelerator | None, descent: Any = None) -> Tensor:
    """The unit's convolutions of all networks: by own kernels where they fit, else as products with patches."""
    done = None if own is None else own.convolve_stacked(maps, unit, models, descent)
    return _multiply_patches(maps, unit.convolution, unit.convolution.weight, models) if done is None else done


def _convolve_grouped(maps: Tensor, unit: ConvUnit, *, slot: Tensor, groups: int, own: Accelerator | None) -> Tensor:
    """The unit's convolution, whose gradients come back in the slot, for each group apart."""
    done = None if own is None else own.convolve_grouped(maps, unit, slot, groups)
    if done is not None:
        return done
    weight = unit.convolution.weight.detach()
    return _multiply_patches(maps, unit.convolution, weight.repeat(groups, 1, 1, 1) + slot, groups)


def _multiply_patches(maps: Tensor, conv: nn.Conv2d, weight: Tensor, models: int) -> Tensor:
    """Convolutions of stacked maps by stacked weights, as products with the patch under each pixel."""
    assert not isinstance(conv.padding, str)
    side, stride = conv.kernel_size[0], conv.stride[0]
    up, across = ((size + 2 * pad - side) // stride + 1 for size, pad in zip(maps.shape[2:], conv.padding, strict=True))
    patches = _patches(maps, side, conv.padding, stride)
    room = (0, -patches.shape[2] % ALIGNED)
    values = F.pad(patches, room).unflatten(0, (models, -1)).flatten(1, 2)  # (models, B * pixels, values)
    weights = F.pad(weight.flatten(1), room).unflatten(0, (models, -1))
    products: Tensor = values @ weights.mT
    return products.view(len(maps), up, across, conv.out_channels).permute(0, 3, 1, 2)


def _patches(maps: Tensor, side: int, padding: tuple[int, ...], stride: int) -> Tensor:
    """(B, pixels, values)."""
    if maps.requires_grad:
        return F.unfold(maps, side, padding=padding, stride=stride).mT
    if torch.is_autocast_enabled(maps.device.type):  # in the type of the product: half as much to copy
        maps = maps.to(torch.get_autocast_dtype(maps.device.type))
    down, across = padding
    windows = F.pad(maps, (across, across, down, down)).unfold(2, side, stride).unfold(3, side, stride)
    return windows.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)  # on a GPU, unfold is a kernel for each image

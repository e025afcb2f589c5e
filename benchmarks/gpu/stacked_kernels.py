"""Our own kernels for stacked models beside cuDNN's, one model after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.gpu.layers import Layer, Pair, backward_by_torch, own_kernels, random_values
from iblurry.engine.stacked import StackedNorm
from iblurry.learner.refits import MODELS
from iblurry.network.bodies import ConvUnit


def stacked(layer: Layer, count: int, back: bool) -> Pair:
    """Convolutions of stacked models; or, with a sum, the gradients for their input maps."""
    own, up, last = own_kernels(), layer.high // layer.stride, torch.channels_last
    maps = random_values(MODELS * count, layer.channels, layer.high, layer.high).contiguous(memory_format=last)
    grads = random_values(MODELS * count, layer.outputs, up, up, seed=1).contiguous(memory_format=last)
    sizes = MODELS * layer.outputs, layer.channels, layer.side, layer.side
    weight = random_values(*sizes, seed=2).contiguous(memory_format=last)

    def one_by_one(kind: Callable[[Tensor], Tensor]) -> Tensor:
        each = [[kind(part) for part in values.chunk(MODELS)] for values in (grads, maps, weight)]
        if back:
            found = [
                backward_by_torch(layer, g, m, w, (True, False, False))[0] + m for g, m, w in zip(*each, strict=True)
            ]
        else:
            found = [F.conv2d(m, w, None, layer.stride, layer.side // 2) for _, m, w in zip(*each, strict=True)]
        return torch.cat(found)

    given, plus = (grads, maps) if back else (maps, None)
    return Pair(
        lambda: own.training.run_convolution(given, weight, layer.stride, back, MODELS, plus),
        lambda: one_by_one(Tensor.bfloat16),
        lambda: one_by_one(Tensor.float),
    )


def stacked_units(layer: Layer, count: int) -> Pair:
    """Convolutions of stacked models, batch norm and ReLU in a training step."""
    own, half = own_kernels(), layer.side // 2
    maps = random_values(MODELS * count, layer.channels, layer.high, layer.high).contiguous(
        memory_format=torch.channels_last
    )
    unit = ConvUnit(layer.channels, layer.outputs, kernel=layer.side, stride=layer.stride).cuda()
    sizes = MODELS * layer.outputs, layer.channels, layer.side, layer.side
    weight = random_values(*sizes, seed=2).contiguous(memory_format=torch.channels_last)
    unit.convolution.weight = nn.Parameter(weight.float())
    unit[1] = StackedNorm(unit.norm, MODELS)
    unit.finish = functools.partial(own.training.finish, models=MODELS)

    @torch.no_grad()
    def ours() -> Tensor:
        return own.training.finish(own.training.convolve_stacked(maps, unit, MODELS), unit, None, MODELS)

    @torch.no_grad()
    def one_by_one(kind: Callable[[Tensor], Tensor]) -> Tensor:
        each = zip(kind(maps).chunk(MODELS), kind(weight).chunk(MODELS), strict=True)
        done = [F.conv2d(m, w, None, layer.stride, half).float() for m, w in each]
        return torch.cat([F.relu(F.batch_norm(one, None, None, training=True, eps=1e-6)) for one in done])

    return Pair(ours, lambda: one_by_one(Tensor.bfloat16), lambda: one_by_one(Tensor.float))


def steps(layer: Layer, count: int) -> Pair | None:
    """The gradient of stacked models' weights with a step of SGD, from the same start; None where it does not fit."""
    own = own_kernels()
    if not own.weight_gradient.can_descend(layer.channels, layer.outputs, layer.side, MODELS):
        return None
    up, last = layer.high // layer.stride, torch.channels_last
    maps = random_values(MODELS * count, layer.channels, layer.high, layer.high).contiguous(memory_format=last)
    grads = random_values(MODELS * count, layer.outputs, up, up).contiguous(memory_format=last)
    start = (
        random_values(MODELS * layer.outputs, layer.channels, layer.side, layer.side)
        .float()
        .contiguous(memory_format=last)
    )
    lr, friction, decay = torch.full((), 0.01, device="cuda"), 0.9, 1e-4
    weight, speed, rounded = start.clone(), start.clone(), start.to(torch.bfloat16)
    descent = own.weight_gradient.Descent(weight, rounded, speed, lr, friction, decay, nesterov=True)

    def stepped(found: Tensor) -> Tensor:
        slope = found + decay * start
        return start - lr * (slope + friction * (friction * start + slope))

    def gradient(kind: Callable[[Tensor], Tensor]) -> Tensor:
        each = zip(grads.chunk(MODELS), maps.chunk(MODELS), start.chunk(MODELS), strict=True)
        return torch.cat(
            [backward_by_torch(layer, kind(g), kind(m), kind(w), (False, True, False))[1].float() for g, m, w in each]
        )

    def ours() -> Tensor:
        weight.copy_(start)
        speed.copy_(start)
        own.weight_gradient.descend(grads, maps, layer.stride, MODELS, descent)
        return weight.clone()

    return Pair(ours, lambda: stepped(gradient(Tensor.bfloat16)), lambda: stepped(gradient(Tensor.float)))

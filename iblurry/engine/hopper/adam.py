"""A step of Adam by one kernel over all weights; torch's fused one leaves much of an H200 idle."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from iblurry.engine.hopper.pieces import PIECE, Pieces, fixed_addresses, pick, place


@torch.no_grad()
def take_step(optimizer: torch.optim.Adam) -> None:
    """What `optimizer.step()` does, up to rounding; of one that is fused, with learning rates that are tensors."""
    each: Any = torch
    for group in optimizer.param_groups:
        weights: list[Tensor] = []
        found: tuple[list[Tensor], ...] = [], [], [], [], []  # gradients, means, squares, largest squares, steps
        optimizer._init_group(group, weights, *found)
        gradients, means, squares, _, steps = found
        if not weights:
            continue
        each._foreach_add_(steps, 1)
        numbers = group["lr"], group["eps"], group["weight_decay"]
        betas = {"BETA1": group["betas"][0], "BETA2": group["betas"][1]}
        logs = {f"LOG{i}": math.log2(beta) if beta else -1e4 for i, beta in enumerate(group["betas"], 1)}
        pairs = zip(weights, gradients, strict=True)
        gradients = [g if g.stride() == w.stride() else torch.empty_like(w).copy_(g) for w, g in pairs]
        pieces, fixed = Pieces.of(gradients), fixed_addresses(weights, means, squares, steps)
        _step[(pieces.blocks,)](*pieces.given, fixed, *numbers, **betas, **logs, PIECE=PIECE, num_warps=8)


OTHER = (
    "amsgrad",
    "maximize",
    "differentiable",
    "decoupled_weight_decay",
)  # ways of Adam that `take_step` does not know


def fits(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `take_step` can take this optimizer's steps: one of torch's Adam, of float32 weights without gaps."""
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if type(optimizer) is not torch.optim.Adam or hooks:
        return False
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return all(
        isinstance(group["lr"], Tensor)
        and (group["fused"] or group["capturable"])  # else the number of steps is on the host
        and not any(group.get(name) for name in OTHER)
        for group in optimizer.param_groups
    ) and all(
        weight.dtype is torch.float32
        and (weight.is_contiguous() or weight.is_contiguous(memory_format=torch.channels_last))
        for weight in weights
    )


@triton.jit
def _correction(step, LOG: tl.constexpr):
    """1 - beta ** step, in float64: near 0 float32 has few digits of it. LOG is that of beta, to base 2."""
    return 1.0 - tl.exp2(step.to(tl.float64) * LOG)


@triton.jit(do_not_specialize=["count", "eps", "decay"])
def _step(
    tensors, sizes, addresses, count, fixed, lr, eps, decay, BETA1: tl.constexpr, BETA2: tl.constexpr,
    LOG1: tl.constexpr, LOG2: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """`addresses` are those of the gradients, `fixed` those of weights, means, squares and numbers of steps."""
    mine, at, is_there = place(tensors, sizes, count, PIECE)
    to_weight = pick(fixed, mine, count, 0) + at
    to_mean = pick(fixed, mine, count, 1) + at
    to_square = pick(fixed, mine, count, 2) + at
    weight = tl.load(to_weight, mask=is_there)
    slope = tl.load(pick(addresses, mine, count, 0) + at, mask=is_there) + decay * weight
    mean = tl.load(to_mean, mask=is_there)
    mean += (1.0 - BETA1) * (slope - mean)
    square = BETA2 * tl.load(to_square, mask=is_there) + (1.0 - BETA2) * slope * slope
    step = tl.load(pick(fixed, mine, count, 3))
    size = (tl.load(lr) / _correction(step, LOG1)).to(tl.float32)
    scale = tl.sqrt(_correction(step, LOG2)).to(tl.float32)
    tl.store(to_mean, mean, mask=is_there)
    tl.store(to_square, square, mask=is_there)
    tl.store(to_weight, weight - size * mean / (tl.sqrt(square) / scale + eps), mask=is_there)

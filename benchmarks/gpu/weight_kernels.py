"""Our own kernels over all weights of a ResNet-18 beside torch's: A-GEM's projection, and a step of Adam."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.timing import time_captured
from iblurry.engine.fused import kernels
from iblurry.network.bodies import ResNet
from iblurry.parts.gradient.gradient import project


def projection(sign: int) -> dict[str, Any]:
    """A-GEM's, of gradients of a ResNet-18 that point against the reference, or along it: nothing changes then."""
    own = kernels(torch.device("cuda"))
    assert own is not None
    body = _body()
    reference, start, gradients = ([torch.empty_like(weight) for weight in body.parameters()] for _ in range(3))
    for slope, first in zip(reference, start, strict=True):
        slope.copy_(_random(slope, 1))
        first.copy_(_random(slope, 2) - sign * slope)

    def run(by: Callable[..., None] | None = None) -> None:
        torch._foreach_copy_(gradients, start)
        if by is not None:
            by(gradients, reference)

    def found(by: Callable[..., None]) -> Tensor:
        run(by)
        return torch.cat([gradient.flatten() for gradient in gradients])

    with torch.no_grad():
        ours, exact, beside = found(own.products.project), found(project), time_captured(run)
        row = {
            "kind": f"projection {sign}",
            "ours us": round(time_captured(lambda: run(own.products.project)) - beside, 2),
            "torch us": round(time_captured(lambda: run(project)) - beside, 2),
            "ours is off by": float((ours - exact).abs().max() / exact.abs().max()),
        }
        row["right"] = bool(torch.equal(found(own.products.project), ours)) and row["ours is off by"] <= 1e-5
    print(json.dumps(row), flush=True)
    return row


def adam() -> dict[str, Any]:
    """Five steps of a ResNet-18's weights, all of which have the same gradients."""
    own = kernels(torch.device("cuda"))
    assert own is not None
    body = _body()
    start = [weight.detach().clone() for weight in body.parameters()]
    for weight in body.parameters():
        weight.grad = _random(weight, 3)

    def run(take_step: Callable[[torch.optim.Adam], Any], times: int = 5) -> Callable[[], Tensor]:
        optimizer = torch.optim.Adam(
            body.parameters(), torch.full((), 1e-3, device="cuda"), fused=True, capturable=True
        )

        def steps() -> Tensor:
            for _ in range(times):
                take_step(optimizer)
            return torch.cat([weight.detach().flatten() for weight in body.parameters()]) if times > 1 else start[0]

        return steps

    def moved(take_step: Callable[[torch.optim.Adam], Any]) -> Tensor:
        with torch.no_grad():
            torch._foreach_copy_(list(body.parameters()), start)
        return run(take_step)() - torch.cat([weight.flatten() for weight in start])

    by_torch: Callable[[torch.optim.Adam], Any] = torch.optim.Adam.step
    ours, exact = moved(own.adam.take_step), moved(by_torch)
    row = {
        "kind": "adam",
        "ours us": round(time_captured(run(own.adam.take_step, 1)), 2),
        "torch us": round(time_captured(run(by_torch, 1)), 2),
        "ours is off by": float((ours - exact).abs().max() / exact.abs().max()),
    }
    row["right"] = bool(torch.equal(moved(own.adam.take_step), ours)) and row["ours is off by"] <= 1e-3
    print(json.dumps(row), flush=True)
    return row


def _body() -> ResNet:
    return ResNet(3, blocks=(2, 2, 2, 2), stem="cifar").to("cuda", memory_format=torch.channels_last)


def _random(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(like.numel() + seed)
    return torch.empty_like(like).normal_(generator=generator)

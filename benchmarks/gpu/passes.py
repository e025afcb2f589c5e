"""Whole training passes, with the gradients of weights beside the rest of the backward pass and in turn with it.

The bits must be the same, also where nothing is captured.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu.timing import time_captured
from iblurry.engine.eager import Eager
from iblurry.engine.optimizer import SGD
from iblurry.engine.optimizer_state import set_lr
from iblurry.engine.stacked import StackedNetwork
from iblurry.network.build import build
from iblurry.network.network import Network
from iblurry.rng import Rng

CLASSES = 10
TIMES = 20  # passes whose bits are compared; a race is not lost every time
REPEATS = 5  # captured together

Beside = Callable[[], AbstractContextManager[Any]]  # around a backward pass


def passes(batches: tuple[int, ...], models: int, batch: int) -> list[dict[str, Any]]:
    """A row for each size of a batch of a ResNet-18, and one for a step of so many stacked models."""
    rows = [_row(f"pass of {count}", *_single(count)) for count in batches]
    return [*rows, _row(f"step of {models}", *_stacked(models, batch))]


def _row(kind: str, run: Callable[[Beside], list[Tensor]], beside: Beside) -> dict[str, Any]:
    exact = [values.clone() for values in run(nullcontext)]
    same = all(
        all(torch.equal(one, other) for one, other in zip(run(beside), exact, strict=True)) for _ in range(TIMES)
    )
    row = {
        "kind": kind,
        "beside us": round(time_captured(lambda: run(beside), REPEATS), 1),
        "in turn us": round(time_captured(lambda: run(nullcontext), REPEATS), 1),
        "right": same,
    }
    print(json.dumps(row), flush=True)
    return row


def _network() -> Network:
    network = build("resnet18", (3, 32, 32), CLASSES, rng=Rng(1))
    for label in range(CLASSES):
        network.expose(label, torch.full((network.features,), 0.01 * label), torch.zeros(1))
    return Eager("cuda", "bfloat16").setup(network).train()


def _images(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(count)
    images = torch.randn(count, 3, 32, 32, generator=generator, device="cuda")
    return images, torch.arange(count, device="cuda") % CLASSES


def _single(count: int) -> tuple[Callable[[Beside], list[Tensor]], Beside]:
    network, (images, labels) = _network(), _images(count)

    def run(beside: Beside) -> list[Tensor]:
        network.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        with beside():
            loss.backward()
        return [weight.grad for weight in network.parameters() if weight.grad is not None]

    return run, network.parallel_backward


def _stacked(models: int, batch: int) -> tuple[Callable[[Beside], list[Tensor]], Beside]:
    network, (images, labels) = StackedNetwork(_network(), models), _images(models * batch)
    optimizer = SGD().start([list(network.parameters())])
    assert isinstance(optimizer, torch.optim.SGD)
    network.descend(optimizer)
    set_lr(optimizer.param_groups[0], 0.01)
    changed = [*network.parameters(), *(state["momentum_buffer"] for state in optimizer.state.values())]
    start = [values.detach().clone() for values in changed]

    def run(beside: Beside) -> list[Tensor]:
        with torch.no_grad():
            for values, first in zip(changed, start, strict=True):
                values.copy_(first)
        network.restart()
        loss = F.cross_entropy(network(images).flatten(0, 1), labels, reduction="sum") / batch
        optimizer.zero_grad()
        with beside():
            loss.backward()
        optimizer.step()
        return [values.detach() for values in changed]

    return run, network.convolutions.parallel_backward

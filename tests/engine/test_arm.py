"""Convolutions for Arm CPUs compute what torch's do; they need no Arm CPU to be tested."""

from __future__ import annotations

import pytest
import torch

from iblurry.engine import arm
from iblurry.engine.eager import Eager
from iblurry.network.bodies import ConvUnit
from iblurry.network.build import build
from iblurry.rng import Rng


@pytest.mark.parametrize("kernel, stride", [(3, 1), (3, 2), (1, 2), (1, 1), (7, 2)])
@pytest.mark.parametrize("sides", [(8, 8), (9, 7)])
def test_values_and_gradients_are_those_of_torch(kernel, stride, sides):
    torch.manual_seed(1)
    unit = ConvUnit(5, 6, kernel=kernel, stride=stride)
    maps = torch.randn(3, 5, *sides, requires_grad=True)
    expected = unit.convolution(maps)
    towards = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, [maps, unit.convolution.weight], towards)
    made = arm.convolve(maps, unit)
    assert made.grad_fn.name() != expected.grad_fn.name()
    torch.testing.assert_close(made, expected)
    for own, theirs in zip(torch.autograd.grad(made, [maps, unit.convolution.weight], towards), gradients, strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.quick("convnet")
@pytest.mark.parametrize("network", ["convnet", "resnet18"])
def test_arm_cpus_train_by_them_and_answer_by_torch(network, monkeypatch):
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    found = {}
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr(arm.platform, "machine", lambda machine=machine: machine)
        made = Eager("cpu").setup(build(network, (3, 16, 16), 4, rng=Rng(1)))
        assert (made.convolutions is not None) == (machine == "aarch64")
        made.train()
        made.body(images).square().sum().backward()
        made.eval()
        with torch.no_grad():
            answer = made.body(images)
        found[machine] = [answer, *(p.grad for p in made.body.parameters())]
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_nothing_to_replace(monkeypatch):
    monkeypatch.setattr(arm.platform, "machine", lambda: "aarch64")
    assert Eager("cpu").setup(build("mlp", (3, 16, 16), 4, rng=Rng(1))).convolutions is None

"""What surrounds our own kernels, with plain arithmetic in their place: the kernels themselves need a GPU."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from iblurry.engine import fused
from iblurry.engine.fused import (
    FirstConvolution,
    FoldedBody,
    FusedConvolution,
    OwnConvolutions,
    WeightRows,
    hopper_convolutions,
)
from iblurry.engine.network import OptimizedNetwork
from iblurry.network.bodies import ConvUnit, ResNet
from iblurry.network.build import build
from iblurry.rng import Rng

CPU = torch.device("cpu")


def body():
    return build("resnet18", (3, 16, 16), 4, rng=Rng(1)).body


def plain_patches(images, buffer, side):
    count, channels, high, wide = images.shape
    met = F.unfold(images, side, padding=side // 2).view(count, channels, side**2, high, wide)
    buffer[:, : channels * side**2] = met.transpose(1, 2).flatten(1, 2)


class PlainFold:
    """In place of the kernel that folds: writes nothing."""

    does_fit = False

    def __init__(self, units, convolutions):
        assert len(units) == len(convolutions)

    def fits(self):
        return self.does_fit


@pytest.fixture
def stand_ins(monkeypatch):
    inference = SimpleNamespace(write_patches=plain_patches, convolve=lambda *args, **kwargs: None)
    own = SimpleNamespace(inference=inference, fold=SimpleNamespace(NormFold=PlainFold))
    monkeypatch.setattr(fused, "kernels", lambda device: own)
    monkeypatch.setattr(torch, "cudnn_convolution_relu", lambda x, w, b, *rest: F.relu(F.conv2d(x, w, b, *rest)))


def test_there_are_no_kernels_for_a_cpu():
    assert fused.kernels(CPU) is None
    assert hopper_convolutions(body(), CPU) is None


def test_of_patches_a_convolution_of_side_1_makes_the_same(stand_ins):
    network = body().eval()
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    folded = FoldedBody(network, torch.bfloat16)
    first, *others = folded.convolutions
    assert isinstance(first, FirstConvolution)
    assert first.weight.shape == (64, 32, 1, 1)
    assert not any(isinstance(part, FirstConvolution) for part in others)
    with torch.no_grad():
        folded.refresh()
        expected = network.layers[0](images)
        buffer = folded._to_input(images)
        torch.testing.assert_close(first(buffer).float(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("does_fit", [True, False])
def test_no_compiler_is_asked_where_an_own_kernel_folds(stand_ins, monkeypatch, does_fit):
    monkeypatch.setattr(PlainFold, "does_fit", does_fit)
    asked = []
    folded = FoldedBody(body(), torch.bfloat16, fuse=lambda function: asked.append(function) or function)
    assert isinstance(folded.refresh, PlainFold) is does_fit
    assert len(asked) == (not does_fit)


@pytest.mark.parametrize(
    "channels, side, make",
    [
        (3, 3, FirstConvolution),
        (5, 3, lambda unit, dtype: FusedConvolution(unit, dtype, pad=True)),
        (6, 3, FusedConvolution),
        (6, 1, FusedConvolution),
    ],
)
def test_rows_of_a_weight_in_memory_are_where_the_own_kernel_writes_them(channels, side, make):
    unit = ConvUnit(channels, 4, kernel=side).to(memory_format=torch.channels_last)
    convolution, weight, scales = make(unit, torch.bfloat16), unit.convolution.weight.detach(), torch.arange(1.0, 5)
    rows = WeightRows.of(weight, convolution.weight)
    source = weight.permute(0, 2, 3, 1).reshape(rows.total, rows.given)  # as it lies in memory
    scaled = source * scales[torch.arange(rows.total) // rows.each, None]
    expected = F.pad(scaled, (0, rows.length - rows.given)).to(torch.bfloat16)
    convolution.set_weight(weight * scales.view(-1, 1, 1, 1))
    assert torch.equal(convolution.weight.permute(0, 2, 3, 1).reshape(rows.total, rows.length), expected)
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)


def test_weights_are_rounded_for_one_forward_pass():
    seen = []

    def convolve(maps, unit):
        seen.append((unit.weight_bf16, unit.convolution.weight))
        return unit.convolution(maps)

    network = OptimizedNetwork(build("convnet", (3, 16, 16), 4, rng=Rng(1)))
    units = [module for module in network.body.modules() if isinstance(module, ConvUnit)][1:]
    network.convolutions = OwnConvolutions(units, convolve)
    network.precision = torch.bfloat16
    network(torch.zeros(2, 3, 16, 16))
    assert len(seen) == len(units)
    for rounded, weight in seen:
        assert not rounded.requires_grad
        assert torch.equal(rounded, weight.to(torch.bfloat16))
    assert all(unit.weight_bf16 is None for unit in units)
    before = seen[0][0].clone()
    units[0].convolution.weight.data.add_(1)
    network(torch.zeros(2, 3, 16, 16))
    assert torch.equal(seen[0][0], before)  # still what a backward pass of the first one needs
    assert torch.equal(seen[len(units)][0], units[0].convolution.weight.to(torch.bfloat16))


def test_what_follows_a_convolution_takes_the_sum_behind_it_and_can_be_left_out():
    sums = []

    def finish(maps, unit, plus):
        sums.append(plus is not None)
        maps = torch.relu(unit.norm(maps))
        return maps if plus is None else maps + plus

    body, images = ResNet(3, blocks=(1, 1, 1, 1), stem="cifar").eval(), torch.randn(2, 3, 16, 16)
    expected = body(images)
    units = [module for module in body.modules() if isinstance(module, ConvUnit)]
    own = OwnConvolutions(units, lambda maps, unit: unit.convolution(maps), finish)
    assert torch.equal(body(images), expected)
    assert (len(sums), sum(sums)) == (len(units), 4)  # one of a block
    with own.left_out():
        assert torch.equal(body(images), expected)
    assert len(sums) == len(units)


def test_batches_of_sizes_that_nobody_announced_train_without_own_kernels():
    """For each size kernels would have to be compiled, and the first batches of a stream have many."""
    seen = []
    network = OptimizedNetwork(build("convnet", (3, 16, 16), 4, rng=Rng(1))).train()
    units = [module for module in network.body.modules() if isinstance(module, ConvUnit)]
    network.convolutions = OwnConvolutions(units, lambda maps, unit: seen.append(len(maps)) or unit.convolution(maps))
    network.precision = torch.bfloat16
    network.compiled[4] = network.body
    for size in (1, 3, 4):
        network(torch.zeros(size, 3, 16, 16))
    assert set(seen) == {4}
    network.compiled.clear()  # an engine that compiles nothing uses them for all sizes
    network(torch.zeros(3, 3, 16, 16))
    assert set(seen) == {3, 4}

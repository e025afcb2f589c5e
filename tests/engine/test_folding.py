"""What surrounds our own kernels, with plain arithmetic in their place: the kernels themselves need a GPU."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from iblurry.engine import folding
from iblurry.engine.accelerator import accelerator
from iblurry.engine.folding import FirstConvolution, FoldedBody, FusedConvolution
from iblurry.network.bodies import ConvUnit
from iblurry.network.build import build
from iblurry.rng import Rng


def body():
    return build("resnet18", (3, 16, 16), 4, rng=Rng(1)).body


def plain_patches(images, buffer, side):
    count, channels, high, wide = images.shape
    met = F.unfold(images, side, padding=side // 2).view(count, channels, side**2, high, wide)
    buffer[:, : channels * side**2] = met.transpose(1, 2).flatten(1, 2)


@pytest.fixture
def stand_ins(monkeypatch):
    own = SimpleNamespace(write_patches=plain_patches, convolve_folded=lambda *args, **kwargs: None)
    monkeypatch.setattr(folding, "accelerator", lambda device: own)
    monkeypatch.setattr(torch, "cudnn_convolution_relu", lambda x, w, b, *rest: F.relu(F.conv2d(x, w, b, *rest)))


def test_there_are_no_kernels_for_a_cpu_and_nothing_of_them_is_loaded():
    assert accelerator(torch.device("cpu")) is None
    learner = "import sys, iblurry; iblurry.Learner('clib', image=(1, 8, 8))"
    code = f"{learner}; print([name for name in sys.modules if 'hopper' in name])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_no_other_room_names_the_kernels_of_one_gpu():
    package = Path(folding.__file__).parents[1]
    naming = [path for path in package.rglob("*.py") if "engine.hopper" in path.read_text()]
    assert {path.relative_to(package).parts[0] for path in naming} == {"engine"}


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


@pytest.mark.parametrize(
    "channels, side, make",
    [
        (3, 3, FirstConvolution),
        (5, 3, lambda unit, dtype: FusedConvolution(unit, dtype, pad=True)),
        (6, 3, FusedConvolution),
        (6, 1, FusedConvolution),
    ],
)
def test_a_folded_weight_is_scaled_and_padded_as_it_lies_in_memory(channels, side, make):
    unit = ConvUnit(channels, 4, kernel=side).to(memory_format=torch.channels_last)
    convolution, weight, scales = make(unit, torch.bfloat16), unit.convolution.weight.detach(), torch.arange(1.0, 5)
    convolution.set_weight(weight * scales.view(-1, 1, 1, 1))
    length = convolution.weight.shape[1]
    taps = 1 if make is FirstConvolution else side * side  # of which the patch is made, or those of the convolution
    scaled = (weight * scales.view(-1, 1, 1, 1)).permute(0, 2, 3, 1).reshape(4 * taps, -1)
    expected = F.pad(scaled, (0, length - scaled.shape[1])).to(torch.bfloat16)
    assert torch.equal(convolution.weight.permute(0, 2, 3, 1).reshape(4 * taps, length), expected)
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)

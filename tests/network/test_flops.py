"""Operations of a forward pass, against a count by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from iblurry.network.build import build
from iblurry.network.flops import feature_flops, flops
from iblurry.rng import Rng


class Attentive(nn.Module):
    """Grouped and transposed convolutions, attention and a product without a layer."""

    def __init__(self):
        super().__init__()
        self.maps = nn.Sequential(nn.Conv2d(1, 12, 3), nn.Conv2d(12, 12, 3, groups=4), nn.ConvTranspose2d(12, 12, 3))
        self.encoder = nn.TransformerEncoderLayer(12, 2, 24, batch_first=True)

    def forward(self, images):
        words = self.encoder(self.maps(images).flatten(2).transpose(1, 2))
        return torch.einsum("bij,bik->bjk", words, words).flatten(1)


def test_by_hand():
    """Two units: 1 -> 16 channels at 8x8, 16 -> 32 at 4x4, both 3x3; then the head."""
    assert flops("convnet", (1, 8, 8), 5) == 2 * (64 * 16 * 9 + 16 * 32 * 16 * 9 + 5 * 32 * 16)


def test_resnet18_has_its_known_cost():
    """About 0.56 billion multiplications for an image of 32 x 32, with the stem for small images."""
    assert 1.10e9 < flops("resnet18", (3, 32, 32), 10) < 1.13e9


@pytest.mark.parametrize(
    "network, image",
    [
        *(("mlp", (1, 8, 8)), ("convnet", (1, 8, 8)), ("convnet", (3, 32, 32))),
        *(("resnet18", (3, 32, 32)), ("resnet18:stem=imagenet", (3, 64, 64)), ("resnet34", (3, 32, 32))),
        (Attentive(), (1, 8, 8)),
    ],
)
def test_what_is_counted_is_what_torchs_counter_counts(network, image):
    body = build(network, image, 1, rng=Rng(1)).eval().body
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        body(torch.zeros(1, *image))
    assert feature_flops(network, image) == counter.get_total_flops() > 0


def test_counting_does_not_import_torchs_compiler():
    code = "import sys; from iblurry.network.flops import flops; flops('convnet', (3, 8, 8), 4)"
    code += "; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

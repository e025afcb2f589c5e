"""Operations of a forward pass, against a count by hand."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from iblurry.network.build import NETWORKS, build
from iblurry.network.flops import flops
from iblurry.rng import Rng


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("side", [32, 64])
def test_as_torch_counts(name, side):
    image = (3, side, side)
    network = build(name, image, 7, rng=Rng(1)).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, *image))
    assert flops(name, image, 7) == counter.get_total_flops() > 0


def test_by_hand():
    """Two units: 1 -> 16 channels at 8x8, 16 -> 32 at 4x4, both 3x3; then the head."""
    assert flops("convnet", (1, 8, 8), 5) == 2 * (64 * 16 * 9 + 16 * 32 * 16 * 9 + 5 * 32 * 16)

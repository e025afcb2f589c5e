"""Operations of a forward pass, against a count by hand."""

from __future__ import annotations

from iblurry.network.flops import flops


def test_by_hand():
    """Two units: 1 -> 16 channels at 8x8, 16 -> 32 at 4x4, both 3x3; then the head."""
    assert flops("convnet", (1, 8, 8), 5) == 2 * (64 * 16 * 9 + 16 * 32 * 16 * 9 + 5 * 32 * 16)


def test_resnet18_has_its_known_cost():
    """About 0.56 billion multiplications for an image of 32 x 32, with the stem for small images."""
    assert 1.10e9 < flops("resnet18", (3, 32, 32), 10) < 1.13e9

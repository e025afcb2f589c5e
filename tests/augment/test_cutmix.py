"""CutMix boxes against the worked numbers, and the paste against a plain slice."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from iblurry.augment.cutmix import Mix, box

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["cutmix"]


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_worked_boxes(case):
    *edges, lam = box(case["lam"], case["cx"], case["cy"], case["size"], case["size"])
    assert edges == case["box_x1y1x2y2"]
    assert lam == pytest.approx(case["lam_adjusted"], abs=1e-9)


def test_seeded_boxes():
    seeded = GOLDEN["seeded"]
    rng, size = np.random.RandomState(0), seeded["size"]
    for draw in seeded["draws"]:
        share, cx, cy = rng.beta(1, 1), rng.randint(size), rng.randint(size)
        assert (cx, cy) == (draw["cx"], draw["cy"])
        assert share == pytest.approx(draw["lam"], abs=1e-9)
        *edges, lam = box(share, cx, cy, size, size)
        assert edges == draw["box"]
        assert lam == pytest.approx(draw["lam_adjusted"], abs=1e-9)


def test_x_runs_along_the_height():
    made = box(0.75, 5, 30, 10, 60)
    assert (made.x1, made.x2, made.y1, made.y2) == (3, 7, 15, 45)  # half sides 5 // 2 and 30 // 2
    assert made.lam == 1 - 4 * 30 / 600


@pytest.mark.parametrize("edges", [(0, 0, 0, 0), (3, 3, 3, 3), (0, 0, 6, 9), (1, 2, 4, 3), (5, 0, 6, 9), (2, 8, 6, 9)])
def test_the_paste_equals_a_slice(edges):
    rng = np.random.default_rng(0)
    images, partner = rng.normal(size=(7, 3, 6, 9)).astype(np.float32), rng.permutation(7)
    x1, y1, x2, y2 = edges
    expected = images.copy()
    expected[:, :, x1:x2, y1:y2] = images[partner][:, :, x1:x2, y1:y2]
    mix = Mix(height=6, width=9)
    mixed = mix(torch.from_numpy(images), torch.from_numpy(partner), torch.tensor(edges))
    np.testing.assert_array_equal(mixed.numpy(), expected)

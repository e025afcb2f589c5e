"""Crop and flip against a plain loop over images; CutMix against worked numbers and a plain slice."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from iblurry.augment.crop_cutmix import CropFlip, CutMix, cutmix_box


def plain(images: np.ndarray, pad: int, u_y: np.ndarray, u_x: np.ndarray, u_flip: np.ndarray | None) -> np.ndarray:
    _, _, height, width = images.shape
    out = np.empty_like(images)
    for i, image in enumerate(images):
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
        y, x = int(np.floor(u_y[i] * (2 * pad + 1))), int(np.floor(u_x[i] * (2 * pad + 1)))
        out[i] = padded[:, y : y + height, x : x + width]
        if u_flip is not None and u_flip[i] < 0.5:
            out[i] = out[i, :, :, ::-1]
    return out


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("pad", [0, 1, 4])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 5, 9)])
def test_equals_a_plain_loop(shape, pad, flip):
    rng = np.random.default_rng(pad)
    images = rng.integers(1, 256, (40, *shape), dtype=np.uint8)
    uniforms = rng.random((3, 40))
    crop_flip = CropFlip(pad=pad, flip=flip, height=shape[1], width=shape[2])
    offsets = torch.from_numpy(crop_flip.offsets(uniforms))
    out = crop_flip(torch.from_numpy(images), offsets)
    assert out.dtype is torch.uint8
    few = crop_flip(torch.from_numpy(images[:7]), offsets, crop_flip.rows(offsets[None], shape[0])[0][:7])
    assert torch.equal(few, out[:7])
    np.testing.assert_array_equal(out.numpy(), plain(images, pad, *uniforms[:2], uniforms[2] if flip else None))


def test_the_extreme_uniforms_stay_inside():
    crop_flip = CropFlip(pad=2, flip=True, height=4, width=4)
    images = torch.arange(1, 17, dtype=torch.uint8).view(1, 1, 4, 4).repeat(2, 1, 1, 1)
    uniforms = np.array([[0, 1 - 2.0**-53]] * 3)
    low, high = crop_flip(images, torch.from_numpy(crop_flip.offsets(uniforms)))[:, 0].tolist()
    assert low == [[0, 0, 0, 0], [0, 0, 0, 0], [2, 1, 0, 0], [6, 5, 0, 0]]  # moved down and right, then mirrored
    assert high == [[11, 12, 0, 0], [15, 16, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_channels_last_images_are_welcome():
    crop_flip = CropFlip(pad=1, flip=True, height=6, width=5)
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (4, 3, 6, 5), dtype=np.uint8))
    places = torch.from_numpy(crop_flip.offsets(rng.random((3, 4))))
    last = crop_flip(images.contiguous(memory_format=torch.channels_last), places)
    assert torch.equal(last, crop_flip(images, places))


GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["cutmix"]


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_worked_boxes(case):
    *edges, lam = cutmix_box(case["lam"], case["cx"], case["cy"], case["size"], case["size"])
    assert edges == case["box_x1y1x2y2"]
    assert lam == pytest.approx(case["lam_adjusted"], abs=1e-9)


def test_seeded_boxes():
    seeded = GOLDEN["seeded"]
    rng, size = np.random.RandomState(0), seeded["size"]
    for draw in seeded["draws"]:
        share, cx, cy = rng.beta(1, 1), rng.randint(size), rng.randint(size)
        assert (cx, cy) == (draw["cx"], draw["cy"])
        assert share == pytest.approx(draw["lam"], abs=1e-9)
        *edges, lam = cutmix_box(share, cx, cy, size, size)
        assert edges == draw["box"]
        assert lam == pytest.approx(draw["lam_adjusted"], abs=1e-9)


def test_x_runs_along_the_height():
    made = cutmix_box(0.75, 5, 30, 10, 60)
    assert (made.x1, made.x2, made.y1, made.y2) == (3, 7, 15, 45)  # half sides 5 // 2 and 30 // 2
    assert made.lam == 1 - 4 * 30 / 600


@pytest.mark.parametrize("edges", [(0, 0, 0, 0), (3, 3, 3, 3), (0, 0, 6, 9), (1, 2, 4, 3), (5, 0, 6, 9), (2, 8, 6, 9)])
def test_the_paste_equals_a_slice(edges):
    rng = np.random.default_rng(0)
    images, partner = rng.normal(size=(7, 3, 6, 9)).astype(np.float32), rng.permutation(7)
    x1, y1, x2, y2 = edges
    expected = images.copy()
    expected[:, :, x1:x2, y1:y2] = images[partner][:, :, x1:x2, y1:y2]
    mix = CutMix(height=6, width=9)
    mixed = mix(torch.from_numpy(images), torch.from_numpy(partner), mix.inside(torch.tensor(edges)))
    np.testing.assert_array_equal(mixed.numpy(), expected)

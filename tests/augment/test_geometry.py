"""Crop and flip against a plain loop over images."""

import numpy as np
import pytest
import torch

from iblurry.augment.geometry import CropFlip


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
    out = crop_flip(torch.from_numpy(images), torch.from_numpy(crop_flip.places(uniforms)))
    assert out.dtype is torch.uint8
    np.testing.assert_array_equal(out.numpy(), plain(images, pad, *uniforms[:2], uniforms[2] if flip else None))


def test_the_extreme_uniforms_stay_inside():
    crop_flip = CropFlip(pad=2, flip=True, height=4, width=4)
    images = torch.arange(1, 17, dtype=torch.uint8).view(1, 1, 4, 4).repeat(2, 1, 1, 1)
    uniforms = np.array([[0, 1 - 2.0**-53]] * 3)
    low, high = crop_flip(images, torch.from_numpy(crop_flip.places(uniforms)))[:, 0].tolist()
    assert low == [[0, 0, 0, 0], [0, 0, 0, 0], [2, 1, 0, 0], [6, 5, 0, 0]]  # moved down and right, then mirrored
    assert high == [[11, 12, 0, 0], [15, 16, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_channels_last_images_are_welcome():
    crop_flip = CropFlip(pad=1, flip=True, height=6, width=5)
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (4, 3, 6, 5), dtype=np.uint8))
    places = torch.from_numpy(crop_flip.places(rng.random((3, 4))))
    last = crop_flip(images.contiguous(memory_format=torch.channels_last), places)
    assert torch.equal(last, crop_flip(images, places))

"""Shears, shifts and rotations against Pillow and against a plain loop."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from iblurry.augment.autoaugment import POLICIES, affine_matrix, source_pixels, warp
from tests.augment.pictures import SHAPES, do, pictures, pillow, strengths

WARPS = ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"]


def comes_from(operation, magnitude, x, y, height, width):
    """The point that is shown at x, y, in pixel positions; written out here once more."""
    if operation == "ShearX":
        return x + magnitude * (y + 0.5), y
    if operation == "ShearY":
        return x, y + magnitude * (x + 0.5)
    if operation == "TranslateX":
        return x - magnitude, y
    if operation == "TranslateY":
        return x, y - magnitude
    turn, mid_x, mid_y = (
        complex(math.cos(math.radians(magnitude)), math.sin(math.radians(magnitude))),
        width / 2,
        height / 2,
    )
    at = complex(x + 0.5 - mid_x, y + 0.5 - mid_y) * turn
    return at.real + mid_x - 0.5, at.imag + mid_y - 0.5


def by_pillow(operation, magnitude):
    if operation == "Rotate":
        return lambda image: image.rotate(magnitude, Image.Resampling.NEAREST)
    rows = {
        "ShearX": (1, magnitude, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, magnitude, 1, 0),
        "TranslateX": (1, 0, -magnitude, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, -magnitude),
    }
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, rows[operation], Image.Resampling.NEAREST)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("operation", WARPS)
def test_equals_pillow(operation, shape):
    """But where a source lies within 1/500 of the middle between two pixels: Pillow counts in steps of 1/65536."""
    images, (_, height, width) = pictures(shape)[:3], shape
    y, x = np.mgrid[:height, :width]
    for magnitude in strengths(operation, shape):
        points = np.vectorize(comes_from)(operation, magnitude, x, y, height, width)
        clear = np.all([np.abs(point - np.floor(point) - 0.5) > 0.002 for point in points], axis=0)
        assert clear.mean() > 0.7  # a slope of 0.2 has a tie every fifth line
        ours, theirs = do(operation, magnitude, images), pillow(by_pillow(operation, magnitude), images)
        np.testing.assert_array_equal(ours[:, :, clear], theirs[:, :, clear])


@pytest.mark.parametrize("operation", WARPS)
def test_equals_a_plain_loop(operation):
    """Also at the ties, which go to the even pixel."""
    shape = (3, 11, 14)
    images = pictures(shape)[:2]
    for magnitude in strengths(operation, shape):
        expected = np.zeros_like(images)
        for y in range(11):
            for x in range(14):
                from_x, from_y = (round(p) for p in comes_from(operation, magnitude, x, y, 11, 14))
                if 0 <= from_x < 14 and 0 <= from_y < 11:
                    expected[:, :, y, x] = images[:, :, from_y, from_x]
        np.testing.assert_array_equal(do(operation, magnitude, images), expected)


def test_a_shift_is_a_slice_and_black():
    images = pictures((3, 32, 32))
    right, down = do("TranslateX", 14, images), do("TranslateY", -5, images)
    np.testing.assert_array_equal(right[..., 14:], images[..., :-14])
    np.testing.assert_array_equal(down[:, :, :-5], images[:, :, 5:])
    assert not right[..., :14].any()
    assert not down[:, :, -5:].any()


def test_a_quarter_turn_is_counter_clockwise():
    images = pictures((3, 32, 32))
    np.testing.assert_array_equal(do("Rotate", 90.0, images), np.rot90(images, axes=(2, 3)))


def test_each_image_of_a_batch_has_its_own():
    images = torch.from_numpy(pictures((1, 9, 9)))
    paths = [source_pixels(affine_matrix("Rotate", 7.0 * i, 9, 9), 9, 9) for i in range(10)]
    together = warp(images, torch.from_numpy(np.stack(paths)))
    for i, path in enumerate(paths):
        assert torch.equal(together[i : i + 1], warp(images[i : i + 1], torch.from_numpy(path)[None]))


@pytest.mark.parametrize("side", [8, 28, 32, 64])
def test_no_policy_comes_near_a_tie(side):
    """So what float32 makes of them elsewhere does not matter."""
    y, x = (axis.astype(float) for axis in np.mgrid[:side, :side])
    steps = {(s.operation, s.bin) for policy in POLICIES.values() for pair in policy for s in pair}
    for operation, at in steps:
        if operation in WARPS:
            magnitude = strengths(operation, (1, side, side))[at]
            if operation == "Rotate":  # the same turn as above, for arrays
                turned = ((x + 0.5 - side / 2) + 1j * (y + 0.5 - side / 2)) * np.exp(1j * math.radians(magnitude))
                points = turned.real + side / 2 - 0.5, turned.imag + side / 2 - 0.5
            else:
                points = comes_from(operation, magnitude, x, y, side, side)
            assert min(np.abs(p - np.floor(p) - 0.5).min() for p in points) > 1e-5 * side / 32

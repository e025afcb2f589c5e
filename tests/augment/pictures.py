"""Images to try operations on, and one operation on a batch in both ways."""

import numpy as np
import torch
from PIL import Image

from iblurry.augment.autoaugment import SIGNED, ImageOp, ImageOps, magnitudes

SHAPES = [(3, 32, 32), (3, 64, 64), (1, 8, 8), (3, 20, 34), (1, 28, 12)]


def pictures(shape, seed=0):
    """(10, C, H, W): noise, narrow ranges, two levels, extremes, slopes, and some of a single level."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (10, *shape), dtype=np.uint8)
    noise[2] = noise[2] // 6 + 90
    noise[3] = np.where(noise[3] < 60, 0, 255)
    noise[4] = noise[4] // 200 + 17  # two neighbouring levels
    noise[5] = np.linspace(0, 255, shape[2]).astype(np.uint8)
    noise[6] = (np.linspace(30, 200, shape[1])[:, None]).astype(np.uint8)
    noise[7], noise[8], noise[9] = 0, 255, 93
    return noise


def strengths(operation, shape):
    """All ten magnitudes, with both signs where there are two."""
    values = magnitudes(*shape[1:]).get(operation, (0.0,))
    return [*values, *(-value for value in values)] if operation in SIGNED else list(values)


def do(operation, magnitude, images):
    """One operation on all images, grouped and dense."""
    image_ops, n = ImageOps([ImageOp("Identity"), ImageOp(operation, magnitude)], images.shape[1:]), len(images)
    given = torch.from_numpy(images)
    one = image_ops.grouped(
        given, torch.ones(n, dtype=torch.int64), image_ops.groups(np.ones((1, n), dtype=np.int64))[0]
    )
    other = image_ops.dense(given, torch.ones(n, dtype=torch.int64))
    assert one.dtype is other.dtype is torch.uint8
    np.testing.assert_array_equal(one.numpy(), other.numpy())
    return one.numpy()


def pillow(function, images, *settings):
    """The same by Pillow, image by image."""
    done = []
    for image in images:
        given = np.ascontiguousarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
        array = np.asarray(function(Image.fromarray(given), *settings))
        done.append(array[None] if len(image) == 1 else array.transpose(2, 0, 1))
    return np.stack(done)


def apart(one, other):
    return int(np.abs(one.astype(int) - other.astype(int)).max())

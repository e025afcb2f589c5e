"""Operations on grey levels and colours against Pillow, and against plain NumPy where torchvision is not Pillow."""

import numpy as np
import pytest
from PIL import ImageEnhance, ImageOps

from tests.augment.pictures import SHAPES, apart, do, pictures, pillow, strengths

pytestmark = pytest.mark.parametrize("shape", SHAPES)
one = np.float32


def enhanced(image, how, factor):
    return how(image).enhance(factor)


def mixed(images, other, magnitude):
    """The blend in single precision, rounded down."""
    own = 1.0 + magnitude
    return np.clip(one(own) * images.astype(one) + one(1.0 - own) * other.astype(one), 0, 255).astype(np.uint8)


def grey(images):
    if images.shape[1] == 1:
        return images
    r, g, b = (images[:, i : i + 1].astype(one) for i in range(3))
    return (one(0.2989) * r + one(0.587) * g + one(0.114) * b).astype(np.uint8)


def test_invert(shape):
    images = pictures(shape)
    np.testing.assert_array_equal(do("Invert", 0.0, images), pillow(ImageOps.invert, images))


def test_posterize(shape):
    images = pictures(shape)
    for bits in strengths("Posterize", shape):
        theirs = pillow(ImageOps.posterize, images, bits)
        np.testing.assert_array_equal(do("Posterize", bits, images), theirs)


def test_solarize(shape):
    images = pictures(shape)
    for threshold in strengths("Solarize", shape):
        theirs = pillow(ImageOps.solarize, images, threshold)
        np.testing.assert_array_equal(do("Solarize", threshold, images), theirs)


def test_brightness(shape):
    images = pictures(shape)
    for magnitude in strengths("Brightness", shape):
        theirs = pillow(enhanced, images, ImageEnhance.Brightness, 1 + magnitude)
        np.testing.assert_array_equal(do("Brightness", magnitude, images), theirs)


def test_contrast(shape):
    """Pillow rounds the grey levels and their mean to the nearest; torchvision rounds levels down, the mean never."""
    images = pictures(shape)
    mean = grey(images).astype(np.float64).mean((1, 2, 3), keepdims=True).astype(one)
    for magnitude in strengths("Contrast", shape):
        ours = do("Contrast", magnitude, images)
        np.testing.assert_array_equal(ours, mixed(images, mean, magnitude))
        assert apart(ours, pillow(enhanced, images, ImageEnhance.Contrast, 1 + magnitude)) <= 2


def test_color(shape):
    """Pillow rounds the grey levels to the nearest, torchvision down."""
    images = pictures(shape)
    for magnitude in strengths("Color", shape):
        ours = do("Color", magnitude, images)
        if shape[0] == 1:
            np.testing.assert_array_equal(ours, images)  # there is no colour in it
        else:
            np.testing.assert_array_equal(ours, mixed(images, grey(images), magnitude))
            assert apart(ours, pillow(enhanced, images, ImageEnhance.Color, 1 + magnitude)) <= 1


def test_sharpness(shape):
    """Pillow blends as a + share * (b - a), torchvision as two products: a last bit may tip a level."""
    images = pictures(shape)
    padded = images.astype(int)
    height, width = shape[1:]
    sums = sum(padded[:, :, y : y + height - 2, x : x + width - 2] for y in range(3) for x in range(3))
    smooth = images.copy()
    smooth[:, :, 1:-1, 1:-1] = (2 * (sums + 4 * padded[:, :, 1:-1, 1:-1]) + 13) // 26
    for magnitude in strengths("Sharpness", shape):
        ours = do("Sharpness", magnitude, images)
        np.testing.assert_array_equal(ours, mixed(images, smooth, magnitude))
        assert apart(ours, pillow(enhanced, images, ImageEnhance.Sharpness, 1 + magnitude)) <= 1


def test_autocontrast(shape):
    """Pillow computes in double precision, torchvision in single: a product just below a whole number may be either."""
    images = pictures(shape)
    ours = do("AutoContrast", 0.0, images)
    low, high = (f(images, axis=(2, 3), keepdims=True).astype(one) for f in (np.min, np.max))
    scale = one(1) / np.where(low == high, one(1), high - low) * one(255)
    expected = np.clip((images - low) * scale, 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(ours, np.where(low == high, images, expected))
    assert apart(ours, pillow(ImageOps.autocontrast, images)) <= 1


def test_equalize(shape):
    images = pictures(shape)
    np.testing.assert_array_equal(do("Equalize", 0.0, images), pillow(ImageOps.equalize, images))

"""AutoAugment: its tables, its operations against Pillow and plain loops, its draws, and the two ways to apply them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from iblurry.augment.autoaugment import (
    OPERATIONS,
    POLICIES,
    SIGNED,
    AutoAugment,
    ImageOp,
    ImageOps as OurOps,
    magnitudes,
)
from iblurry.errors import InputError
from tests.augment.pictures import SHAPES, apart, do, pictures, pillow, strengths
from tests.no_sync import NoSync

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["autoaugment_magnitudes"]


@pytest.mark.parametrize(
    "key, operations",
    [
        ("shear", ["ShearX", "ShearY"]),
        ("rotate", ["Rotate"]),
        ("enhance", ["Brightness", "Color", "Contrast", "Sharpness"]),
        ("solarize_255", ["Solarize"]),
    ],
)
def test_worked_magnitudes(key, operations):
    for operation in operations:
        assert magnitudes(32, 32)[operation] == pytest.approx(GOLDEN[key], abs=2e-5)


def test_whole_magnitudes():
    """Width shifts along x."""
    made = magnitudes(32, 64)
    assert made["Posterize"] == tuple(GOLDEN["posterize_bits"])
    assert (made["TranslateY"], made["TranslateX"]) == tuple(
        tuple(GOLDEN[f"translate_pixels_int_{side}"]) for side in (32, 64)
    )


def test_spot_checks():
    cifar, imagenet = POLICIES["cifar10"], POLICIES["imagenet"]
    assert cifar[0] == (("Invert", 0.1, None), ("Contrast", 0.2, 6))
    assert cifar[1] == (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9))
    assert cifar[14] == (("Solarize", 0.5, 2), ("Invert", 0.0, None))
    assert cifar[24] == (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None))
    assert imagenet[0] == (("Posterize", 0.4, 8), ("Rotate", 0.6, 9))
    assert imagenet[12] == (("Equalize", 0.0, None), ("Equalize", 0.8, None))
    assert imagenet[18] == (("ShearX", 0.6, 5), ("Equalize", 1.0, None))
    assert imagenet[24] == imagenet[2]


@pytest.mark.parametrize("name, chances, levels", [("cifar10", 26.5, 187), ("imagenet", 31.0, 159)])
def test_sums_over_a_policy(name, chances, levels):
    """A slip in any one of the 50 steps shows here."""
    steps = [step for pair in POLICIES[name] for step in pair]
    assert (round(sum(s.probability for s in steps), 6), sum(s.bin or 0 for s in steps)) == (chances, levels)


def test_the_operations():
    assert [len(POLICIES[name]) for name in ("cifar10", "imagenet", "randaugment")] == [25, 25, 14 * 14]
    assert set(OPERATIONS) - SIGNED == {"Posterize", "Solarize", "AutoContrast", "Equalize", "Invert"}
    assert len(OPERATIONS) == 14


one = np.float32


def mixed(images, other, magnitude):
    """The blend in single precision, rounded down."""
    own = 1.0 + magnitude
    return np.clip(one(own) * images.astype(one) + one(1.0 - own) * other.astype(one), 0, 255).astype(np.uint8)


def grey(images):
    if images.shape[1] == 1:
        return images
    r, g, b = (images[:, i : i + 1].astype(one) for i in range(3))
    return (one(0.2989) * r + one(0.587) * g + one(0.114) * b).astype(np.uint8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "operation, function",
    [
        ("Invert", lambda image, _: ImageOps.invert(image)),
        ("Posterize", ImageOps.posterize),
        ("Solarize", ImageOps.solarize),
        ("Brightness", lambda image, magnitude: ImageEnhance.Brightness(image).enhance(1 + magnitude)),
        ("Equalize", lambda image, _: ImageOps.equalize(image)),
    ],
)
def test_equals_pillow_exactly(operation, function, shape):
    images = pictures(shape)
    for magnitude in strengths(operation, shape):
        np.testing.assert_array_equal(do(operation, magnitude, images), pillow(function, images, magnitude))


def mean_of_grey(images):
    return grey(images).astype(np.float64).mean((1, 2, 3), keepdims=True).astype(one)


def smooth(images):
    height, width = images.shape[2:]
    padded = images.astype(int)
    sums = sum(padded[:, :, y : y + height - 2, x : x + width - 2] for y in range(3) for x in range(3))
    made = images.copy()
    made[:, :, 1:-1, 1:-1] = (2 * (sums + 4 * padded[:, :, 1:-1, 1:-1]) + 13) // 26
    return made


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "operation, other, most",
    [
        ("Contrast", mean_of_grey, 2),  # Pillow rounds grey levels and mean to the nearest; torchvision levels down
        ("Color", grey, 1),  # Pillow rounds the grey levels to the nearest, torchvision down
        (
            "Sharpness",
            smooth,
            1,
        ),  # Pillow blends as a + share * (b - a), torchvision as two products
    ],
)
def test_a_blend_with_another_image(operation, other, most, shape):
    images, enhance = pictures(shape), getattr(ImageEnhance, operation)
    for magnitude in strengths(operation, shape):
        ours = do(operation, magnitude, images)
        if operation == "Color" and shape[0] == 1:
            np.testing.assert_array_equal(ours, images)  # there is no colour in it
            continue
        np.testing.assert_array_equal(ours, mixed(images, other(images), magnitude))
        assert apart(ours, pillow(lambda image, own=1 + magnitude: enhance(image).enhance(own), images)) <= most


@pytest.mark.parametrize("shape", SHAPES)
def test_autocontrast(shape):
    """Pillow computes in double precision, torchvision in single: a product just below a whole number may be either."""
    images = pictures(shape)
    ours = do("AutoContrast", 0.0, images)
    low, high = (f(images, axis=(2, 3), keepdims=True).astype(one) for f in (np.min, np.max))
    scale = one(1) / np.where(low == high, one(1), high - low) * one(255)
    expected = np.clip((images - low) * scale, 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(ours, np.where(low == high, images, expected))
    assert apart(ours, pillow(ImageOps.autocontrast, images)) <= 1


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
def test_a_warp_equals_pillow(operation, shape):
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
def test_a_warp_equals_a_plain_loop(operation):
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


@pytest.mark.parametrize("name", POLICIES)
def test_draws_equal_a_plain_loop(name):
    auto, uniforms = AutoAugment(name, (3, 32, 64)), np.random.default_rng(0).random((4, 5, 300))
    uniforms[0, :, 0], uniforms[0, :, 1] = 0.0, 1 - 2.0**-53
    numbers, strengths = auto.draw(uniforms), magnitudes(32, 64)
    assert numbers.shape == (4, 2, 300)
    for batch in range(4):
        for i in range(300):
            which, first, second, *signs = uniforms[batch, :, i]
            for step, taken in enumerate((first, second)):
                operation, chance, at = POLICIES[name][int(which * len(POLICIES[name]))][step]
                expected = ("Identity", 0.0)
                if taken <= chance:
                    value = 0.0 if at is None else strengths[operation][at]
                    expected = (operation, -value if operation in SIGNED and signs[step] < 0.5 else value)
                assert auto.image_ops.list[numbers[batch, step, i]] == expected


def test_a_step_is_taken_if_its_uniform_is_its_chance():
    auto = AutoAugment("cifar10", (3, 32, 32))
    edge = np.array([0.1, np.nextafter(0.1, 1)])  # the first sub-policy inverts with a chance of 0.1
    numbers = auto.draw(np.stack([np.zeros(2), edge, np.ones(2) - 1e-9, np.zeros(2), np.zeros(2)]))
    assert [[auto.image_ops.list[i].operation for i in row] for row in numbers] == [
        ["Invert", "Identity"],
        ["Identity"] * 2,
    ]


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8)])
@pytest.mark.parametrize("name", POLICIES)
def test_two_steps_in_order_and_both_ways_alike(name, shape):
    auto, rng = AutoAugment(name, shape), np.random.default_rng(2)
    for batch in range(10):
        images = torch.from_numpy(np.concatenate([pictures(shape, batch), pictures(shape, batch + 100)]))
        numbers = auto.draw(rng.random((5, 20)))
        chosen, groups = torch.from_numpy(numbers), tuple(auto.image_ops.groups(numbers))
        one, other = auto(images, chosen, groups), auto(images, chosen, None)
        assert torch.equal(one, other)
        first = auto.image_ops.dense(images, chosen[0])
        assert torch.equal(auto.image_ops.dense(first, chosen[1]), one)
        assert not torch.equal(one, images)


def test_only_grey_and_colour():
    with pytest.raises(InputError, match=r"2 channels; use policy=None"):
        AutoAugment("cifar10", (2, 8, 8))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 64, 64), (1, 28, 28)])
def test_equals_torchvision(name, shape):
    autoaugment = pytest.importorskip(
        "torchvision.transforms.autoaugment", reason="needs torchvision: pip install torchvision"
    )
    interpolation = autoaugment.InterpolationMode.NEAREST
    image_ops = AutoAugment(name, shape).image_ops
    n = len(image_ops.list)
    images = torch.from_numpy(np.resize(pictures(shape), (n, *shape)))
    done = image_ops.dense(images, torch.arange(n))
    for i, (operation, magnitude) in enumerate(image_ops.list):
        theirs = autoaugment._apply_op(images[i], operation, float(magnitude), interpolation, None)
        assert torch.equal(done[i], theirs), (operation, magnitude)


def all_ops(shape):
    return [ImageOp("Identity"), *(ImageOp(name, value) for name in OPERATIONS for value in strengths(name, shape))]


def batches(shape, sizes, seed=0):
    rng = np.random.default_rng(seed)
    for n in sizes:
        images = np.concatenate([pictures(shape, int(s)) for s in rng.integers(0, 99, 1 + n // 10)])[rng.permutation(n)]
        yield torch.from_numpy(images)


@pytest.mark.parametrize("shape", [*SHAPES, (3, 2, 9), (1, 1, 1)])
def test_both_ways_are_the_same_bytes(shape):
    image_ops, rng = OurOps(all_ops(shape), shape), np.random.default_rng(1)
    for images in batches(shape, [1, 2, 7, 16, 16, 33, 50]):
        numbers = rng.integers(0, len(image_ops.list), len(images))
        groups = image_ops.groups(numbers[None])[0]
        chosen = torch.from_numpy(numbers)
        with NoSync():
            one, other = image_ops.grouped(images, chosen, groups), image_ops.dense(images, chosen)
        assert torch.equal(one, other)


def test_every_image_gets_its_own_operation():
    shape = (3, 16, 12)
    image_ops = OurOps(all_ops(shape), shape)
    n = len(image_ops.list)
    images = np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)
    done = image_ops.dense(torch.from_numpy(images), torch.arange(n)).numpy()
    np.testing.assert_array_equal(done[0], images[0])
    for i in range(1, n):
        np.testing.assert_array_equal(done[i : i + 1], do(*image_ops.list[i], images[i : i + 1]))


def test_given_images_stay_as_they_are_and_channels_last_are_welcome():
    shape = (3, 8, 6)
    image_ops = OurOps(all_ops(shape), shape)
    images = next(batches(shape, [50]))
    numbers = np.random.default_rng(4).integers(0, len(image_ops.list), 50)
    groups, chosen, before = image_ops.groups(numbers[None])[0], torch.from_numpy(numbers), images.clone()
    done = image_ops.grouped(images, chosen, groups)
    assert torch.equal(images, before)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(image_ops.grouped(last, chosen, groups), done)
    assert torch.equal(image_ops.dense(last, chosen), done)


def test_a_line_has_no_sharpness():
    line = pictures((3, 2, 9))
    np.testing.assert_array_equal(do("Sharpness", 0.9, line), line)


def test_a_list_without_some_kinds_does_not_need_them():
    image_ops = OurOps([ImageOp("Identity"), ImageOp("Invert")], (1, 4, 4))
    images = torch.arange(32, dtype=torch.uint8).view(2, 1, 4, 4)
    done = image_ops.dense(images, torch.tensor([0, 1]))
    assert torch.equal(done, torch.stack([images[0], 255 - images[1]]))

"""AutoAugment: its draws, the two ways to apply them, and a comparison with torchvision where there is one."""

import collections

import numpy as np
import pytest
import torch

from iblurry.augment.autoaugment import (
    _KIND,
    KINDS,
    OPERATIONS,
    POLICIES,
    SIGNED,
    AutoAugment,
    ImageOp,
    ImageOps,
    magnitudes,
)
from iblurry.errors import InputError
from tests.augment.pictures import SHAPES, do, pictures, strengths
from tests.no_sync import NoSync


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


@pytest.mark.parametrize("name", POLICIES)
def test_frequencies(name):
    n = 200_000
    auto = AutoAugment(name, (3, 32, 32))
    numbers, strengths = auto.draw(np.random.default_rng(1).random((5, n))), magnitudes(32, 32)
    for step in range(2):
        expected = collections.Counter()
        for pair in POLICIES[name]:
            operation, chance, at = pair[step]
            value = 0.0 if at is None else strengths[operation][at]
            for sign in (-1, 1) if operation in SIGNED else (1,):
                expected[operation, sign * value] += chance / len(POLICIES[name]) / (2 if operation in SIGNED else 1)
        expected["Identity", 0.0] += 1 - sum(expected.values())
        found = np.bincount(numbers[step], minlength=len(auto.image_ops.list)) / n
        share = np.array([expected[op] for op in auto.image_ops.list])
        assert share.sum() == pytest.approx(1)
        np.testing.assert_allclose(found, share, atol=5 * np.sqrt(0.25 / n))


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
    image_ops, rng = ImageOps(all_ops(shape), shape), np.random.default_rng(1)
    for images in batches(shape, [1, 2, 7, 16, 16, 33, 50]):
        numbers = rng.integers(0, len(image_ops.list), len(images))
        groups = image_ops.groups(numbers[None])[0]
        chosen = torch.from_numpy(numbers)
        with NoSync():
            one, other = image_ops.grouped(images, chosen, groups), image_ops.dense(images, chosen)
        assert torch.equal(one, other)


def test_every_image_gets_its_own_operation():
    shape = (3, 16, 12)
    image_ops = ImageOps(all_ops(shape), shape)
    n = len(image_ops.list)
    images = np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)
    done = image_ops.dense(torch.from_numpy(images), torch.arange(n)).numpy()
    np.testing.assert_array_equal(done[0], images[0])
    for i in range(1, n):
        np.testing.assert_array_equal(done[i : i + 1], do(*image_ops.list[i], images[i : i + 1]))


def test_groups_hold_every_image_once_by_kind():
    image_ops, rng = ImageOps(all_ops((3, 8, 8)), (3, 8, 8)), np.random.default_rng(2)
    numbers = rng.integers(0, len(image_ops.list), (40, 16))
    for mine, groups in zip(numbers, image_ops.groups(numbers), strict=True):
        kinds = [_KIND[image_ops.list[number].operation] for number in mine]
        found = {kind: groups.order[start:stop].tolist() for kind, start, stop in groups.spans}
        expected = {kind: [i for i in range(16) if kinds[i] == kind] for kind in KINDS if kind in kinds}
        assert found == {kind: rows for kind, rows in expected.items() if kind != "nothing"}
        assert groups.rows.tolist() == groups.order.tolist()


def test_of_larger_groups_the_first_count():
    shape = (3, 8, 8)
    image_ops, rng = ImageOps(all_ops(shape), shape), np.random.default_rng(3)
    for images in batches(shape, [16] * 5):
        numbers = rng.integers(0, len(image_ops.list), 16)
        groups, chosen = image_ops.groups(numbers[None])[0], torch.from_numpy(numbers)
        whole = image_ops.grouped(images, chosen, groups)
        for first in (1, 5, 15):
            assert torch.equal(image_ops.grouped(images[:first], chosen[:first], groups), whole[:first])


def test_given_images_stay_as_they_are_and_channels_last_are_welcome():
    shape = (3, 8, 6)
    image_ops = ImageOps(all_ops(shape), shape)
    images = next(batches(shape, [50]))
    numbers = np.random.default_rng(4).integers(0, len(image_ops.list), 50)
    groups, chosen, before = image_ops.groups(numbers[None])[0], torch.from_numpy(numbers), images.clone()
    done = image_ops.grouped(images, chosen, groups)
    assert torch.equal(images, before)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(image_ops.grouped(last, chosen, groups), done)
    assert torch.equal(image_ops.dense(last, chosen), done)


def test_grey_has_no_colour_and_a_line_no_sharpness():
    grey, line = pictures((1, 8, 8)), pictures((3, 2, 9))
    np.testing.assert_array_equal(do("Color", 0.9, grey), grey)
    np.testing.assert_array_equal(do("Sharpness", 0.9, line), line)


def test_a_list_without_some_kinds_does_not_need_them():
    image_ops = ImageOps([ImageOp("Identity"), ImageOp("Invert")], (1, 4, 4))
    images = torch.arange(32, dtype=torch.uint8).view(2, 1, 4, 4)
    done = image_ops.dense(images, torch.tensor([0, 1]))
    assert torch.equal(done, torch.stack([images[0], 255 - images[1]]))

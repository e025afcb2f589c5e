"""Many deeds in one batch: the two ways agree byte for byte, and neither waits for the device."""

import numpy as np
import pytest
import torch

from iblurry.augment.image_ops import KIND, KINDS, OPERATIONS, ImageOp, ImageOps
from tests.augment.pictures import SHAPES, do, pictures, strengths
from tests.no_sync import NoSync


def all_deeds(shape):
    return [ImageOp("Identity"), *(ImageOp(name, value) for name in OPERATIONS for value in strengths(name, shape))]


def batches(shape, sizes, seed=0):
    rng = np.random.default_rng(seed)
    for n in sizes:
        images = np.concatenate([pictures(shape, int(s)) for s in rng.integers(0, 99, 1 + n // 10)])[rng.permutation(n)]
        yield torch.from_numpy(images)


@pytest.mark.parametrize("shape", [*SHAPES, (3, 2, 9), (1, 1, 1)])
def test_both_ways_are_the_same_bytes(shape):
    image_ops, rng = ImageOps(all_deeds(shape), shape), np.random.default_rng(1)
    for images in batches(shape, [1, 2, 7, 16, 16, 33, 50] * 3):
        numbers = rng.integers(0, len(image_ops.list), len(images))
        groups = image_ops.groups(numbers[None])[0]
        chosen = torch.from_numpy(numbers)
        with NoSync():
            one, other = image_ops.grouped(images, chosen, groups), image_ops.dense(images, chosen)
        assert torch.equal(one, other)


def test_every_image_gets_its_own_deed():
    shape = (3, 16, 12)
    image_ops = ImageOps(all_deeds(shape), shape)
    n = len(image_ops.list)
    images = np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)
    done = image_ops.dense(torch.from_numpy(images), torch.arange(n)).numpy()
    np.testing.assert_array_equal(done[0], images[0])
    for i in range(1, n):
        np.testing.assert_array_equal(done[i : i + 1], do(*image_ops.list[i], images[i : i + 1]))


def test_groups_hold_every_image_once_by_kind():
    image_ops, rng = ImageOps(all_deeds((3, 8, 8)), (3, 8, 8)), np.random.default_rng(2)
    numbers = rng.integers(0, len(image_ops.list), (40, 16))
    for mine, groups in zip(numbers, image_ops.groups(numbers), strict=True):
        kinds = [KIND[image_ops.list[number].operation] for number in mine]
        found = {kind: groups.order[start:stop].tolist() for kind, start, stop in groups.spans}
        expected = {kind: [i for i in range(16) if kinds[i] == kind] for kind in KINDS if kind in kinds}
        assert found == {kind: rows for kind, rows in expected.items() if kind != "nothing"}
        assert groups.rows.tolist() == groups.order.tolist()


def test_of_larger_groups_the_first_count():
    shape = (3, 8, 8)
    image_ops, rng = ImageOps(all_deeds(shape), shape), np.random.default_rng(3)
    for images in batches(shape, [16] * 5):
        numbers = rng.integers(0, len(image_ops.list), 16)
        groups, chosen = image_ops.groups(numbers[None])[0], torch.from_numpy(numbers)
        whole = image_ops.grouped(images, chosen, groups)
        for first in (1, 5, 15):
            assert torch.equal(image_ops.grouped(images[:first], chosen[:first], groups), whole[:first])


def test_given_images_stay_as_they_are_and_channels_last_are_welcome():
    shape = (3, 8, 6)
    image_ops = ImageOps(all_deeds(shape), shape)
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

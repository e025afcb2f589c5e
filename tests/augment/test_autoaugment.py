"""The draws of AutoAugment, image by image and on average; a comparison with torchvision where there is one."""

import collections

import numpy as np
import pytest
import torch

from iblurry.augment.autoaugment import AutoAugment
from iblurry.augment.policies import POLICIES, SIGNED, magnitudes
from iblurry.errors import InputError
from tests.augment.pictures import pictures


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
                operation, chance, at = POLICIES[name][int(which * 25)][step]
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
                expected[operation, sign * value] += chance / 25 / (2 if operation in SIGNED else 1)
        expected["Identity", 0.0] = 1 - sum(expected.values())
        found = np.bincount(numbers[step], minlength=len(auto.image_ops.list)) / n
        share = np.array([expected[deed] for deed in auto.image_ops.list])
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
    with pytest.raises(InputError, match=r"policy is 'cifar10', but .* have 2 channels; use policy=None"):
        AutoAugment("cifar10", (2, 8, 8))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 64, 64), (1, 28, 28)])
def test_equals_torchvision(name, shape):
    autoaugment = pytest.importorskip("torchvision.transforms.autoaugment")
    interpolation = autoaugment.InterpolationMode.NEAREST
    image_ops = AutoAugment(name, shape).image_ops
    n = len(image_ops.list)
    images = torch.from_numpy(np.resize(pictures(shape), (n, *shape)))
    done = image_ops.dense(images, torch.arange(n))
    for i, (operation, magnitude) in enumerate(image_ops.list):
        theirs = autoaugment._apply_op(images[i], operation, float(magnitude), interpolation, None)
        assert torch.equal(done[i], theirs), (operation, magnitude)

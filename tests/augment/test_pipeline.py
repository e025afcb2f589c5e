"""The pipeline: its random parameters, its arithmetic, and that it never waits for the device."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from iblurry.augment import TorchTransform, pipeline as pipeline_module
from iblurry.augment.autoaugment import POLICIES, AutoAugment
from iblurry.augment.crop_cutmix import CropFlip, cutmix_box
from iblurry.augment.pipeline import CACHED, Augment, BlockCache, Pipeline
from iblurry.errors import InputError
from iblurry.rng import BLOCK, Rng
from tests.no_sync import NoSync

SHAPE = (3, 12, 10)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@pytest.fixture
def images():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (16, *SHAPE), dtype=np.uint8))


def pipeline(**fields):
    return Pipeline(Augment(**fields), SHAPE, MEAN, STD)


def normalised(images):
    mean, std = (np.array(v)[:, None, None] for v in (MEAN, STD))
    return (np.asarray(images) / 255 - mean) / std


def test_testing_only_normalises(images):
    out = pipeline().test(images)
    assert out.dtype is torch.float32
    np.testing.assert_allclose(out.numpy(), normalised(images), atol=1e-6)


def test_training_crops_flips_normalises_and_mixes(images):
    """Recomputed from the same uniforms, image by image."""
    pad, rng, made, mixes = 3, Rng(4), pipeline(pad=3), 0
    for step in range(20):
        params = made.draw_params(rng, step, 16)
        u = Rng(4).uniforms("augment", step, 68)
        expected = np.empty(images.shape)
        for i, image in enumerate(images.numpy()):
            padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
            y, x = int(u[i] * 7), int(u[16 + i] * 7)
            crop = padded[:, y : y + 12, x : x + 10]
            expected[i] = normalised(crop[:, :, ::-1] if u[32 + i] < 0.5 else crop)
        order, lam = np.argsort(u[48:64]), 1.0
        if u[64] < 0.5:
            mixes += 1
            x1, y1, x2, y2, lam = cutmix_box(u[65], int(u[66] * 12), int(u[67] * 10), 12, 10)
            own = expected.copy()
            expected[:, :, x1:x2, y1:y2] = own[order][:, :, x1:x2, y1:y2]
        np.testing.assert_allclose(made.train(images, params).numpy(), expected, atol=1e-6)
        assert params.lam.item() == pytest.approx(lam, abs=1e-7)
        np.testing.assert_array_equal(params.partner.numpy(), order)
    assert 0 < mixes < 20


@pytest.mark.parametrize("policy", ["cifar10", "imagenet"])
def test_a_policy_comes_after_the_flip_and_before_the_mix(images, policy):
    """Recomputed from the same uniforms: operations on the cropped and mirrored bytes, then the mix of the result."""
    made, rng, auto, mixes = pipeline(policy=policy), Rng(4), AutoAugment(policy, SHAPE), 0
    crop_flip = CropFlip(pad=4, flip=True, height=12, width=10)
    for step in range(15):
        params, plain = made.draw_params(rng, step, 16), pipeline().draw_params(Rng(4), step, 16)
        assert torch.equal(params.table, plain.table)  # all else is the same
        numbers = torch.from_numpy(auto.draw(Rng(4).uniforms("augment policy", step, 80).reshape(5, 16)))
        assert torch.equal(params.image_ops, numbers)
        varied = normalised(auto(crop_flip(images, params.views.offsets), numbers, None))
        np.testing.assert_allclose(made.vary(images, params).numpy(), varied, atol=1e-6)
        (x1, y1, x2, y2), order = params.views.edges.tolist(), params.partner.numpy()
        expected = varied.copy()
        expected[:, :, x1:x2, y1:y2] = varied[order][:, :, x1:x2, y1:y2]
        np.testing.assert_allclose(made.train(images, params).numpy(), expected, atol=1e-6)
        mixes += params.mixes
    assert 0 < mixes < 15


def test_boxes_whose_masks_were_cached_mix_as_those_of_a_captured_step(images):
    made = pipeline()
    for params in [made.draw_params(Rng(1), step, 16) for step in range(8)]:
        assert params.views.inside is not None
        assert torch.equal(made.train(images, params), made.train(images, params._replace(host_views=None)))


def test_nothing_switched_on_is_testing(images):
    plain = pipeline(pad=0, flip=False, cutmix=0)
    params = plain.draw_params(Rng(1), 3, 16)
    assert torch.equal(plain.train(images, params), plain.test(images))
    assert params.lam.item() == 1
    assert params.views.edges.tolist() == [0, 0, 0, 0]
    assert not torch.equal(pipeline().train(images, pipeline().draw_params(Rng(1), 3, 16)), plain.test(images))


def test_the_stored_images_stay_as_they_are(images):
    before = images.clone()
    made = pipeline(cutmix=1.0)
    made.train(images, made.draw_params(Rng(1), 0, 16))
    assert torch.equal(images, before)


def test_no_hidden_sync(images):
    made = pipeline(cutmix=1.0)
    params = made.draw_params(Rng(1), 0, 16)
    with_policy = {name: (one, one.draw_params(Rng(1), 0, 16)) for name in POLICIES for one in [pipeline(policy=name)]}
    with NoSync():
        made.train(images, params)
        made.test(images)
        for varied, drawn in with_policy.values():
            varied.train(images, drawn)
            varied.train(images, drawn._replace(groups=None))
            varied.vary(images[:5], drawn)
        for slip in (lambda: images[images > 3], lambda: images.max().item(), lambda: images[params.partner[0]]):
            with pytest.raises(AssertionError, match="hidden sync"):  # the guard does guard
                slip()


@pytest.mark.parametrize(
    "fields",
    [
        {"pad": -1},
        {"pad": 1.5},
        {"pad": True},
        {"flip": 1},
        {"cutmix": 1.5},
        {"cutmix": float("nan")},
        {"cutmix": "0.5"},
        {"policy": "cifar"},
        {"policy": 3},
    ],
)
def test_fields_are_checked(fields):
    ((name, value),) = fields.items()
    with pytest.raises(InputError, match=f"{name}={value!r}"):
        Augment(**fields)


@pytest.mark.parametrize(
    "augment, shape, mean, std, named",
    [
        (Augment(policy="cifar10"), (4, 8, 8), (0.5,) * 4, (0.2,) * 4, "4 channels"),
        (Augment(pad=10), SHAPE, MEAN, STD, "10.* 12x10"),
        (Augment(), SHAPE, (0.5,), STD, "3 channels"),
        (Augment(), SHAPE, MEAN, (0.1, 0.0, 0.1), "std"),
    ],
)
def test_numbers_must_fit_the_images(augment, shape, mean, std, named):
    with pytest.raises(InputError, match=named):
        Pipeline(augment, shape, mean, std)


def test_float_images_are_refused(images):
    with pytest.raises(AssertionError, match="scaled twice"):
        pipeline().test(images.float())


def counting():
    made = []

    def make(uniforms, n):
        made.append(n)
        return [(n, float(row[0])) for row in uniforms]

    return made, BlockCache(make)


def test_alternating_sizes_and_purposes_do_not_draw_again():
    made, blocks = counting()
    rng, steps = Rng(1), 200
    for step in range(steps):
        for n, purpose in ((16, "augment"), (50, "augment"), (16, "other")):
            blocks.at(rng, purpose, step, n=n, uniforms=4 * n + 4)
    whole = {n: int(np.ceil(steps / (BLOCK // (4 * n + 4)))) for n in (16, 50)}
    assert (made.count(16), made.count(50)) == (2 * whole[16], whole[50])


def test_another_dice_draws_its_own():
    _, blocks = counting()
    first = [blocks.at(Rng(seed), "augment", 0, n=1, uniforms=8) for seed in (1, 2, 1)]
    assert first[0] == first[2] != first[1]


def test_only_the_latest_are_kept():
    made, blocks = counting()
    rng = Rng(1)
    for n in range(1, CACHED + 2):
        blocks.at(rng, "augment", 0, n=n, uniforms=4 * n + 4)
    made.clear()
    for n in (2, CACHED + 1):
        blocks.at(rng, "augment", 0, n=n, uniforms=4 * n + 4)
    assert made == []
    blocks.at(rng, "augment", 0, n=1, uniforms=8)
    assert made == [1]


@pytest.mark.parametrize("policy", ["cifar10", None])
def test_a_kernel_is_given_what_the_eager_way_uses(monkeypatch, policy):
    """By a stand-in for the kernel, which needs a GPU; its values are compared there by benchmarks/gpu/kernels.py."""
    given = []
    stand_in = SimpleNamespace(fits=lambda shape: shape[1] == 8, augment=lambda *args: given.append(args) or args[0])
    monkeypatch.setitem(sys.modules, "iblurry.augment.kernel", stand_in)
    monkeypatch.setattr(pipeline_module, "find_spec", lambda name: name == "triton")

    def on_gpu(augment, shape=(3, 8, 8)):
        pipeline = Pipeline(augment, shape, (0.5,) * 3, (0.5,) * 3)
        pipeline._device = torch.device("cuda")
        return pipeline

    pipeline = on_gpu(Augment(pad=2, policy=policy))
    params = Pipeline(pipeline.augment, (3, 8, 8), (0.5,) * 3, (0.5,) * 3).draw_params(Rng(1), 0, 4)
    pipeline.by_kernel()(torch.zeros(3, 3, 8, 8, dtype=torch.uint8), params)  # fewer images than parameters
    images, offsets, paths, pad, numbers, tables, *_ = given[0]
    assert (len(images), offsets.shape, paths.shape, pad) == (3, (2, 3), (2, 1, 64), 2)
    if policy:
        assert numbers.tolist() == params.image_ops[:, :3].tolist()
        assert {len(table) for table in tables} == {len(pipeline._autoaugment.image_ops.list)}
    else:
        assert (numbers, tables) == (None, None)
    assert Pipeline(Augment(pad=2), (3, 8, 8), (0.5,) * 3, (0.5,) * 3).by_kernel() is None  # on a CPU
    assert on_gpu(Augment(pad=2), (3, 16, 16)).by_kernel() is None
    assert on_gpu((Augment(pad=2), TorchTransform(torch.nn.Identity()))).by_kernel() is None

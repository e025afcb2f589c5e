"""Transforms besides the paper's recipe: their numbers, their order, what is refused, and torch's own generators."""

from __future__ import annotations

import os
import pickle
import random
import re
import subprocess
import sys
import threading
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from iblurry import Experiment
from iblurry.augment import Augment, TorchTransform, Transform
from iblurry.augment.crop_cutmix import CropFlip
from iblurry.augment.pipeline import Pipeline
from iblurry.components import objects
from iblurry.components.code_hash import object_hash
from iblurry.errors import InputError
from iblurry.rng import Rng

SHAPE = (3, 12, 10)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


class Shade(Transform, is_known=False):
    """Darkens each image by its own number; the second goes unused."""

    uniforms: ClassVar[int] = 2

    most: float = 1.0

    def __call__(self, images, uniforms):
        return (images * (1 - self.most * uniforms[:, :1, None, None])).to(torch.uint8)


class Shift(Transform, is_known=False):
    uniforms: ClassVar[int] = 1
    works_on: ClassVar = "floats"

    def __call__(self, images, uniforms):
        return images + uniforms[:, :, None, None]


class Noise(nn.Module):
    """As a library's: draws from the global generators, and may work in place."""

    def __init__(self, scale=9, source="torch"):
        super().__init__()
        self.scale, self.source = scale, source

    def forward(self, images):
        if self.source == "torch":
            return images.add_(torch.randint(self.scale, images.shape, dtype=images.dtype))
        number = random.randrange(self.scale) if self.source == "python" else int(np.random.randint(self.scale))
        return images + torch.tensor(number, dtype=images.dtype)


@pytest.fixture
def images():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 200, (16, *SHAPE), dtype=np.uint8))


def pipeline(*transforms):
    return Pipeline(transforms, SHAPE, MEAN, STD)


def test_each_image_gets_its_own_numbers_and_all_else_stays(images):
    """Recomputed: crop and flip, then the shade, then the normalisation, then the shift, and CutMix last."""
    plain, made = pipeline(Augment(cutmix=1)), pipeline(Augment(cutmix=1), Shade(), Shift())
    for step in (0, 3, 500):
        params, without = made.draw_params(Rng(4), step, 16), plain.draw_params(Rng(4), step, 16)
        assert torch.equal(params.table, without.table)
        shade, shift = params.uniforms
        assert (shade.shape, shift.shape) == ((16, 2), (16, 1))
        drawn = Rng(4).uniforms("augment transform Shade 0", step, 32).reshape(16, 2)
        np.testing.assert_allclose(shade.numpy(), drawn, atol=2.0**-24)
        cropped = CropFlip(pad=4, flip=True, height=12, width=10)(images, params.views.offsets)
        expected = made.test(Shade()(cropped, shade)) + shift[:, :, None, None]
        assert torch.equal(made.vary(images, params), expected)
        x1, y1, x2, y2 = params.views.edges.tolist()
        mixed = expected.clone()
        mixed[:, :, x1:x2, y1:y2] = expected[params.partner][:, :, x1:x2, y1:y2]
        assert torch.equal(made.train(images, params), mixed)


def test_parameters_of_a_larger_batch_and_of_another_purpose(images):
    made = pipeline(Shade(), Augment(policy="cifar10"), Shift(), TorchTransform(Noise(), works_on="floats"))
    params = made.draw_params(Rng(1), 0, 16)
    assert torch.equal(made.vary(images[:5], params), made.vary(images, params)[:5])
    assert pipeline(Shade(), Shift()).is_capturable
    assert not made.is_capturable
    other = made.draw_params(Rng(1), 0, 16, "rehearsal dice")
    assert not any(torch.equal(a, b) for a, b in zip(params.uniforms, other.uniforms, strict=True))


def test_the_order_counts_and_two_of_a_kind_differ(images):
    first, last = pipeline(Shade(), Augment(policy="cifar10")), pipeline(Augment(policy="cifar10"), Shade())
    params = first.draw_params(Rng(1), 0, 16)
    assert torch.equal(params.uniforms[0], last.draw_params(Rng(1), 0, 16).uniforms[0])
    assert not torch.equal(first.vary(images, params), last.vary(images, params))
    one, two = pipeline(Shade(), Shade()).draw_params(Rng(1), 0, 16).uniforms
    assert not torch.equal(one, two)


def test_numbers_never_round_up_to_one():
    class Largest(Rng):
        def block(self, purpose, step, n):
            return np.full((1, n), np.nextafter(1, 0)), 0

    (numbers,) = pipeline(Shade()).draw_params(Largest(1), 0, 4).uniforms
    assert numbers.dtype is torch.float32
    assert float(numbers.max()) == 1 - 2.0**-24


def test_the_recipe_called_by_itself_is_that_of_the_pipeline(images):
    recipe = Augment(pad=2, policy="imagenet", cutmix=0)
    drawn = torch.from_numpy(np.random.default_rng(1).random((16, recipe.uniforms)).astype(np.float32))
    crops, steps = drawn.numpy().T[:3].ravel(), drawn.numpy().T[3:].ravel()

    class Drawn(Rng):
        def block(self, purpose, step, n):
            uniforms = steps if purpose == "augment policy" else np.concatenate([crops, np.zeros(20)])
            return uniforms[None].astype(np.float64), 0

    made = pipeline(recipe)
    expected = made.vary(images, made.draw_params(Drawn(1), 0, 16))
    assert torch.equal(made.test(recipe(images, drawn)), expected)


@pytest.mark.slow
def test_a_users_transform_is_compiled_in_one_piece(images):
    """With all kinds computed at fixed shapes, as on a GPU."""
    made = pipeline(Shade(), Augment(policy="cifar10"), Shade(most=0.5), Shift())
    compiled = torch.compile(made.train, backend="eager", fullgraph=True, dynamic=False)
    for step in range(4):
        params = made.draw_params(Rng(1), step, 16)._replace(groups=None, host_views=None)
        assert torch.equal(compiled(images, params), made.train(images, params))


class Grows(Transform, is_known=False):
    def __call__(self, images, uniforms):
        return images.repeat(1, 1, 2, 1)


class Floats(Transform, is_known=False):
    def __call__(self, images, uniforms):
        return images / 2


class Draws(Transform, is_known=False):
    uniforms: ClassVar[int] = 1

    def __call__(self, images, uniforms):
        return images + torch.randint(2, images.shape, dtype=torch.uint8)


class Writes(Transform, is_known=False):
    def __call__(self, images, uniforms):
        return images.fill_(3)


class Counts(Transform, is_known=False):
    calls: ClassVar[list] = []

    def __call__(self, images, uniforms):
        self.calls.append(1)
        return images + torch.tensor(len(self.calls), dtype=torch.uint8)


class OwnGenerator:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(1)

    def __call__(self, image):
        return image + torch.randint(100, (1,), generator=self.generator, dtype=torch.uint8)


@pytest.mark.parametrize(
    "augment, named",
    [
        (5, "5"),
        ("Augment", "'Augment'"),
        ((Augment(), None), "None"),
        (Noise(), r"TorchTransform\(Noise"),
        ((Augment(), Augment(pad=0)), "Augment 2"),
        ((Shift(), Shade()), "Shade.* Shift"),
        (Grows(), r"Grows.*\(3, 3, 24, 10\)"),
        (Floats(), "Floats.*float32"),
        (Draws(), "Draws.*generator"),
        (Writes(), "Writes.*changes"),
        (Counts(), "Counts.*different"),
        (TorchTransform(OwnGenerator()), "TorchTransform.*different"),
        (TorchTransform("Gone@0123456789ab"), "Gone@0123456789ab"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_does_not_fit_is_refused_before_a_run(augment, named):
    with pytest.raises(InputError, match=named):
        Pipeline(augment, SHAPE, MEAN, STD)


# --------------------------------------------------------------------------------------------- torch's generators


@pytest.mark.parametrize("source", ["torch", "python", "numpy"])
@pytest.mark.parametrize("per_image", [True, False])
def test_global_generators_are_seeded_by_ours_and_left_as_they_were(images, source, per_image):
    before = images.clone()
    made = pipeline(TorchTransform(Noise(100, source), per_image=per_image))
    params = made.draw_params(Rng(1), 3, 16)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    first = made.train(images, params)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]
    torch.rand(3), random.random(), np.random.rand()
    assert torch.equal(made.train(images, params), first)
    assert not torch.equal(made.train(images, made.draw_params(Rng(1), 4, 16)), first)
    assert torch.equal(images, before)  # though it works in place


def test_a_generator_is_left_as_it_was_after_an_error(images):
    def fails(image):
        torch.rand(1), random.random(), np.random.rand()
        raise RuntimeError("no")

    state = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        TorchTransform(fails)(images, torch.zeros(16, 2))
    assert torch.equal(torch.get_rng_state(), state)


def test_an_experiment_holds_its_name_and_hash_and_takes_it_along():
    transform = TorchTransform(Noise(7))
    one = Experiment.of("er", augment=(Augment(pad=0), transform))
    again = Experiment.from_json(one.to_json())
    assert (again, again.digest) == (one, one.digest)
    assert one.to_json()["augment"][1]["TorchTransform"]["transform"] == transform.transform
    assert transform.transform.startswith("Noise@")
    sent = pickle.dumps(one)
    del objects._objects[transform.transform]
    with pytest.raises(InputError, match="Noise@"):
        again.augment[1].refuse()
    assert pickle.loads(sent) == one
    assert objects.kept(transform.transform).scale == 7


def test_what_is_wrapped_is_known_by_its_content(images):
    keys = {TorchTransform(made).transform for made in (Noise(7), Noise(8), Noise(8, "numpy"), nn.Flatten(), torch.neg)}
    assert len(keys) == 5
    assert TorchTransform(Noise(8)).transform in keys
    noise = Noise(9)
    first = TorchTransform(noise)
    noise.scale = 200  # another object by now; the first is what it was
    assert TorchTransform(noise) != first
    numbers = torch.rand(16, 2)
    assert torch.equal(first(images, numbers), TorchTransform(Noise(9))(images, numbers))
    noise.lock = threading.Lock()
    for wrong in (5, "Noise", None, noise):
        with pytest.raises(InputError, match=re.escape(repr(wrong))):
            TorchTransform(wrong)


@pytest.mark.slow
def test_another_process_finds_the_same_hash():
    code = f"from {__name__} import *; print(TorchTransform(convolution()).transform, object_hash(set('abc')))"
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    made = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    assert made.stdout.split() == [TorchTransform(convolution()).transform, object_hash(set("cba"))]


def convolution():
    torch.manual_seed(1)
    return nn.Sequential(Noise(), nn.Conv2d(3, 3, 1))


def test_hashes_of_objects():
    class Holder:
        def __init__(self, **values):
            self.__dict__ |= values

    some = [
        Holder(a=1),
        Holder(a=2),
        Holder(b=1),
        Holder(a=torch.ones(2)),
        Holder(a=torch.ones(2, 1)),
        Holder(a=torch.ones(2, dtype=torch.bfloat16)),
        Holder(a=[1, {"x": (2, 3)}]),
        Holder(a=[1, {"x": (2, 4)}]),
        Holder(a=lambda x: x),
        Holder(a=lambda x: x + 1),
        Holder(a=nn.Linear),
        Holder(a=torch.float32),
        Holder(a=torch.float64),
    ]
    assert len({object_hash(one) for one in some}) == len(some)
    assert object_hash(Holder(a={"b", "a", "c"})) == object_hash(Holder(a={"c", "a", "b"}))
    loop = Holder(a=1)
    loop.b = loop
    assert object_hash(loop) != object_hash(Holder(a=1, b=None))


# --------------------------------------------------------------------------------------------- as data


@pytest.fixture
def known():
    """Known by its name in a test."""

    class Veil(Transform):
        uniforms: ClassVar[int] = 1
        p: float = 0.5

        def __call__(self, images, uniforms):
            return torch.where(uniforms[:, :, None, None] < self.p, 255 - images, images)

    return Veil


def test_a_users_transform_as_data(known):
    from iblurry.components.edit import edit

    one = Experiment.of("er", augment=(Augment(pad=1), known(p=0.25)))
    (written,) = one.to_json()["augment"][1]
    assert written.startswith("Veil@")
    assert Experiment.from_json(one.to_json()) == one
    digits = Experiment.of("er")
    set_ = edit(edit(digits, "augment=Augment,Veil"), "augment.1.p=0.25")
    assert set_.augment == (digits.augment, known(p=0.25))
    assert edit(set_, "augment.1=Veil").augment[1] == known()
    assert edit(digits, "augment=Veil").augment == known()
    assert edit(edit(digits, "augment=Veil"), "augment.p=1").augment.p == 1
    assert Experiment.of("er", augment=[known()]) == Experiment.of("er", augment=known())
    with pytest.raises(InputError, match="Veil"):
        edit(digits, "augment=Vail")
    with pytest.raises(InputError, match="TorchTransform"):
        edit(digits, "augment=TorchTransform")


def test_a_transform_whose_code_is_not_here(known):
    written = Experiment.of("er", augment=(known(),)).to_json()
    written["augment"] = {"Veil@0123456789ab": {"p": 0.5}}
    gone = Experiment.from_json(written)
    assert gone.to_json() == written
    assert any(component.is_missing for component in gone.components())
    with pytest.raises(InputError, match="Veil@0123456789ab"):
        Pipeline(gone.augment, SHAPE, MEAN, STD)

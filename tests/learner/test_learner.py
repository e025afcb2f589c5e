from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.errors import DivergedError, InputError, UnknownLabelError
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, clib, er, method
from iblurry.parts import Constant, Uniform
from iblurry.parts.memory import Encoded

RNG = np.random.default_rng(0)


def picture():
    return RNG.integers(0, 256, (1, 8, 8), dtype=np.uint8)


def learner_of(method, **changes):
    return Learner(method, **{"image": (1, 8, 8), "classes": 6, "memory": 40, "network": "mlp"} | changes)


def feed(learner, labels):
    for label in labels:
        learner.observe(picture(), label)


def test_er_trains_on_a_sample_before_it_can_be_in_memory_and_clib_after():
    seen = []

    class Watching(Uniform):
        def choose(self, stream, drawn):
            seen.append((len(stream.labels), self.context.memory.size, self.context.seen))
            return super().choose(stream, drawn)

    feed(learner_of(er(Hyperparameters(batch=8), rehearsal=Watching(count=4))), [0] * 8)
    assert seen == [(4, 0, 4)] * 4 + [(4, 4, 8)] * 4
    seen.clear()
    feed(learner_of(clib(Hyperparameters(batch=8), rehearsal=Watching(count=8))), [0] * 3)
    assert seen == [(0, 1, 1), (0, 2, 2), (0, 3, 3)]


@pytest.mark.parametrize(
    "name", ["cifar10 K=500 B=16", "cifar100 K=2000 B=16", "tinyimagenet K=4000 B=32", "imagenet K=20000 B=256"]
)
def test_capacities_golden(golden, name):
    budget, batch = (int(word.split("=")[1]) for word in name.split()[1:])
    assert er(Hyperparameters(batch=batch)).capacity(budget) == golden["reservoir"]["effective_sizes"][name]
    assert clib(Hyperparameters(batch=batch)).capacity(budget) == budget


@pytest.mark.parametrize(
    "name, rows",
    [("rm", 484), ("rm-released", 492), ("gdumb", 500), ("er-released", 492), ("agem-released", 492)],
)
def test_capacities_of_500(name, rows):
    """All sixteen samples that wait for RM's round count, and half of them where it is released."""
    assert method(name).capacity(500) == rows


def test_any_label_that_can_be_a_key():
    learner = learner_of(er(Hyperparameters(batch=4)), classes=["ship", "a b", 7])
    feed(learner, ["ship", np.int64(7), np.str_("a b"), "ship"])
    assert learner.labels == ["ship", 7, "a b"]
    assert [type(label) for label in learner.labels] == [str, int, str]
    assert set(learner.predict(np.stack([picture() for _ in range(5)]))) <= {"ship", 7, "a b"}
    probabilities = learner.probabilities(np.stack([picture()]))
    assert probabilities.shape == (1, 3)
    assert float(probabilities.sum()) == pytest.approx(1)


def test_the_caller_may_use_its_array_again():
    one, other = learner_of(er(Hyperparameters(batch=8))), learner_of(er(Hyperparameters(batch=8)))
    frame = np.zeros((1, 8, 8), dtype=np.uint8)
    for label in [0, 1, 0, 1]:
        frame[:] = picture()
        one.observe(frame, label)
        other.observe(frame.copy(), label)
    assert torch.equal(one.context.network.head.weight, other.context.network.head.weight)
    assert torch.equal(one.context.memory.images, other.context.memory.images)


def test_arrays_that_are_read_only_or_turned_are_fine():
    learner = learner_of(er())
    image = picture()
    image.flags.writeable = False
    learner.observe(image, 0)
    learner.observe(image[:, ::-1, ::-1], 0)
    assert learner.predict(image[None]) == [0]


@pytest.mark.parametrize(
    "image, words",
    [
        (np.zeros((1, 8, 9), dtype=np.uint8), r"\(1, 8, 8\).*\(1, 8, 9\)"),
        (np.zeros((8, 8), dtype=np.uint8), "8, 8"),
        (np.full((1, 8, 8), 255, dtype=np.float32), "from 0 to 1.* to 255"),
        (torch.full((1, 8, 8), -0.1), "from 0 to 1.*from -0.1"),
        (torch.full((1, 8, 8), torch.nan), "nan"),
    ],
)
def test_wrong_images_are_refused_and_nothing_changes(image, words):
    learner = learner_of(er())
    with pytest.raises(InputError, match=words):
        learner.observe(image, 0)
    assert learner.labels == []
    assert learner.context.seen == 0


def test_a_fixed_head_on_a_frozen_body_is_refused():
    with pytest.raises(InputError, match="sdp has no weight to train"):
        learner_of("sdp", freeze="body")


@pytest.mark.parametrize("classes, labels, refused", [(["cat", "dog"], ["cat"], "cow"), (2, [0, 1], 2)])
def test_a_class_that_has_no_row_is_refused_and_nothing_changes(classes, labels, refused):
    learner = learner_of(clib(Hyperparameters(batch=4)), classes=classes)
    feed(learner, labels)
    with pytest.raises(UnknownLabelError, match=repr(refused)):
        learner.observe(picture(), refused)
    assert learner.labels == labels
    assert learner.context.seen == len(labels)


def test_a_question_before_the_first_sample():
    with pytest.raises(InputError, match="observe"):
        learner_of(er()).predict(np.stack([picture()]))


@pytest.mark.parametrize("chosen, least", [(er(), 16), (clib(), 16), (er(Hyperparameters(batch=32)), 32)])
def test_the_least_memory(chosen, least):
    learner_of(chosen, memory=least)
    with pytest.raises(InputError, match=f"memory={least - 1} .*{least}"):
        learner_of(chosen, memory=least - 1)


def test_a_loss_that_is_no_number_is_found_and_said_where():
    learner = learner_of(er(Hyperparameters(batch=4), schedule=Constant(initial_lr=1e-3)))
    feed(learner, [0, 1] * 2)
    learner.check()
    with torch.no_grad():
        learner.context.network.head.weight[0, 0] = float("nan")
    feed(learner, [0, 1] * 2)
    with pytest.raises(DivergedError, match=r"nan .*sample 8"):
        learner.check()


IMAGES, NAMES = RNG.integers(0, 256, (12, 1, 8, 8), dtype=np.uint8), ["a", "b", "c"] * 4


@pytest.mark.parametrize(
    "batch",
    [
        lambda learner, images: images,
        lambda learner, images: torch.from_numpy(images),
        lambda learner, images: torch.from_numpy(images).float() / 255,  # as torchvision's ToTensor makes them
        lambda learner, images: Encoded(torch.cat([learner.encode(image[None]).values for image in images])),
    ],
    ids=["array", "tensor", "floats", "encoded"],
)
@pytest.mark.parametrize("options", [{}, {"network": "convnet", "freeze": "body"}], ids=["mlp", "frozen"])
def test_a_batch_gives_the_weights_of_its_samples_one_by_one(batch, options):
    single, batched = (learner_of(clib(Hyperparameters(batch=4)), memory=8, **options) for _ in range(2))
    told = [single.observe(image, name) for image, name in zip(IMAGES, NAMES, strict=True)]
    for first, last in ((0, 5), (5, 6), (6, 12)):
        batched.observe(batch(batched, IMAGES[first:last]), NAMES[first:last])
    assert state_bytes(batched) == state_bytes(single)
    assert [one.new_classes for one in told[:4]] == [["a"], ["b"], ["c"], []]


def state_bytes(learner):
    return [value.numpy().tobytes() for value in learner.context.network.state_dict().values()]


def test_observe_returns_what_was_learnt():
    learner = learner_of(er(Hyperparameters(batch=8)))  # rounds of four samples
    waiting = learner.observe(IMAGES[0], 7)
    assert (waiting.samples, waiting.updates, waiting.new_classes, waiting.loss) == (1, 0, [7], None)
    told = learner.observe(IMAGES[:11], torch.tensor([7, 8, 9] * 3 + [7, 7]))
    assert (told.samples, told.updates, told.new_classes) == (11, 12, [8, 9])
    assert told.lr == learner.trainer.lr
    before = float(told.loss)
    learner.observe(IMAGES[:4], [7, 8, 7, 8])
    assert float(told.loss) == before != float(learner.trainer.loss)  # a copy


@pytest.mark.parametrize(
    "images, labels, words, classes",
    [
        (IMAGES[:2], "ab", "'ab' .* 2", "abc"),
        (IMAGES[:2], ["a"], r"\['a'\]", "abc"),
        (IMAGES[:2], "a", "'a'", "abc"),
        (IMAGES[:2], ["a", 1.5], "1.5", "abc"),
        (IMAGES[:2], ["a", "d"], "'d'", "abc"),
        (IMAGES[0], ["a"], r"\['a'\]", "abc"),
        (IMAGES[:2, 0], ["a", "b"], r"\(1, 8, 8\).*\(2, 8, 8\)", "abc"),
        (IMAGES[:3], ["a", "b", "c"], r"\['a', 'b', 'c'\].*0 of .* 2 rows.* 3", 2),
    ],
)
def test_a_batch_that_cannot_be_learnt_is_refused_as_a_whole(images, labels, words, classes):
    learner = learner_of(er(), classes=classes if isinstance(classes, int) else list(classes))
    with pytest.raises(InputError, match=words):
        learner.observe(images, labels)
    assert (learner.labels, learner.context.seen) == ([], 0)


def test_a_learner_says_what_it_is():
    learner = learner_of("er", classes=["cat", "dog"])
    learner.observe(IMAGES[0], "cat")
    for word in ("Learner('er'", "image=(1, 8, 8)", "memory=40", "['cat', 'dog']", "'mlp'", "1 sample", "1 class"):
        assert word in repr(learner)

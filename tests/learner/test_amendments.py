"""Amendments: rehearsal beside the stream, and corrections of samples and classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.errors import InputError, UnknownLabelError
from iblurry.learner import amendments
from iblurry.learner.learner import Learner
from iblurry.methods import METHODS as RECIPES, Hyperparameters, method
from iblurry.parts import RingBuffer

METHODS = ["clib", "er", "mir", "sar", "derpp", "clib-reservoir", "balm", "gss"]


def picture(number):
    """A picture that says which sample it is."""
    pixels = np.random.default_rng(number).integers(0, 256, (1, 8, 8), dtype=np.uint8)
    pixels[0, 0, :2] = divmod(number, 256)
    return pixels


def number_in(image):
    high, low = image[0, 0, :2].tolist()
    return 256 * high + low


def taught(name, samples=30, classes="abc", memory=24, begin=1, learner=None):
    learner = learner or Learner(
        method(name, Hyperparameters(batch=8)), image=(1, 8, 8), classes=6, memory=memory, network="mlp"
    )
    for number in range(begin, begin + samples):
        learner.observe(picture(number), classes[number % len(classes)])
    return learner


def held(learner):
    """Number and label of every sample in the memory."""
    memory = learner.context.memory
    return {number_in(memory.images[row]): learner.labels[memory.labels[row]] for row in range(memory.size)}


def weights(learner):
    return torch.cat([p.detach().flatten() for p in learner.context.network.parameters()])


def numbers(learner):
    """The numbers that the memory gives to its samples, which are those in the pictures."""
    memory = learner.context.memory
    found = memory.written_at[: memory.size].tolist()
    assert found == [number_in(image) for image in memory.images[: memory.size]]
    assert len(set(found)) == memory.size
    return found


@pytest.mark.quick("clib", "er", "derpp")
@pytest.mark.parametrize("name", METHODS)
def test_a_removed_sample_is_gone_and_the_numbers_stay_right(name):
    learner = taught(name, samples=45)
    stored, waiting = numbers(learner), range(46 - len(learner.stream_batch), 46)
    assert max(stored) <= 45 - len(waiting) * (learner.method.pace.store_when == "after")
    gone = [*stored[:3], 45]  # the last one waits for its round, where there are rounds
    for number in gone:
        assert amendments.remove(learner, number) == (number in waiting or number in stored)
        assert amendments.remove(learner, number) == (number in waiting)  # it waits to be left out
    size = learner.context.memory.size
    taught(name, samples=20, begin=46, learner=learner)
    assert learner.context.memory.size > size
    assert not set(gone) & set(numbers(learner))
    assert weights(learner).isfinite().all()


def test_what_waits_for_its_round_is_not_trained_on_once_it_is_removed():
    learner = taught("er", samples=3)
    before = weights(learner)
    for number in (1, 2, 3):
        assert amendments.remove(learner, number)
    taught("er", samples=1, begin=4, learner=learner)  # the round begins, and has one sample
    assert list(held(learner)) == [4]
    assert not torch.equal(weights(learner), before)


@pytest.mark.parametrize("name", ["clib", "er"])
def test_a_relabelled_sample_has_its_new_label_and_counts_there(name):
    learner = taught(name)
    number = next(number for number, label in held(learner).items() if label == "a")
    assert amendments.relabel(learner, number, "b")
    assert held(learner)[number] == "b"
    assert amendments.relabel(learner, number, "new")
    assert held(learner)[number] == "new"
    assert "new" in learner.predict(np.stack([picture(number)] * 2)) or "new" in learner.labels
    if name == "clib":
        assert learner.method.admission.counts[:4] == [
            list(held(learner).values()).count(each) for each in learner.labels
        ]
    assert not amendments.relabel(learner, 1000, "b")


def test_a_sample_that_waits_is_relabelled():
    learner = taught("er", samples=3)
    assert amendments.relabel(learner, 3, "c")
    learner.observe(picture(4), "b")
    assert held(learner)[3] == "c"


def test_a_class_by_another_name():
    learner = taught("clib")
    before, answers = weights(learner), learner.logits(picture(3)[None])
    amendments.rename_class(learner, "a", "z")
    assert [*learner.labels] == ["b", "c", "z"]
    assert torch.equal(weights(learner), before)
    assert torch.equal(learner.logits(picture(3)[None]), answers)
    with pytest.raises(InputError, match=r"'b'.* 'z'"):
        amendments.rename_class(learner, "z", "b")
    with pytest.raises(UnknownLabelError, match=r"'a'.* 'b', 'c', 'z'"):
        amendments.rename_class(learner, "a", "q")


@pytest.mark.quick("clib", "er", "derpp")
@pytest.mark.parametrize("name", METHODS)
def test_a_deleted_class_never_answers_and_makes_room(name):
    learner = taught(name)
    amendments.delete_class(learner, "b")
    assert learner.labels == [None, "c", "a"]
    assert set(held(learner).values()) == {"a", "c"}
    questions = np.stack([picture(number) for number in range(50)])
    assert set(learner.predict(questions)) <= {"a", "c"}
    assert learner.probabilities(questions)[:, 0].max() == 0
    taught(name, samples=20, classes="ac", begin=31, learner=learner)
    assert set(learner.predict(questions)) <= {"a", "c"}
    taught(name, samples=40, classes="acx", begin=51, learner=learner)
    assert learner.labels == ["x", "c", "a"]
    assert "x" in held(learner).values()
    assert weights(learner).isfinite().all()
    if hasattr(learner.method.admission, "counts"):
        assert sum(learner.method.admission.counts) == learner.context.memory.size


def test_without_any_class_there_is_no_answer():
    learner = taught("clib", classes="a")
    amendments.delete_class(learner, "a")
    with pytest.raises(InputError, match="observe"):
        learner.predict(picture(1)[None])
    assert learner.context.memory.size == 0
    amendments.rehearse(learner, 3)
    taught("clib", classes="b", begin=31, learner=learner)
    assert learner.predict(picture(1)[None]) == ["b"]


def test_a_merged_class_is_the_other_one():
    learner = taught("clib")
    amendments.merge_class(learner, "a", "c")
    assert learner.labels == ["b", "c", None]
    assert {number: label for number, label in held(learner).items() if label != "b"} == {
        number: "c" for number in held(learner) if number % 3 != 1
    }
    assert set(learner.predict(np.stack([picture(number) for number in range(50)]))) <= {"b", "c"}
    with pytest.raises(InputError, match="into itself"):
        amendments.merge_class(learner, "b", "b")


@pytest.mark.quick("clib", "er", "derpp")
@pytest.mark.parametrize("name", METHODS)
def test_rehearsal_learns_what_is_there(name):
    learner = taught(name, samples=24)
    loss, rate = float(learner.context.memory_losses().sum()), learner.method.schedule.lr
    amendments.rehearse(learner, 150)
    assert learner.context.updates >= 150
    assert float(learner.context.memory_losses().sum()) < 0.95 * loss
    assert learner.method.schedule.lr == rate
    assert learner.context.seen == 24


def test_rehearsal_of_a_method_that_never_reads_its_memory_is_nothing():
    learner = taught("agem")
    assert not amendments.can_rehearse(learner)
    before = weights(learner)
    amendments.rehearse(learner, 5)
    assert torch.equal(weights(learner), before)


@pytest.mark.quick("clib", "er", "derpp")
@pytest.mark.parametrize("name", METHODS)
def test_interrupted_among_amendments_it_comes_to_the_same_bits(name):
    def amended():
        learner = taught(name, samples=29)
        amendments.remove(learner, 29)
        amendments.relabel(learner, 28, "a")
        amendments.rehearse(learner, 4)
        amendments.merge_class(learner, "a", "b")
        taught(name, samples=11, begin=30, learner=learner)
        amendments.delete_class(learner, "c")
        return learner

    peace, saved = amended(), taught(name, samples=0)
    saved.load_state_dict(amended().state_dict())
    for learner in (peace, saved):
        amendments.rehearse(learner, 4)
        taught(name, samples=11, begin=41, learner=learner)
    assert torch.equal(weights(saved), weights(peace))


@pytest.mark.parametrize("name", ["bic", "gdumb"])
def test_what_is_kept_beside_the_memory_cannot_be_corrected(name):
    with pytest.raises(InputError, match=name):
        amendments.remove(taught(name, memory=60), 1)


@pytest.mark.quick("slda", "ncm")
@pytest.mark.parametrize("name", ["ncm", "slda", "ranpac", "randumb"])
def test_a_closed_form_is_corrected_exactly_while_the_memory_holds_the_sample(name):
    def made(labels):
        learner = Learner(
            RECIPES[name](admission=RingBuffer()), image=(1, 8, 8), classes=6, memory=24, network="frozen:mlp"
        )
        for number, label in labels:
            learner.observe(picture(number), label)
        return learner

    right = [(number, "abc"[number % 3]) for number in range(1, 31)]
    wrong = made([*right[:20], (99, "c"), (21, "a"), *right[21:]])  # sample 21 is too much, and 22 of "a" is no "a"
    assert amendments.remove(wrong, 21)
    assert amendments.relabel(wrong, 22, right[20][1])
    assert not amendments.remove(wrong, 3)  # it has left the memory
    expected, questions = made(right), np.stack([picture(number) for number in range(50)])
    for readout in (wrong.parts["readout"], expected.parts["readout"]):
        readout.prepare()
    torch.testing.assert_close(wrong.parts["readout"].counts, expected.parts["readout"].counts)
    torch.testing.assert_close(wrong.parts["readout"].weights, expected.parts["readout"].weights, rtol=1e-6, atol=1e-8)
    assert wrong.predict(questions) == expected.predict(questions)
    amendments.merge_class(wrong, "a", "b")
    amendments.delete_class(wrong, "b")
    assert set(wrong.predict(questions)) == {"c"}

"""Classes of the scikit-learn face: whenever they come, of any type that can name them, and what cannot."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from iblurry import InputError
from iblurry.network.table_mlp import to_bytes
from tests.test_estimator import TABLE, WORDS, small


def test_classes_come_one_after_the_other():
    model = small().partial_fit(TABLE[:1], ["dog"])
    assert model.predict(TABLE[:3]).tolist() == ["dog"] * 3
    assert model.predict_proba(TABLE[:3]).tolist() == [[1.0]] * 3
    model.partial_fit(TABLE[1:3], ["elephant", "ant"])
    assert model.classes_.tolist() == ["ant", "dog", "elephant"]
    assert model.learner_.labels == ["dog", "elephant", "ant"]
    columns = model.learner_.probabilities(to_bytes(TABLE)).numpy()[:, [2, 0, 1]]
    np.testing.assert_allclose(model.predict_proba(TABLE), columns, rtol=1e-5)


def test_announced_classes_have_their_column_from_the_start():
    model = small().partial_fit(TABLE[:9], [4, 2, 4] * 3, classes=[5, 2, 4, 1])
    assert model.classes_.tolist() == [1, 2, 4, 5]
    answer = model.predict_proba(TABLE)
    assert answer.shape == (40, 4)
    assert not answer[:, [0, 3]].any()
    np.testing.assert_allclose(answer.sum(1), 1, rtol=1e-12)
    model.partial_fit(TABLE[9:11], [1, 9], classes=[9])  # known ones need not be listed again
    assert model.classes_.tolist() == [1, 2, 4, 5, 9]
    assert model.predict_proba(TABLE)[:, 0].all()


@pytest.mark.parametrize(
    "y",
    [
        [True, False],
        [2.0, -1.0],
        np.array([7, 300], dtype=np.uint16),
        np.array(["x", "y"], dtype=object),
        np.array(["long name", "z"]),
    ],
    ids=["bool", "float", "unsigned", "object", "text"],
)
def test_answers_are_of_the_type_of_the_classes(y):
    y = np.asarray(y)
    model = small().fit(TABLE, np.resize(y, 40))
    assert model.classes_.dtype == y.dtype
    assert model.classes_.tolist() == sorted(y.tolist())
    answers = model.predict(TABLE)
    assert answers.dtype == y.dtype
    assert set(answers.tolist()) <= set(y.tolist())
    assert model.score(TABLE, np.resize(y, 40)) == np.mean(answers == np.resize(y, 40))


def test_whole_floats_are_the_classes_that_integers_were():
    model = small().partial_fit(TABLE[:2], [1, 2]).partial_fit(TABLE[2:5], [2.0, 1.0, 3.0])
    assert model.classes_.tolist() == [1, 2, 3]
    assert model.learner_.labels == [1, 2, 3]


@pytest.mark.parametrize(
    "first, then, kind, sure",
    [
        (np.array([2**63 + 5, 2**63 + 6], np.uint64), [1, 2], np.uint64, [1, 2, 2**63 + 5, 2**63 + 6]),
        (np.array([1, 2], np.uint64), [-1, 2], np.int64, [-1, 1, 2]),
        (np.array([3, 1], object), [1, 2**40], np.int64, [1, 3, 2**40]),
        (np.array([1, 2**63 + 5], object), np.array([np.int8(7)], object), np.uint64, [1, 7, 2**63 + 5]),
        (np.array([True, False], object), [False], np.bool_, [False, True]),
        (np.array(["b", "a"], object), np.array(["long"]), np.object_, ["a", "b", "long"]),
    ],
    ids=["large", "signed", "objects", "large objects", "booleans", "text"],
)
def test_types_that_can_be_one(first, then, kind, sure):
    model = small().partial_fit(TABLE[: len(first)], first).partial_fit(TABLE[: len(then)], then)
    assert model.classes_.dtype == kind
    assert model.classes_.tolist() == sure
    answers = model.predict(TABLE)
    assert answers.dtype == kind
    assert set(answers.tolist()) <= set(sure)
    assert model.score(TABLE[: len(first)], first) == np.mean(answers[: len(first)] == first)


LARGE = np.array([2**63 + 5, 2**63 + 6], np.uint64)


@pytest.mark.parametrize(
    "first, then, classes, sentence",
    [
        (LARGE, [-1, -2], None, "No type of numbers holds all classes exactly .* give them as text"),
        (LARGE, LARGE, [-1], "No type of numbers holds all classes exactly"),
        (LARGE, [2**63 + 7], LARGE, r"y holds \[9223372036854775815\], but classes="),
        ([2**53 + 1, 0], [0.0, 2.0], None, "No type of numbers holds all classes exactly"),
        (
            WORDS[:2],
            np.array(["2020-01-01"], "M8[D]"),
            None,
            r"y holds \[2020-01-01\] .datetime64",
        ),
        (WORDS[:2], np.array([5], "m8[s]"), None, "timedelta64.*classes are all text or all whole numbers"),
        (WORDS[:2], WORDS[:1], np.array(["2020"], "M8[Y]"), r"classes holds \[2020-01-01\]"),
        (
            WORDS[:2],
            np.array(["a", 1], object),
            None,
            r"y holds \['a', 1\] .int, str., and classes are all text",
        ),
        (WORDS[:2], np.array([None, "a"], object), None, "NoneType, str"),
        ([1, 2], np.array([1.5, 2], object), None, r"y holds \[1.5, 2\] .float, int."),
        ([1, 2], [2**70], None, "whole numbers of at most 64 bits"),
        ([1, 2], [b"a"], None, "all text or all whole numbers"),
        ([1, 2], [1e300], None, "Unknown label type"),
    ],
    ids=lambda value: value[:30].replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_cannot_be_classes_together_changes_nothing(first, then, classes, sentence):
    model = small().partial_fit(TABLE[:2], first)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=sentence):
        model.partial_fit(TABLE[: len(then)], then, classes=classes)
    assert pickle.dumps(model) == before


def test_what_cannot_be_classes_begins_nothing():
    model = small()
    for y in (np.array(["2020-01-01"], "M8[D]"), np.array([None], object), np.array([1.5], object)):
        for learn in (model.fit, model.partial_fit):
            with pytest.raises(InputError, match=r"y holds .* classes are all text or all whole numbers"):
                learn(TABLE[:1], y)
    assert vars(model) == small().get_params()

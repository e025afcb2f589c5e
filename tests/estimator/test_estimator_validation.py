"""Classes of any type that can name them, and what the estimator refuses without changing anything."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from iblurry import Augment, InputError, Pace, clib
from iblurry.errors import DivergedError
from iblurry.network.table_mlp import to_bytes
from iblurry.parts import Constant
from tests.estimator.test_estimator import PICTURES, TABLE, TENS, WORDS, small


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
    "first, then, classes, named",
    [
        (LARGE, [-1, -2], None, "-1"),
        (LARGE, LARGE, [-1], "-1"),
        (LARGE, [2**63 + 7], LARGE, "9223372036854775815"),
        ([2**53 + 1, 0], [0.0, 2.0], None, "9007199254740993"),
        (WORDS[:2], np.array(["2020-01-01"], "M8[D]"), None, "y holds .2020-01-01.*datetime64"),
        (WORDS[:2], np.array([5], "m8[s]"), None, "timedelta64"),
        (WORDS[:2], WORDS[:1], np.array(["2020"], "M8[Y]"), "classes holds .2020-01-01"),
        (WORDS[:2], np.array(["a", 1], object), None, "'a', 1. .int, str"),
        (WORDS[:2], np.array([None, "a"], object), None, "NoneType, str"),
        ([1, 2], np.array([1.5, 2], object), None, "1.5, 2. .float, int"),
        ([1, 2], [2**70], None, "1180591620717411303424"),
        ([1, 2], [b"a"], None, "b'a'"),
        ([1, 2], [1e300], None, "Unknown label type"),
        (["b", "a"], ["z", "a"], ["a", "b", "c"], "'z'"),
        (["b", "a"], [1, 2], None, "1, 2"),
        (["b", "a"], ["a", "b"], [1, 2], "1, 2"),
        (["b", "a"], [0.5, 1.5], None, "Unknown label type"),
    ],
)
def test_what_cannot_be_classes_together_changes_nothing(first, then, classes, named):
    model = small().partial_fit(TABLE[:2], first)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=named):
        model.partial_fit(TABLE[: len(then)], then, classes=classes)
    assert pickle.dumps(model) == before


def test_what_cannot_be_classes_begins_nothing():
    model = small()
    for y in (np.array(["2020-01-01"], "M8[D]"), np.array([None], object), np.array([1.5], object)):
        for learn in (model.fit, model.partial_fit):
            with pytest.raises(InputError, match="y holds"):
                learn(TABLE[:1], y)
    assert vars(model) == small().get_params()


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"method": "rm"}, "rm"),
        ({"method": "bic"}, "bic"),
        ({"method": "gdumb"}, "gdumb"),
        ({"method": "joint"}, "joint"),
        ({"method": "clip"}, "'clib'"),
        ({"method": 3}, "method=3"),
        ({"method": clib(), "batch_size": 8}, "batch_size=8"),
        ({"network": "convnet"}, "network='convnet'"),
        ({"network": "mpl"}, "'mlp'"),
        ({"augment": Augment()}, "augment="),
        ({"memory": 5}, "memory=5"),
        ({"memory": 2.5}, "memory=2.5"),
        ({"max_classes": 2}, "max_classes=2"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"updates_per_sample": "many"}, "'many'"),
        ({"updates_per_sample": 0}, "updates_per_sample=0"),
        ({"updates_per_sample": "-1/2"}, "updates_per_sample=-1/2"),
        ({"updates_per_sample": 0.0, "method": "er"}, "updates_per_sample=0.0"),
        ({"method": clib(pace=Pace(train_stream=False, updates_per_sample=0))}, "updates_per_sample=0"),
        ({"network": ["mlp"]}, "network=.*mlp"),
        ({"augment": 5}, "augment=5"),
        ({"shape": 5}, "shape=5"),
        ({"shape": (1, "8", 8)}, "shape=.*'8'"),
        ({"shape": (8, 8)}, r"shape=\(8, 8\)"),
        ({"shape": (1, 8, 8)}, "3 .* 64 "),
        ({"device": "gpu"}, "device='gpu'"),
        ({"random_state": "one"}, "'one'"),
    ],
)
def test_parameters_are_refused(changes, named):
    model = small(**{"batch_size": 16} | changes)
    with pytest.raises(ValueError, match=named):
        model.partial_fit(TABLE, WORDS)
    with pytest.raises(NotFittedError):
        model.predict(TABLE)


@pytest.mark.parametrize(
    "X, y, named",
    [
        (TABLE[:2], ["d", "e"], "max_classes=4"),
        (TABLE[:2], ["a"], "inconsistent numbers of samples"),
        (TABLE[:2] * np.nan, ["a", "b"], "contains NaN"),
        (TABLE[:2, :2], ["a", "b"], "has 2 features, but"),
        (PICTURES[:2], ["a", "b"], r"\(1, 8, 8\)"),
    ],
    ids=["classes", "y", "nan", "columns", "images"],
)
def test_rows_are_refused_whole_and_nothing_changes(X, y, named):
    model = small(max_classes=4).partial_fit(TABLE[:9], WORDS[:9])
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=named):
        model.partial_fit(X, y)
    assert pickle.dumps(model) == before


@pytest.fixture(scope="module")
def fitted():
    """Pickled, and what it predicts."""
    model = small().fit(TABLE, WORDS)
    return pickle.dumps(model), model.predict(TABLE).tolist()


@pytest.mark.parametrize(
    "changes, X, y, error",
    [
        ({"max_classes": 1}, TABLE[:, :2], WORDS, InputError),
        ({"memory": 5}, TABLE[:, :2], WORDS, InputError),
        ({"method": "bic"}, TABLE[:, :2], WORDS, InputError),
        ({"epochs": 0}, TABLE[:, :2], WORDS, InputError),
        ({"shape": (1, 8, 8)}, TABLE[:, :2], WORDS, InputError),
        ({}, TABLE[:, :2], WORDS.astype("S"), InputError),
        ({}, TABLE[:, :2], TABLE[:, 0], ValueError),
        ({}, np.zeros((40, 4, 4)), WORDS, InputError),
        ({"method": clib(schedule=Constant(initial_lr=1e30)), "batch_size": 16}, TABLE[:, :2], WORDS, DivergedError),
    ],
    ids=["classes", "memory", "method", "epochs", "shape", "bytes", "regression", "small", "diverged"],
)
def test_a_fit_that_fails_leaves_the_learner_before(changes, X, y, error, fitted):
    model, fresh = pickle.loads(fitted[0]).set_params(**small().get_params()), small()
    model.feature_names_in_ = np.array(["x", "y", "z"], object)  # as if X had been a data frame
    before = pickle.dumps(model)
    for each in (model, fresh):
        with pytest.raises(error):
            each.set_params(**changes).fit(X, y)
    assert vars(fresh) == small().get_params() | changes
    model.set_params(**small().get_params())
    assert pickle.dumps(model) == before
    assert model.n_features_in_ == 3
    del model.feature_names_in_
    assert model.predict(TABLE).tolist() == fitted[1]


@pytest.mark.parametrize(
    "X, sentence",
    [
        (PICTURES / 255, r"from 0 to 255.* 0\.\d+"),
        (PICTURES.astype(int) + 250, "Pixels are whole numbers from 0 to 255"),
        (np.zeros((30, 32, 32, 3), np.uint8), "as if channels came last"),
        (np.zeros((30, 1, 1, 8, 8), np.uint8), "images are .n, height, width. or"),
        (np.zeros((30, 4, 4), np.uint8), "use the network 'mlp'"),
        (np.zeros((0, 8, 8), np.uint8), "Found array with 0 sample"),
    ],
    ids=["fractions", "large", "channels last", "dimensions", "small", "none"],
)
def test_images_are_refused_with_a_sentence(X, sentence):
    with pytest.raises(ValueError, match=sentence):
        small().partial_fit(X, TENS[: len(X)])


def test_images_of_another_shape_are_refused_later():
    with pytest.raises(InputError, match=r"\(1, 4, 16\).* \(1, 8, 8\)"):
        small().partial_fit(PICTURES, TENS).predict(PICTURES.reshape(30, 1, 4, 16))


# ------------------------------------------------------------------------------------------------------------ the door


@pytest.mark.slow
def test_the_front_door_opens_without_scikit_learn_and_who_lacks_it_is_told_what_to_install():
    code = (
        "import sys, iblurry, iblurry.learner.learner\n"
        "assert 'sklearn' not in sys.modules\n"
        "sys.modules['sklearn'] = None\n"
        "from iblurry import ContinualClassifier"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs scikit-learn, which is not installed; pip install 'iblurry[sklearn]'." in done.stderr.splitlines()[-1]

"""A saved estimator goes on to the same bits, whatever saved it."""

from __future__ import annotations

import copy
import pickle

import joblib
import numpy as np
import pytest

from iblurry import ContinualClassifier
from iblurry.methods import Hyperparameters, clib
from iblurry.parts import Adaptive, Admission
from tests.laws.lawful import assert_same_state

RNG = np.random.default_rng(1)
X = RNG.normal(size=(60, 4)) * [1, 100, 1e-3, 7]
Y = np.array(["one", "two", "three"])[np.minimum(np.arange(60) // 15, RNG.integers(0, 3, 60))]


class Eldest(Admission):
    """A full memory gives up the sample it has held longest."""

    def choose_row(self, sample):
        return self.context.memory.written_at[:-1].argmin(0, keepdim=True)


def by_joblib(model, folder, **how):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", **how)


COPIES = {
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "copy": lambda model, folder: copy.copy(model),
    "joblib": by_joblib,
    "mapped": lambda model, folder: by_joblib(model, folder, mmap_mode="r"),
}


@pytest.mark.parametrize("method, stop", [("clib", 1), ("er", 27), ("sdp", 27), ("slda", 27)])
def test_a_pickled_one_goes_on_as_if_it_never_had_been(method, stop):
    model = ContinualClassifier(method=method, memory=24, batch_size=8, max_classes=3).partial_fit(X[:stop], Y[:stop])
    saved = pickle.dumps(model)
    model.partial_fit(X[stop:40], Y[stop:40])
    loaded = pickle.loads(saved)
    assert loaded.learner_.context.seen == stop
    loaded.partial_fit(X[stop:40], Y[stop:40])
    assert_same_state(loaded.learner_.state_dict(), model.learner_.state_dict())
    assert loaded.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.get_params() == model.get_params()


@pytest.mark.quick("pickle", "deepcopy")
@pytest.mark.parametrize("way", COPIES)
def test_copies_share_nothing(way, tmp_path):
    adaptive = clib(Hyperparameters(batch=8), schedule=Adaptive(trial=2, ignore=2, history=3), admission=Eldest())
    model = ContinualClassifier(method=adaptive, memory=20).partial_fit(X[:30], Y[:30])
    before = pickle.dumps(model)
    copied = COPIES[way](model, tmp_path)
    copied.partial_fit(X[30:], Y[30:])
    assert pickle.dumps(model) == before
    assert_same_state(
        copied.learner_.state_dict(), pickle.loads(before).partial_fit(X[30:], Y[30:]).learner_.state_dict()
    )


def test_images_go_on_too():
    images = RNG.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    model = ContinualClassifier(memory=20, random_state=np.random.RandomState(3)).partial_fit(images[:20], Y[:20])
    loaded = pickle.loads(pickle.dumps(model))
    for each in (model, loaded):
        each.partial_fit(images[20:], Y[20:40])
    assert_same_state(loaded.learner_.state_dict(), model.learner_.state_dict())


def test_parameters_set_since_do_not_change_the_learner_that_is_saved():
    model = ContinualClassifier(memory=20).partial_fit(X, Y).set_params(memory=30, random_state=8, method="er")
    loaded = pickle.loads(pickle.dumps(model))
    assert loaded.memory == 30
    assert_same_state(loaded.learner_.state_dict(), model.learner_.state_dict())
    assert loaded.learner_.method.name == "clib"


def test_a_pickle_holds_arrays_and_no_torch():
    model = ContinualClassifier(memory=20).fit(X, Y)
    assert b"torch" not in pickle.dumps(model)
    assert pickle.loads(pickle.dumps(ContinualClassifier(memory=7))).memory == 7  # before it learnt anything

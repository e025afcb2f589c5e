"""The scikit-learn face: what it learns, in which order, what it answers, and that a saved one goes on bit for bit.

And scikit-learn's own checks of an estimator, all of them.
"""

from __future__ import annotations

import copy
import pickle

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import QuantileTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator
from torch import nn

from iblurry import Augment, ContinualClassifier, Hyperparameters, Learner, TorchTransform, clib, load_exported
from iblurry.components import objects
from iblurry.errors import InputError
from iblurry.parts import Adaptive, Admission, Constant
from iblurry.rng import Rng
from tests.laws.lawful import assert_same_state
from tests.laws.user_transforms import Negative

RNG = np.random.default_rng(0)
TABLE, WORDS = RNG.normal(size=(40, 3)), np.array(["b", "a", "c", "a"] * 10)
PICTURES = RNG.integers(0, 256, (30, 1, 8, 8), dtype=np.uint8)
TENS = np.arange(30) // 10 * 10  # three classes, one after the other


def small(**changes):
    return ContinualClassifier(**{"memory": 20, "batch_size": 8, "max_classes": 10} | changes)


def state(model):
    return model.learner_.state_dict()


# ---------------------------------------------------------------------------------------------------- what is learnt


@pytest.mark.parametrize("X, y", [(TABLE, WORDS), (PICTURES, TENS)], ids=["table", "images"])
@pytest.mark.parametrize("method", ["clib", "er"])
def test_in_how_many_calls_rows_come_makes_no_difference(X, y, method):
    whole = small(method=method).partial_fit(X, y)
    parts = small(method=method)
    for start, stop in ((0, 1), (1, 2), (2, 15), (15, len(y))):
        parts.partial_fit(X[start:stop], y[start:stop])
        parts.predict(X)
    assert_same_state(state(parts), state(whole))


def test_partial_fit_is_a_learner_that_observes():
    model = small(network="convnet").partial_fit(PICTURES, TENS)
    learner = Learner(clib(Hyperparameters(batch=8, measure_every=10)), image=(1, 8, 8), memory=20, classes=10)
    for image, label in zip(PICTURES, TENS, strict=True):
        learner.observe(image, label)
    assert_same_state(state(model), learner.state_dict())
    np.testing.assert_allclose(model.predict_proba(PICTURES), learner.probabilities(PICTURES).numpy(), rtol=1e-5)
    assert model.predict(PICTURES).tolist() == learner.predict(PICTURES)


def test_fit_begins_again_and_passes_in_the_orders_of_the_dice():
    model = small(epochs=2, random_state=5).partial_fit(PICTURES[:9], TENS[:9]).fit(PICTURES, TENS)
    other = small(random_state=5)
    for epoch in range(2):
        order = Rng(5).permutation("a pass of fit", epoch, 30)
        other.partial_fit(PICTURES[order], TENS[order])
    assert_same_state(state(model), state(other))
    assert model.learner_.context.seen == 60


def test_the_scale_is_that_of_all_rows_each_counted_once():
    model = small(epochs=3).fit(TABLE[:25], WORDS[:25])
    assert int(model.learner_.context.network.body.count) == 25
    numbers = model.partial_fit(TABLE[25:], WORDS[25:]).learner_.context.network.body
    assert int(numbers.count) == 40
    np.testing.assert_allclose(numbers.mean.numpy(), TABLE.astype(np.float32).mean(0, dtype=np.float64), rtol=1e-9)


def test_a_table_is_neither_cropped_nor_mixed_and_images_are():
    def augment(model):
        return model.learner_.context.pipeline.augment

    still = Augment(pad=0, flip=False, cutmix=0.0)
    assert augment(small().partial_fit(TABLE, WORDS)) == still
    assert augment(small(network="mlp:width=6").partial_fit(PICTURES, TENS)) == still
    assert augment(small().partial_fit(PICTURES, TENS)) == Augment(pad=1, flip=False)
    own = Augment(pad=2, flip=True, cutmix=0.1)
    assert augment(small(augment=own).partial_fit(PICTURES, TENS)) == own


def test_several_transforms_are_cloned_and_pickled_with_the_estimator():
    augment = (Augment(pad=1), Negative(), TorchTransform(nn.Dropout(0.1), works_on="floats"))
    one = small(augment=augment)
    other = clone(one)
    assert (other.augment, one.augment) == (augment, augment)
    one.partial_fit(PICTURES, TENS)
    assert one.learner_.context.pipeline.augment == augment
    again = pickle.loads(pickle.dumps(one))
    assert_same_state(state(again.partial_fit(PICTURES, TENS)), state(one.partial_fit(PICTURES, TENS)))


def test_a_method_put_together_is_used_as_it_is():
    chosen = clib(Hyperparameters(batch=4, updates_per_sample=2), schedule=Constant(initial_lr=1e-3))
    model = ContinualClassifier(method=chosen, memory=20).partial_fit(TABLE, WORDS)
    assert model.learner_.context.updates == 80
    assert model.learner_.method.schedule.initial_lr == 1e-3
    assert "context" not in vars(chosen.schedule)


def test_what_the_memory_holds():
    X, y = small().partial_fit(TABLE, WORDS).memory_
    assert X.shape == (20, 3)
    assert X.dtype == np.float32
    came = {row.tobytes(): word for row, word in zip(TABLE.astype(np.float32), WORDS, strict=True)}
    assert [came[row.tobytes()] for row in X] == y.tolist()
    assert sorted(np.unique(y, return_counts=True)[1]) == [6, 7, 7]
    images, tens = small().partial_fit(PICTURES, TENS).memory_
    came = {image.tobytes(): ten for image, ten in zip(PICTURES, TENS, strict=True)}
    assert [came[image.tobytes()] for image in images] == tens.tolist()
    assert images.shape == (20, 1, 8, 8)


# ------------------------------------------------------------------------------------------------------------- images


def test_images_may_come_in_three_forms():
    forms = [(PICTURES, None), (PICTURES[:, 0], None), (PICTURES.reshape(30, 64).astype(float), [1, 8, 8])]
    models = [small(shape=shape).partial_fit(X, TENS) for X, shape in forms]
    for model in models[1:]:
        assert_same_state(state(model), state(models[0]))
    assert [model.n_features_in_ for model in models] == [64] * 3
    for X, _ in forms:
        np.testing.assert_array_equal(models[0].predict_proba(X), models[0].predict_proba(PICTURES))


def test_colour_images_learn_with_a_convnet():
    X = RNG.integers(0, 80, (60, 3, 8, 8), dtype=np.uint8)
    y = np.arange(60) % 3
    X[np.arange(60), y] += 120  # each class has its colour
    model = small(memory=40).fit(X, y)
    assert type(model.learner_.context.network.body).__name__ == "ConvNet"
    assert model.score(X, y) > 0.9


# ------------------------------------------------------------------------------------------------------- any numbers


def test_neither_scale_nor_offset_matters():
    X, y = make_blobs(60, centers=3, random_state=0)
    each = {"measure_every": 1}  # a row that leaves the memory for rounding's sake changes more than rounding
    usual, moved = small(**each).fit(X, y), small(**each).fit(X * [1e4, 1e-3] + [3e5, -1], y)
    np.testing.assert_allclose(moved.predict_proba(X * [1e4, 1e-3] + [3e5, -1]), usual.predict_proba(X), atol=5e-3)


def test_rows_that_do_not_differ_and_far_ones_still_give_answers():
    model = small().partial_fit([[5.0, 1e30]], [0])
    assert model.predict([[5.0, 1e30], [-1e30, 0.0]]).tolist() == [0, 0]
    model.partial_fit([[5.0, -1e30]] * 3, [1] * 3).partial_fit([[6.0, 0.0]], [0])
    assert np.isfinite(model.predict_proba([[3e38, -3e38], [0, 0]])).all()
    with pytest.raises(ValueError, match="too large for dtype"):
        model.predict([[1e39, 0.0]])


# ------------------------------------------------------------------------------------------------------------- chance


def test_the_random_state_decides():
    def weights(**options):
        return small(**options).fit(TABLE[:12], WORDS[:12]).learner_.context.network.head.weight

    assert torch.equal(weights(), weights(random_state=np.int64(1)))
    assert not torch.equal(weights(), weights(random_state=2))
    drawn = [weights(random_state=np.random.RandomState(seed)) for seed in (3, 3, 4)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    np.random.seed(0)
    assert not torch.equal(weights(random_state=None), weights(random_state=None))


def test_nothing_global_is_touched():
    before = torch.get_num_threads(), torch.get_rng_state(), np.random.get_state()[1].copy()
    small(epochs=2).fit(TABLE, WORDS).predict(TABLE)
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert (np.random.get_state()[1] == before[2]).all()


# ----------------------------------------------------------------------------------------------------- among the others


@pytest.mark.slow
def test_a_pipeline_searched_on_a_grid():
    X, y = load_iris(return_X_y=True)
    pipeline = Pipeline([("ranks", QuantileTransformer(n_quantiles=20)), ("model", small())])
    search = GridSearchCV(pipeline, {"model__updates_per_sample": np.array([0.125, 2.0])}, cv=2).fit(X[::2], y[::2])
    assert search.best_params_["model__updates_per_sample"] == 2.0
    assert search.best_score_ > 0.85
    assert search.best_estimator_["model"].learner_.context.updates == 150


def test_a_clone_has_the_parameters_and_learnt_nothing():
    chosen = clib(Hyperparameters(batch=8))
    model = ContinualClassifier(method=chosen, memory=20, shape=(1, 8, 8)).fit(PICTURES, TENS)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        twin.predict(PICTURES)
    with pytest.raises(NotFittedError):
        _ = twin.memory_
    assert_same_state(state(twin.fit(PICTURES, TENS)), state(model))


# ---------------------------------------------------------------------------------------------------------- how well


@pytest.mark.quick("blobs")
@pytest.mark.parametrize(
    "load, epochs, least",
    [
        (lambda: make_blobs(300, centers=4, cluster_std=0.8, random_state=1), 1, 0.95),
        (lambda: load_iris(return_X_y=True), 3, 0.9),
    ],
    ids=["blobs", "iris"],
)
def test_a_pass_or_three_are_enough_for_small_tables(load, epochs, least):
    X, y = load()
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    assert ContinualClassifier(memory=100, epochs=epochs).fit(X, y).score(X_test, y_test) >= least


@pytest.mark.slow
def test_digits_two_by_two_are_not_forgotten_as_a_linear_model_forgets_them():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16, y, stratify=y, train_size=500, random_state=0)
    model, linear = ContinualClassifier(memory=100), SGDClassifier(random_state=0)
    for first in range(0, 10, 2):
        now = (y == first) | (y == first + 1)
        model.partial_fit(X[now], y[now])
        linear.partial_fit(X[now], y[now], classes=range(10))
    ours, theirs = model.score(X_test, y_test), linear.score(X_test, y_test)
    assert ours > 0.8
    assert ours > theirs + 0.3, f"{ours} beside {theirs}"


def test_a_network_of_ones_own_travels_with_a_pickle(monkeypatch):
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.Dropout(0.2))
    model = small(network=body).partial_fit(PICTURES, TENS)
    pickled = pickle.dumps(model)
    monkeypatch.setattr(objects, "_objects", {})  # as in another process
    again = pickle.loads(pickled)
    assert (again.predict_proba(PICTURES) == model.predict_proba(PICTURES)).all()


def test_initial_weights_and_frozen_parts_of_a_network():
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU())
    model = small(network=body, freeze="1")
    other = clone(model)
    assert other.network is not body
    assert other.set_params(initialise="redraw").get_params()["initialise"] == "redraw"
    for one in (model, other):
        one.partial_fit(PICTURES, TENS)
    assert torch.equal(model.learner_.context.network.body[1].weight, body[1].weight)
    assert not torch.equal(other.learner_.context.network.body[1].weight, body[1].weight)
    with pytest.raises(InputError, match="'2x'"):
        small(network=body, freeze="2x").fit(PICTURES, TENS)
    with pytest.raises(InputError, match="initialise"):
        small(network=body, initialise="zero").fit(PICTURES, TENS)


@pytest.mark.quick("images")
@pytest.mark.parametrize("rows, y", [(TABLE.astype(np.float32), WORDS), (PICTURES, TENS)], ids=["table", "images"])
def test_exported(rows, y, tmp_path):
    model = small(method="er").partial_fit(rows, y)
    model.export(tmp_path / "model.pt2")
    exported = load_exported(tmp_path / "model.pt2")
    order = [model.classes_.tolist().index(label) for label in exported.labels]
    np.testing.assert_allclose(exported.logits(rows).softmax(1), model.predict_proba(rows)[:, order], atol=1e-5)
    with pytest.raises(NotFittedError):
        small().export(tmp_path / "model.pt2")


# ------------------------------------------------------------------------------------------- frozen bodies, threads


@pytest.mark.parametrize("method", ["ncm", "slda", "ranpac", "randumb", "er"])
def test_closed_forms_and_frozen_features_by_name(method):
    """Also pickled in between; the memory has features, and a second call goes on with the sums."""
    frozen = {} if method == "randumb" else {"network": "frozen:convnet"}
    model = small(method=method, **frozen)
    halves = clone(model).partial_fit(PICTURES[:15], TENS[:15])
    halves = pickle.loads(pickle.dumps(halves)).partial_fit(PICTURES[15:], TENS[15:])
    model.partial_fit(PICTURES, TENS)
    assert_same_state(state(halves), state(model))
    if frozen:
        features = model.learner_.context.network.features
        assert model.memory_[0].shape == (len(model.memory_[1]), features)
        assert model.memory_[0].dtype == np.float32
    if method != "er":
        assert model.score(PICTURES, TENS) > 0.5


def test_a_table_with_a_frozen_body_keeps_its_rows():
    X, y = make_blobs(40, centers=3, random_state=0)
    model = small(method="er", freeze="body").partial_fit(X, y)
    kept, _ = model.memory_
    assert {tuple(row) for row in kept.tolist()} <= {tuple(row) for row in X.astype(np.float32).tolist()}
    assert not model.learner_.context.network.body_parameters()


def test_the_memory_is_measured_as_seldom_as_asked():
    spent = {
        every: small(measure_every=every).partial_fit(PICTURES, TENS).learner_.context.spent.forward["losses"]
        for every in (1, 10)
    }
    assert spent[1] > 5 * spent[10] > 0


def test_threads_are_torch_s_again_afterwards(monkeypatch):
    before, seen = torch.get_num_threads(), []
    observe = Learner.observe
    monkeypatch.setattr(Learner, "observe", lambda *given: (seen.append(torch.get_num_threads()), observe(*given)))
    small(n_threads=before + 1, method="er").partial_fit(PICTURES[:3], TENS[:3]).predict(PICTURES)
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before
    with pytest.raises(InputError, match="n_threads=0"):
        small(n_threads=0).fit(PICTURES, TENS)


# ---------------------------------------------------------------------------------------------------------------- saved

MORE = np.random.default_rng(1)
ROWS = MORE.normal(size=(60, 4)) * [1, 100, 1e-3, 7]
NAMES = np.array(["one", "two", "three"])[np.minimum(np.arange(60) // 15, MORE.integers(0, 3, 60))]


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


@pytest.mark.parametrize("method, stop", [("clib", 1), ("er", 27), ("sdp", 27)])
def test_a_pickled_one_goes_on_as_if_it_never_had_been(method, stop):
    model = small(method=method, max_classes=3).partial_fit(ROWS[:stop], NAMES[:stop])
    saved = pickle.dumps(model)
    model.partial_fit(ROWS[stop:40], NAMES[stop:40])
    loaded = pickle.loads(saved)
    assert loaded.learner_.context.seen == stop
    loaded.partial_fit(ROWS[stop:40], NAMES[stop:40])
    assert_same_state(state(loaded), state(model))
    assert loaded.predict_proba(ROWS).tobytes() == model.predict_proba(ROWS).tobytes()
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.get_params() == model.get_params()


@pytest.mark.quick("pickle", "deepcopy")
@pytest.mark.parametrize("way", COPIES)
def test_copies_share_nothing(way, tmp_path):
    adaptive = clib(Hyperparameters(batch=8), schedule=Adaptive(trial=2, ignore=2, history=3), admission=Eldest())
    model = ContinualClassifier(method=adaptive, memory=20).partial_fit(ROWS[:30], NAMES[:30])
    before = pickle.dumps(model)
    copied = COPIES[way](model, tmp_path)
    copied.partial_fit(ROWS[30:], NAMES[30:])
    assert pickle.dumps(model) == before
    assert_same_state(state(copied), state(pickle.loads(before).partial_fit(ROWS[30:], NAMES[30:])))


def test_parameters_set_later_count_from_the_next_beginning():
    model = ContinualClassifier(memory=20).partial_fit(ROWS, NAMES).set_params(memory=30, random_state=8, method="er")
    loaded = pickle.loads(pickle.dumps(model))
    assert loaded.memory == 30
    assert_same_state(state(loaded), state(model))
    assert loaded.partial_fit(ROWS, NAMES).learner_.method.name == "clib"
    assert loaded.learner_.config.memory == 20
    assert loaded.fit(ROWS, NAMES).learner_.method.name == "er"
    assert loaded.learner_.config.memory == 30


def test_a_pickle_holds_arrays_and_no_torch():
    model = ContinualClassifier(memory=20).fit(ROWS, NAMES)
    assert b"torch" not in pickle.dumps(model)
    assert pickle.loads(pickle.dumps(ContinualClassifier(memory=7))).memory == 7  # before it learnt anything


# -------------------------------------------------------------------------------------------- scikit-learn's own checks

MODEL = ContinualClassifier(memory=40, updates_per_sample="1/3")  # cheap: some checks fit hundreds of rows many times


def name(check):
    options = {key: value for key, value in getattr(check, "keywords", {}).items() if key != "name"}
    return getattr(check, "func", check).__name__ + "".join(f", {key}={value}" for key, value in options.items())


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=[pytest.mark.slow] if "readonly_memmap" in name(check) else [], id=name(check))
        for _, check in estimator_checks_generator(MODEL)
    ],
)
def test_check(check):
    check(MODEL)


def test_the_checks_are_those_of_a_classifier():
    names = {name(check) for _, check in estimator_checks_generator(ContinualClassifier())}
    assert len(names) > 45
    assert {"check_classifiers_train", "check_estimators_pickle", "check_methods_subset_invariance"} <= names

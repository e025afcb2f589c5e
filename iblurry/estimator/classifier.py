"""A continual learner as a scikit-learn classifier: fit, partial_fit, predict, clone and pickle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from iblurry.augment.pipeline import Augment
from iblurry.errors import InputError
from iblurry.estimator.plan import Plan, Shape, shape_of, whole
from iblurry.estimator.saved import as_arrays, as_tensors
from iblurry.estimator.tables import as_images, as_table, as_they_came
from iblurry.estimator.targets import label, merged, plain
from iblurry.learner import Learner
from iblurry.method import Method
from iblurry.network.table_mlp import TableMLP
from iblurry.rng import Rng


class ContinualClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """Learns sample by sample from tables or images; classes may come at any time, and a small memory keeps old ones.

    Parameters are read when a learner begins: at `fit`, and at the first `partial_fit`. `learner_` is that learner,
    `classes_` the classes announced or met, sorted, and `memory_` what the memory holds.

    >>> X, y = [[0.0, 1.0], [5.0, 1.0], [0.2, 1.1], [5.1, 0.9]], ["dog", "cat", "dog", "cat"]
    >>> model = ContinualClassifier(method="er", memory=20).partial_fit(X, y)
    >>> model.classes_.tolist(), model.learner_.labels, model.predict_proba(X).shape
    (['cat', 'dog'], ['dog', 'cat'], (4, 2))
    """

    learner_: Learner
    classes_: NDArray[Any]
    _plan: Plan

    def __init__(
        self,
        *,
        method: str | Method = "clib",  # one that needs no task ends and does not train when asked
        network: str | None = None,  # None: "mlp" for a table, "convnet" for images
        memory: int = 500,  # samples it may keep
        max_classes: int = 100,  # rows of the head
        updates_per_sample: float | str = 1,  # of a method given by its name
        batch_size: int = 16,  # of a method given by its name
        epochs: int = 1,  # passes of `fit`; `partial_fit` takes one
        shape: tuple[int, int, int] | None = None,  # channels, height, width, where rows of X are the pixels of images
        augment: Augment | None = None,  # of images; None: cropped and mixed, or left as they are for an mlp
        random_state: int | np.random.RandomState | None = 1,  # None: numpy's global generator gives a seed
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.network = network
        self.memory = memory
        self.max_classes = max_classes
        self.updates_per_sample = updates_per_sample
        self.batch_size = batch_size
        self.epochs = epochs
        self.shape = shape
        self.augment = augment
        self.random_state = random_state
        self.device = device

    # ------------------------------------------------------------------------------------------------ learning

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Begins again: `epochs` passes over all rows, each in another order, on a scale measured before the first.

        Where it ends in an error, the learner before stays as it was.
        """
        epochs = whole("epochs", self.epochs)
        with self._or_as_before():
            images, targets = self._begin(X, y)
            if self._is_table:
                self._measure(images)
            rng = Rng(self._plan.seed)
            for epoch in range(epochs):
                order = rng.permutation("a pass of fit", epoch, len(targets))
                self._observe(images[order], targets[order], measure=False)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Goes on, or begins: one pass over the rows in their order; in how many calls they come makes no difference.

        `classes` announces classes that may come later. It may be left out: a new class is welcome whenever it comes.
        """
        if self.__sklearn_is_fitted__():
            images, targets = self._read(X, y)
            self.classes_ = merged(self.classes_, targets, classes, most=self._plan.classes)
        else:
            with self._or_as_before():
                images, targets = self._begin(X, y, classes)
        self._observe(images, targets, measure=self._is_table)
        return self

    def _begin(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """A new learner for rows like these, and the rows."""
        table, shape = as_table(X, shape_of(self.shape))
        table, targets = self._checked(table, y, shape=shape, reset=True)
        plan = Plan.of(self.get_params(deep=False), columns=table.shape[1], shape=shape, seed=self._seed())
        images, known = as_images(table, shape), merged(None, targets, classes, most=plan.classes)
        self.learner_, self.classes_, self._plan = plan.begin(), known, plan
        return images, targets

    @contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """All of it or nothing: scikit-learn's check of X changes attributes before anything else can be refused."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _measure(self, images: NDArray[np.uint8]) -> None:
        with self.learner_.engine.cuda_stream():
            for image in self.learner_.engine.to_device(torch.from_numpy(images)):
                self._numbers.update_statistics(image)

    def _observe(self, images: NDArray[np.uint8], targets: NDArray[Any], *, measure: bool) -> None:
        learner = self.learner_
        with learner.engine.cuda_stream():
            for image, one in zip(learner.engine.to_device(torch.from_numpy(images)), targets.tolist(), strict=True):
                if measure:
                    self._numbers.update_statistics(image)
                learner.observe(image, label(one))
        learner.check()

    # ------------------------------------------------------------------------------------------------ answering

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class of each row, (n,)."""
        columns = self.predict_proba(X).argmax(1)
        likely: NDArray[Any] = self.classes_[columns]
        return likely

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n, classes), in the order of `classes_`; 0 for a class that was announced and has not come yet."""
        check_is_fitted(self)
        images, _ = self._read(X)
        probabilities = np.zeros((len(images), len(self.classes_)))
        with self.learner_.engine.cuda_stream():
            logits = self.learner_.logits(images)[:, : len(self.learner_.labels)]
            probabilities[:, self._columns] = logits.double().softmax(1).cpu().numpy()
        return probabilities

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of rows whose class is predicted; y in any form that `fit` takes."""
        return float(super().score(X, plain(column_or_1d(y), "y"), sample_weight))

    @property
    def memory_(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """What the memory holds: rows as they came, numbers in float32, and their classes."""
        check_is_fitted(self)
        memory = self.learner_.context.memory
        with self.learner_.engine.cuda_stream():
            images, rows = (values[: memory.size].cpu().numpy() for values in (memory.images, memory.labels))
        return as_they_came(images, self._plan.shape), self.classes_[self._columns[rows]]

    def __sklearn_is_fitted__(self) -> bool:
        return "learner_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True  # images of one channel
        return tags

    # ------------------------------------------------------------------------------------------------ remembering

    def __getstate__(self) -> dict[str, Any]:
        """The learner as plain arrays: who loads them goes on from here, bit for bit."""
        state = dict(super().__getstate__())
        if "learner_" in state:
            state["learner_"] = as_arrays(self.learner_.state_dict())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "learner_" in state:
            self.learner_ = self._plan.begin()
            self.learner_.load_state_dict(as_tensors(state["learner_"]))

    # ------------------------------------------------------------------------------------------------ reading

    def _read(self, X: ArrayLike, *y: ArrayLike) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """Rows like those it began with, as a learner takes them, and their classes."""
        began = self._plan.shape
        table, shape = as_table(X, began)
        if shape != began:
            raise InputError(f"X holds images of shape {shape}, but the first X was a table; give rows of numbers.")
        checked = self._checked(table, *y, shape=shape, reset=False)
        table, targets = checked if y else (checked, np.empty(0))
        return as_images(table, shape), targets

    def _checked(self, table: Any, *y: ArrayLike, shape: Shape | None, reset: bool) -> Any:
        """The table, or the table and y, as scikit-learn wants them."""
        with np.errstate(over="ignore"):  # what is too large for float32 is refused in a sentence
            checked = validate_data(self, table, *y, reset=reset, dtype="numeric" if shape else np.float32)
        return (checked[0], plain(checked[1], "y")) if y else checked

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @property
    def _is_table(self) -> bool:
        return self._plan.shape is None

    @property
    def _numbers(self) -> TableMLP:
        return cast(TableMLP, self.learner_.context.network.body)

    @property
    def _columns(self) -> NDArray[np.int64]:
        """The place in `classes_` of each head row in use."""
        place = {label(one): column for column, one in enumerate(self.classes_.tolist())}
        return np.array([place[name] for name in self.learner_.labels], dtype=np.int64)

"""A continual learner as a scikit-learn classifier: fit, partial_fit, predict, clone and pickle."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from iblurry.augment.transform import NO_AUGMENT, Transforms
from iblurry.engine.devices import make_engine
from iblurry.engine.eager import Eager
from iblurry.engine.threads import default_threads, torch_threads
from iblurry.errors import InputError, whole_number
from iblurry.estimator.validation import Shape, as_images, as_table, check_targets, from_images, merge_classes, to_label
from iblurry.learner.config import LearnerConfig, image_shape
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, method as method_named
from iblurry.methods.method import Method, check_updates
from iblurry.network.registry import AnyNetwork, Initialise, network_key, split_frozen
from iblurry.network.table_mlp import BYTES, TableMLP
from iblurry.rng import Rng

PACE: dict[str, Any] = {"batch_size": 16, "updates_per_sample": 1, "measure_every": 10}  # the parameters' defaults


class ContinualClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """Learns sample by sample from tables or images; classes may come at any time, and a small memory keeps old ones.

    Parameters are read when a learner is built: at `fit`, and at the first `partial_fit`.

    Parameters
    ----------
    method : str or Method, default "clib"
        A name in METHODS or a Method; one that needs no task ends and does not train when queried.
    network : str, callable or nn.Module, optional
        As in `LearnerConfig`, for images; "mlp" for a table and "convnet" for images unless given.
    initialise : {"redraw", "keep"}, optional
    freeze : str, default "none"
        Which weights are drawn, kept or not trained, as in `LearnerConfig`; of a table, rows are kept instead of
        features.
    memory : int, default 500
        Samples that may be kept.
    max_classes : int, default 100
        Rows of the head.
    updates_per_sample : float or str, default 1
        Optimizer steps per sample, of a method given by its name.
    batch_size : int, default 16
        Images per update, of a method given by its name.
    measure_every : int, default 10
        Updates between two measures of the whole memory's loss, where the method looks at it (clib), of a method given
        by its name; the paper has 1, and 10 on ImageNet.
    epochs : int, default 1
        Passes of `fit`; `partial_fit` takes one.
    shape : tuple of int, optional
        (channels, height, width) where rows of X are the pixels of images.
    augment : Transform or tuple of Transform, optional
        Of images; unless given they are cropped and mixed, or left as they are for an mlp.
    random_state : int, RandomState or None, default 1
        None: numpy's global generator gives a seed.
    device : str, default "cpu"
    n_threads : int, optional
        Of torch, while it learns or answers; unless given, 1 for `mlp`, `convnet` and tables, and as many as torch has
        for other networks or where you chose a number. Another number changes the last bits.

    Attributes
    ----------
    learner_ : Learner
    classes_ : ndarray
        The classes announced or met, sorted.
    memory_ : tuple of ndarray
        The rows that the memory holds, and their classes; of a frozen body their features.

    Examples
    --------
    >>> X, y = [[0.0, 1.0], [5.0, 1.0], [0.2, 1.1], [5.1, 0.9]], ["dog", "cat", "dog", "cat"]
    >>> model = ContinualClassifier(method="er", memory=20).partial_fit(X, y)
    >>> model.classes_.tolist(), model.learner_.labels, model.predict_proba(X).shape
    (['cat', 'dog'], ['dog', 'cat'], (4, 2))
    """

    learner_: Learner
    classes_: NDArray[Any]
    _config: LearnerConfig
    _shape: Shape | None  # of images

    def __init__(
        self,
        *,
        method: str | Method = "clib",
        network: AnyNetwork | None = None,
        initialise: Initialise | None = None,
        freeze: str = "none",
        memory: int = 500,
        max_classes: int = 100,
        updates_per_sample: float | str = 1,
        batch_size: int = 16,
        measure_every: int = 10,
        epochs: int = 1,
        shape: tuple[int, int, int] | None = None,
        augment: Transforms | None = None,
        random_state: int | np.random.RandomState | None = 1,
        device: str = "cpu",
        n_threads: int | None = None,
    ) -> None:
        self.method = method
        self.network = network
        self.initialise = initialise
        self.freeze = freeze
        self.memory = memory
        self.max_classes = max_classes
        self.updates_per_sample = updates_per_sample
        self.batch_size = batch_size
        self.measure_every = measure_every
        self.epochs = epochs
        self.shape = shape
        self.augment = augment
        self.random_state = random_state
        self.device = device
        self.n_threads = n_threads

    # ------------------------------------------------------------------------------------------------ learning

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Start a new learner: `epochs` passes over all rows, each in another order, standardised by statistics of all.

        Where it fails, the previous learner stays as it was.
        """
        epochs = whole_number("epochs", self.epochs, 1)
        with self._threads(), self._restored_on_error():
            images, targets = self._build(X, y)
            if self._is_table:
                self._measure_statistics(images)
            rng = Rng(self._config.seed)
            for epoch in range(epochs):
                order = rng.permutation("a pass of fit", epoch, len(targets))
                self._observe(images[order], targets[order], measure=False)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn the rows in their order, once; splitting them over several calls makes no difference.

        `classes` announces classes that may come later. It may be left out: new classes are accepted at any time.
        """
        with self._threads():
            if self.__sklearn_is_fitted__():
                images, targets = self._read(X, y)
                self.classes_ = merge_classes(self.classes_, targets, classes, most=self._config.rows)
            else:
                with self._restored_on_error():
                    images, targets = self._build(X, y, classes)
            self._observe(images, targets, measure=self._is_table)
        return self

    def _threads(self) -> AbstractContextManager[None]:
        """Torch has `n_threads` threads meanwhile, and afterwards as many as before."""
        given = self.n_threads
        small = self.network or "mlp"  # "convnet" for images
        return torch_threads(default_threads(small) if given is None else whole_number("n_threads", given, 1))

    def _build(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """Builds a learner for rows like these; returns the converted rows."""
        table, shape = as_table(X, None if self.shape is None else image_shape("shape", self.shape))
        table, targets = self._checked(table, y, shape=shape, reset=True)
        config = self._learner_config(table.shape[1], shape)
        images, known = as_images(table, shape), merge_classes(None, targets, classes, most=config.rows)
        self.learner_, self.classes_, self._config, self._shape = _build_learner(config), known, config, shape
        return images, targets

    def _learner_config(self, columns: int, shape: Shape | None) -> LearnerConfig:
        """What the parameters say of a learner for an X of so many columns; InputError where they do not fit."""
        if shape is not None and columns != math.prod(shape):
            raise InputError(
                f"A row of X has {columns} columns, but an image of shape={shape} has {math.prod(shape)} pixels; "
                "give the shape (channels, height, width) that the rows have."
            )
        named, freeze = split_frozen(self.network, self.freeze)
        network = _check_network(named, shape)
        config: dict[str, Any] = {
            "method": _check_method(self.method, {name: getattr(self, name) for name in PACE}),
            "classes": whole_number("max_classes", self.max_classes, 1),
            "memory": self.memory,
            "initialise": self.initialise,
            "freeze": freeze,
            "augment": _check_augment(self.augment, network, shape, freeze),
            "seed": self._seed(),
            "boundaries": False,
            "device": str(self.device),
        }
        if shape is not None:
            return LearnerConfig(**config, image=shape, network=network)
        table = {
            "image": (1, columns, BYTES),
            "network": TableMLP,
            "freeze": "layers" if freeze == "body" else freeze,  # its statistics go on moving
            "mean": [0.0],  # bytes stay the numbers they are
            "std": [1 / 255],
        }
        return LearnerConfig(**config | table)

    @contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        """Restores all attributes after an error: scikit-learn's check of X sets some before anything else can fail."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _measure_statistics(self, images: NDArray[np.uint8]) -> None:
        with self.learner_.engine.cuda_stream():
            for image in self.learner_.engine.to_device(torch.from_numpy(images)):
                self._table_mlp.update_statistics(image)

    def _observe(self, images: NDArray[np.uint8], targets: NDArray[Any], *, measure: bool) -> None:
        learner = self.learner_
        with learner.engine.cuda_stream():
            for image, name in zip(learner.engine.to_device(torch.from_numpy(images)), targets.tolist(), strict=True):
                if measure:
                    self._table_mlp.update_statistics(image)
                learner.observe(image, to_label(name))
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
        with self._threads(), self.learner_.engine.cuda_stream():
            logits = self.learner_.logits(images)[:, : len(self.learner_.labels)]
            probabilities[:, self._columns] = logits.double().softmax(1).cpu().numpy()
        return probabilities

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of rows whose class is predicted; y in any form that `fit` takes."""
        return float(super().score(X, check_targets(column_or_1d(y), "y"), sample_weight))

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes the network that answers now to NAME.pt2 or NAME.onnx, as `Learner.export` does.

        The input is uint8 pixels (B, C, H, W), or a table's rows, float32 (B, columns); the outputs are in the order of
        `learner_.labels`, which is in the file.

        Parameters
        ----------
        path : path
            The file.
        """
        check_is_fitted(self)
        with self.learner_.engine.cuda_stream():
            self.learner_.export(path, columns=self._config.image[1] if self._is_table else None)

    @property
    def memory_(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The rows in the memory as they were given, numbers in float32, and their classes."""
        check_is_fitted(self)
        memory = self.learner_.context.memory
        with self.learner_.engine.cuda_stream():
            images, rows = (values[: memory.size].cpu().numpy() for values in (memory.images, memory.labels))
        shape = self._shape if self.learner_.context.frozen is None else None  # features are numbers, as a table's
        return from_images(images, shape), self.classes_[self._columns[rows]]

    def __sklearn_is_fitted__(self) -> bool:
        return "learner_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True  # images of one channel
        return tags

    # ------------------------------------------------------------------------------------------------ remembering

    def __getstate__(self) -> dict[str, Any]:
        """The learner as plain arrays: a loaded copy continues bit for bit."""
        state = dict(super().__getstate__())
        if "learner_" in state:
            state["learner_"] = _to_arrays(self.learner_.state_dict())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "learner_" in state:
            if self.network is not None:
                network_key(split_frozen(self.network, "none")[0])  # an object is kept here from now on
            self.learner_ = _build_learner(self._config)
            self.learner_.load_state_dict(_to_tensors(state["learner_"]))

    # ------------------------------------------------------------------------------------------------ reading

    def _read(self, X: ArrayLike, *y: ArrayLike) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """Rows of the same form as the first, converted for the learner, and their targets."""
        expected = self._shape
        table, shape = as_table(X, expected)
        if shape != expected:
            raise InputError(f"X holds images of shape {shape}, but the first X was a table; give rows of numbers.")
        checked = self._checked(table, *y, shape=shape, reset=False)
        table, targets = checked if y else (checked, np.empty(0))
        return as_images(table, shape), targets

    def _checked(self, table: Any, *y: ArrayLike, shape: Shape | None, reset: bool) -> Any:
        """The table, or the table and y, checked by scikit-learn."""
        with np.errstate(over="ignore"):  # values too large for float32 are refused with a message
            checked = validate_data(self, table, *y, reset=reset, dtype="numeric" if shape else np.float32)
        return (checked[0], check_targets(checked[1], "y")) if y else checked

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @property
    def _is_table(self) -> bool:
        return self._shape is None

    @property
    def _table_mlp(self) -> TableMLP:
        return cast(TableMLP, self.learner_.context.network.body)

    @property
    def _columns(self) -> NDArray[np.int64]:
        """The position in `classes_` of each head row in use."""
        position = {to_label(name): column for column, name in enumerate(self.classes_.tolist())}
        return np.array([position[name] for name in self.learner_.labels], dtype=np.int64)


def _build_learner(config: LearnerConfig) -> Learner:
    """A new learner; that of a table runs its steps as they are, since an mlp is not worth capturing."""
    is_table = config.network is TableMLP
    return Learner(config, engine=(Eager if is_table else make_engine)(config.device or "cpu"))


def _check_method(given: Any, pace: dict[str, Any]) -> Method:
    """A method; `pace` has the parameters that one given by its name gets, and any other has its own."""
    hyperparameters = None
    if isinstance(given, str):
        updates = pace["updates_per_sample"]
        check_updates(updates)
        batch, measure = (whole_number(name, pace[name], 1) for name in ("batch_size", "measure_every"))
        hyperparameters = Hyperparameters(batch=batch, updates_per_sample=updates, measure_every=measure)
    elif pace != PACE:
        changed = ", ".join(f"{name}={value!r}" for name, value in pace.items() if value != PACE[name])
        raise InputError(
            f"{changed} is only for a method given by its name; leave it out, or set it in the method, as in "
            "clib(Hyperparameters(batch=32))."
        )
    made = method_named(given, hyperparameters)
    if made.refit is not None:
        raise InputError(
            f"The method {made.name} trains a network when it predicts, which an estimator must not do; use another, "
            "such as clib or er, or run it as an experiment."
        )
    if not made.readout.learns:
        check_updates(made.pace.updates_per_sample)
    return made


def _check_network(given: Any, shape: Shape | None) -> str:
    key = network_key(("mlp" if shape is None else "convnet") if given is None else given)
    if shape is None and key != "mlp":
        raise InputError(
            f"network={key!r} looks at images, but X is a table of numbers: give shape=(channels, height, width) if "
            "its rows are pixels, or leave the network out."
        )
    return key


def _check_augment(given: Any, network: str, shape: Shape | None, freeze: str) -> Transforms | None:
    if given is not None and shape is None:
        raise InputError(f"augment={given!r} changes images, but X is a table of numbers; leave it out.")
    keeps_pixels = shape is None or freeze != "body"
    is_still = shape is None or network.partition(":")[0] == "mlp"  # an mlp does not know which pixels are neighbours
    return NO_AUGMENT if given is None and keeps_pixels and is_still else given


def _to_arrays(state: Any) -> Any:
    """Tensors as numpy arrays, which share their memory on a CPU."""
    return _each(state, torch.Tensor, lambda tensor: tensor.detach().cpu().numpy())


def _to_tensors(state: Any) -> Any:
    """Arrays as tensors, copied."""
    return _each(state, np.ndarray, lambda array: torch.from_numpy(array.copy()))


def _each(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The same nested dicts and lists with every value of this kind changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {name: _each(item, kind, change) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_each(item, kind, change) for item in value)
    return value

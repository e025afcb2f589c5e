"""What a Dataset accepts, refuses and computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from iblurry.data.dataset import Dataset, LabelledImages, mean_and_std
from iblurry.errors import InputError


def images(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def made(**changes: Any) -> Dataset:
    fields: dict[str, Any] = {
        "name": "tiny",
        "classes": ("a", "b"),
        "train": LabelledImages(images(3, 1, 2, 2), np.array([0, 1, 1])),
        "test": LabelledImages(images(1, 1, 2, 2, seed=1), np.array([1])),
        "mean": (0.5,),
        "std": (0.25,),
    }
    return Dataset(**fields | changes)


@pytest.mark.parametrize(
    "pixels, labels, words",
    [
        (images(2, 4, 4), np.array([0, 0]), r"\(N, C, H, W\)"),
        (images(2, 1, 4, 4).astype(np.float32), np.array([0, 0]), "float32"),
        (images(2, 1, 4, 4), np.array([0, 0], dtype=np.int32), "int32"),
        (images(2, 1, 4, 4), np.array([[0, 0]]), r"\(1, 2\)"),
        (images(2, 1, 4, 4), np.array([0]), "2 images but 1 labels"),
    ],
)
def test_labelled_refuses(pixels: np.ndarray, labels: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        LabelledImages(pixels, labels)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"classes": ("a", "a")}, "'a' and 'a' look the same"),
        ({"classes": ("caf\u00e9", "cafe\u0301")}, r"'caf\\xe9' and 'cafe\\u0301' look the same"),
        ({"classes": ("a", "\x1b[2J")}, r"label '\\x1b\[2J' has U\+001B"),
        ({"classes": ("a", "")}, "'' has no visible character"),
        ({"classes": ("a",)}, "0 to 1, but 1 classes"),
        ({"train": LabelledImages(images(1, 1, 2, 2), np.array([-1]))}, "-1 to -1"),
        ({"train": LabelledImages(images(0, 1, 2, 2), np.zeros(0, np.int64))}, "no training images"),
        ({"test": LabelledImages(images(1, 1, 2, 3), np.array([0]))}, "resize them"),
        ({"mean": (0.5, 0.5)}, "1 means"),
        ({"std": (0.0,)}, "positive"),
        ({"mean": (float("nan"),)}, "finite"),
    ],
)
def test_dataset_refuses(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(**changes)


def test_fingerprint_sees_all_content_and_nothing_else() -> None:
    def reshaped(part: LabelledImages) -> LabelledImages:
        return LabelledImages(part.images.reshape(-1, 1, 1, 4), part.labels)

    base = made()
    assert made().fingerprint() == base.fingerprint()
    assert made(name="copy").fingerprint() == base.fingerprint()
    pixels = base.train.images.copy()
    pixels[2, 0, 1, 1] ^= 1
    others = [
        made(classes=("a", "c")),
        made(mean=(0.51,)),
        made(std=(0.26,)),
        made(train=LabelledImages(pixels, base.train.labels)),
        made(train=LabelledImages(base.train.images, np.array([0, 1, 0]))),
        made(train=reshaped(base.train), test=reshaped(base.test)),
        made(train=base.test, test=base.train),
    ]
    prints = {data.fingerprint() for data in [base, *others]}
    assert len(prints) == len(others) + 1
    turned = LabelledImages(np.asfortranarray(base.train.images), base.train.labels)
    assert made(train=turned).fingerprint() == base.fingerprint()


def test_layouts_give_the_same_images() -> None:
    chw = images(4, 3, 5, 6)
    for given in (chw, chw.transpose(0, 2, 3, 1), chw / 255.0, (chw / 255).astype(np.float32), chw.astype(np.int64)):
        data = Dataset.from_arrays(given, [0, 1, 0, 1], given[:1], [0])
        np.testing.assert_array_equal(data.train.images, chw)
    grey = Dataset.from_arrays(chw[:, 0], [0, 1, 0, 1], chw[:1, 0], [0])
    np.testing.assert_array_equal(grey.train.images, chw[:, :1])
    assert data.train.images.flags.c_contiguous
    assert data.train.images.dtype == np.uint8


def test_an_ambiguous_layout_must_be_named() -> None:
    both = images(2, 3, 4, 3)
    with pytest.raises(InputError, match="both"):
        Dataset.from_arrays(both, [0, 1], both, [0, 1])
    with pytest.raises(InputError, match="neither"):
        Dataset.from_arrays(images(2, 4, 4, 4), [0, 1], both, [0, 1])
    assert Dataset.from_arrays(both, [0, 1], both, [0, 1], layout="NCHW").shape == (3, 4, 3)
    assert Dataset.from_arrays(both, [0, 1], both, [0, 1], layout="NHWC").shape == (3, 3, 4)
    with pytest.raises(InputError, match="'CHW' is not known"):
        Dataset.from_arrays(both, [0, 1], both, [0, 1], layout="CHW")


@pytest.mark.parametrize(
    "train, test, classes, names, positions",
    [
        ([7, 3, 7], [3], None, ("3", "7"), [1, 0, 1]),
        (["cat", "ant", "cat"], ["ant"], None, ("ant", "cat"), [1, 0, 1]),
        ([b"cat", b"ant", b"cat"], [b"ant"], None, ("ant", "cat"), [1, 0, 1]),
        (np.array(["cat", "ant", "cat"], dtype=object), ["ant"], None, ("ant", "cat"), [1, 0, 1]),
        (["cat", "ant", "cat"], ["ant"], ["cat", "ant", "bee"], ("cat", "ant", "bee"), [0, 1, 0]),
        ([2, 0, 2], [1], ["x", "y", "z"], ("x", "y", "z"), [2, 0, 2]),
        ([[2], [0], [2]], [[1]], None, ("0", "1", "2"), [2, 0, 2]),
        ([10, 9, 9], [9], None, ("9", "10"), [1, 0, 0]),
    ],
)
def test_labels_become_positions(
    train: Any, test: Any, classes: Any, names: tuple[str, ...], positions: list[int]
) -> None:
    data = Dataset.from_arrays(images(3, 4, 4), train, images(1, 4, 4), test, classes=classes)
    assert data.classes == names
    assert data.train.labels.tolist() == positions
    assert data.train.labels.dtype == np.int64


@pytest.mark.parametrize(
    "train_images, train_labels, extra, words",
    [
        (images(2, 4, 4), [0.5, 1.0], {}, "float64"),
        (images(2, 4, 4), ["a", "b"], {}, "different types"),
        (images(2, 4, 4), [0, 5], {"classes": ["a", "b"]}, "0 to 5"),
        (images(2, 4, 4) * 1.0, [0, 1], {}, r"must lie in \[0, 1\]"),
        (np.full((2, 4, 4), np.nan), [0, 1], {}, "nan"),
        (images(2, 4, 4).astype(np.int64) + 200, [0, 1], {}, r"must lie in \[0, 255\]"),
        (np.zeros((2, 4, 4), dtype=bool), [0, 1], {}, "bool"),
        (images(2, 4, 4), [1, True], {}, "True.*row 1"),
        (images(2, 4, 4), [1, "a"], {}, "'a'.*row 1"),
        (images(2, 4, 4), [True, False], {}, "bool"),
        (images(4, 4), [0, 1], {}, r"\(4, 4\)"),
        ([[[1]], [[1, 2]]], [0, 1], {}, "cannot become"),
        (images(0, 4, 4), [], {}, "no training images"),
        (images(2, 4, 4), [0, 1, 1], {}, "2 images but 3 labels"),
    ],
)
def test_from_arrays_refuses(train_images: Any, train_labels: Any, extra: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Dataset.from_arrays(train_images, train_labels, images(1, 4, 4), [0], **extra)


def test_an_empty_test_part_is_fine() -> None:
    data = Dataset.from_arrays(images(2, 4, 4), ["x", "y"], images(0, 4, 4), [])
    assert len(data.test) == 0
    assert data.classes == ("x", "y")
    with pytest.raises(InputError, match="'y'"):
        Dataset.from_arrays(images(2, 4, 4), ["x", "y"], images(0, 4, 4), [], classes=["x"])


def test_moments_are_those_of_numpy() -> None:
    pixels = images(50, 3, 7, 5)
    mean, std = mean_and_std(pixels)
    np.testing.assert_allclose(mean, (pixels / 255).mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, (pixels / 255).std(axis=(0, 2, 3)), rtol=1e-12)
    assert mean_and_std(np.full((2, 1, 3, 3), 51, dtype=np.uint8)) == ((pytest.approx(0.2),), (1.0,))
    data = Dataset.from_arrays(pixels, np.arange(50) % 2, pixels, np.arange(50) % 2, mean=[0, 0, 0])
    assert data.mean == (0, 0, 0)
    assert data.std == std


def test_tensors_are_taken_as_they_are() -> None:
    pixels = torch.rand(4, 3, 6, 6)
    data = Dataset.from_arrays(pixels, torch.tensor([0, 1, 2, 0]), pixels[:1], torch.tensor([2]))
    np.testing.assert_array_equal(data.train.images, np.rint(pixels.numpy() * 255))
    with pytest.raises(InputError, match="requires grad"):
        Dataset.from_arrays(pixels.requires_grad_(), [0, 1, 2, 0], pixels, [0])


def test_labels_of_two_kinds_of_whole_numbers_stay_exact() -> None:
    large = 2**63 + 1
    pixels = images(2, 4, 4)
    data = Dataset.from_arrays(pixels, np.array([large, large - 1], np.uint64), pixels, np.array([-1, 2**53 + 1]))
    assert data.classes == ("-1", str(2**53 + 1), str(large - 1), str(large))
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([3, 2], [0, 1])

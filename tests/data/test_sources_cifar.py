"""CIFAR in all its forms, made small: five batches of four images instead of ten thousand."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from iblurry.data.sources import cifar
from iblurry.data.sources.cifar import CIFAR10, CIFAR100, cifar10, cifar100
from iblurry.errors import DataError
from iblurry.streams import published

ROWS = 4
BATCHES = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "TRAIN", 5 * ROWS)
    monkeypatch.setattr(cifar, "TEST", ROWS)


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (6, ROWS, 3072), dtype=np.uint8)  # planes of red, green, blue


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(2).integers(0, 10, (6, ROWS))


def python2(held: Any) -> bytes:
    """The bytes Python 2 and its NumPy wrote: protocol 2, byte strings, numpy.core."""
    return b"\x80\x02" + _code(held) + b"."


def _code(held: Any) -> bytes:
    if held is None:
        return b"N"
    if isinstance(held, bool):
        return b"\x88" if held else b"\x89"
    if isinstance(held, int):
        return b"J" + struct.pack("<i", held)
    if isinstance(held, bytes):
        return b"T" + struct.pack("<i", len(held)) + held
    if isinstance(held, list):
        return b"](" + b"".join(map(_code, held)) + b"e"
    if isinstance(held, tuple):
        return b"(" + b"".join(map(_code, held)) + b"t"
    if isinstance(held, dict):
        return b"}(" + b"".join(_code(key) + _code(value) for key, value in held.items()) + b"u"
    assert isinstance(held, np.ndarray)
    kind = b"cnumpy\ndtype\n" + _code((b"u1", 0, 1)) + b"R" + _code((3, b"|", None, None, None, -1, -1, 0)) + b"b"
    state = b"(" + _code(1) + _code(held.shape) + kind + _code(False) + _code(held.tobytes()) + b"t"
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _code((0,)) + _code(b"b") + b"tR"
    return empty + state + b"b"


def write_python(root: Path, pixels: np.ndarray, labels: np.ndarray, dump: Callable[[Any], bytes] = python2) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, image, label in zip(BATCHES, pixels, labels, strict=True):
        held = {b"batch_label": b"one", b"labels": label.tolist(), b"data": image, b"filenames": [b"x.png"] * ROWS}
        (root / name).write_bytes(dump(held))
    meta = {b"num_cases_per_batch": ROWS, b"label_names": [name.encode() for name in CIFAR10.classes]}
    (root / "batches.meta").write_bytes(dump(meta))


def write_binary(root: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    root.mkdir(parents=True)
    for name, image, label in zip(BATCHES, pixels, labels, strict=True):
        (root / f"{name}.bin").write_bytes(np.hstack([label[:, None].astype(np.uint8), image]).tobytes())


def write_sprites(root: Path, pixels: np.ndarray, labels: np.ndarray, mode: str = "RGB") -> None:
    root.mkdir(parents=True)
    for name, image in zip(BATCHES, pixels, strict=True):
        sprite = image.reshape(ROWS, 3, 1024).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(sprite)).convert(mode).save(root / f"{name}.png")
    (root / "train_lables.json").write_text(json.dumps(labels[:5].ravel().tolist()))
    (root / "test_lables.json").write_text(json.dumps(labels[5].tolist()))


def pack(root: Path, archive: Path, mode: Any) -> Path:
    with tarfile.open(archive, mode) as tar:
        tar.add(root, arcname="inside/deeper")
    return archive


FORMS = {"python": write_python, "binary": write_binary, "sprites": write_sprites}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", ["folder", "w:gz", "w"])
def test_every_form_gives_the_same(
    form: str, packed: str, pixels: np.ndarray, labels: np.ndarray, tmp_path: Path
) -> None:
    FORMS[form](tmp_path / "files", pixels, labels)
    before = sorted(tmp_path.rglob("*"))
    place = (
        tmp_path if packed == "folder" else pack(tmp_path / "files", tmp_path.parent / f"{form}{len(packed)}", packed)
    )
    data = cifar10(place)
    np.testing.assert_array_equal(data.train.images, pixels[:5].reshape(-1, 3, 32, 32))
    np.testing.assert_array_equal(data.test.images, pixels[5].reshape(-1, 3, 32, 32))
    np.testing.assert_array_equal(data.train.labels, labels[:5].ravel())
    np.testing.assert_array_equal(data.test.labels, labels[5])
    assert data.classes[:3] == ("airplane", "automobile", "bird")
    assert data.mean == (0.4914, 0.4822, 0.4465)
    assert data.std == (0.2023, 0.1994, 0.2010)
    assert sorted(tmp_path.rglob("*")) == before  # nothing was unpacked


def test_python3_pickles_and_rgba_sprites(pixels: np.ndarray, labels: np.ndarray, tmp_path: Path) -> None:
    write_python(tmp_path / "p", pixels, labels, lambda held: pickle.dumps({k.decode(): v for k, v in held.items()}))
    write_sprites(tmp_path / "s", pixels, labels, mode="RGBA")
    assert cifar10(tmp_path / "p").fingerprint() == cifar10(tmp_path / "s").fingerprint()


@pytest.mark.parametrize("form", ["python", "binary"])
def test_cifar100_has_its_fine_labels(form: str, pixels: np.ndarray, tmp_path: Path) -> None:
    fine = np.arange(6 * ROWS).reshape(6, ROWS) * 4
    for name, image, label in (("train", pixels[:5].reshape(-1, 3072), fine[:5].ravel()), ("test", pixels[5], fine[5])):
        if form == "python":
            held = {b"data": image, b"fine_labels": label.tolist(), b"coarse_labels": [0] * len(label)}
            (tmp_path / name).write_bytes(python2(held))
        else:
            rows = np.hstack([np.zeros((len(label), 1), np.uint8), label[:, None].astype(np.uint8), image])
            (tmp_path / f"{name}.bin").write_bytes(rows.tobytes())
    if form == "python":
        meta = {b"fine_label_names": [name.encode() for name in CIFAR100.classes], b"coarse_label_names": []}
        (tmp_path / "meta").write_bytes(python2(meta))
    data = cifar100(tmp_path)
    np.testing.assert_array_equal(data.train.labels, fine[:5].ravel())
    np.testing.assert_array_equal(data.test.images, pixels[5].reshape(-1, 3, 32, 32))
    assert len(data.classes) == 100
    assert (data.classes[0], data.classes[47], data.classes[99]) == ("apple", "maple_tree", "worm")
    assert data.mean == (0.5071, 0.4867, 0.4408)


def write_pngs(root: Path, files: dict[str, np.ndarray]) -> None:
    for name, image in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(image.reshape(3, 32, 32).transpose(1, 2, 0))).save(root / name)


class TestFilesByClass:
    """train/<class>/*.png: classes by their numbers in the release, pictures by name, numbers in names by value."""

    TRAIN = ("worm/2.png", "worm/10.png", "apple/b_s_000001.png", "apple/a_s_000012.png", "train/x.PNG")
    IN_ORDER = ("apple/a_s_000012.png", "apple/b_s_000001.png", "train/x.PNG", "worm/2.png", "worm/10.png")

    @pytest.fixture
    def place(self, pixels: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(cifar, "TRAIN", 5)
        monkeypatch.setattr(cifar, "TEST", 2)
        root = tmp_path / "copy"
        train = {f"train/{name}": image for name, image in zip(self.TRAIN, pixels[:, 0], strict=False)}
        write_pngs(root, train | {"test/worm/1.png": pixels[0, 1], "test/bear/7.png": pixels[1, 1]})
        (root / "README.md").write_text("a copy")
        (root / "train" / "worm" / "._2.png").write_bytes(b"of another system")
        return root

    @pytest.mark.parametrize("packed", ["folder", "w:gz"])
    def test_reads(self, packed: str, place: Path, pixels: np.ndarray, tmp_path: Path) -> None:
        data = cifar100(place if packed == "folder" else pack(place, tmp_path / "packed.tgz", packed))
        assert [data.classes[label] for label in data.train.labels] == ["apple", "apple", "train", "worm", "worm"]
        assert [data.classes[label] for label in data.test.labels] == ["bear", "worm"]
        assert data.classes == CIFAR100.classes
        image = dict(zip(self.TRAIN, pixels[:, 0].reshape(-1, 3, 32, 32), strict=False))
        np.testing.assert_array_equal(data.train.images, [image[name] for name in self.IN_ORDER])
        np.testing.assert_array_equal(data.test.images, pixels[[1, 0], 1].reshape(-1, 3, 32, 32))
        assert (data.name, data.mean) == ("cifar100", (0.5071, 0.4867, 0.4408))

    def test_the_published_numbers_name_the_files(self, place: Path, pixels: np.ndarray, tmp_path: Path) -> None:
        (place / "train" / "worm" / "2.png").rename(place / "train" / "worm" / "0001.png")
        (place / "train" / "worm" / "10.png").rename(place / "train" / "worm" / "0002.png")
        listed = [{"klass": "worm", "file_name": f"train/worm/000{number}.png", "label": 0} for number in (2, 1)]
        (tmp_path / "cifar100_split1_n50_m10_rand1_task0.json").write_text(json.dumps(listed))
        data = cifar100(place)
        order = published.read(tmp_path, data, tasks=1, n=50, m=10, seed=1)
        expected = pixels[[1, 0], 0].reshape(-1, 3, 32, 32)  # worm/10.png, worm/2.png
        np.testing.assert_array_equal(data.train.images[order.tasks[0]], expected)

    def test_other_folders_are_refused(self, place: Path, pixels: np.ndarray) -> None:
        with pytest.raises(DataError, match=r"copy .*cifar10: .*train/airplane/\*\.png"):
            cifar10(place)
        (place / "train" / "worm" / "10.png").unlink()
        with pytest.raises(DataError, match="holds 4 training images"):
            cifar100(place)
        Image.new("RGB", (64, 64)).save(place / "train" / "worm" / "10.png")
        with pytest.raises(DataError, match=r"worm/10\.png is 64 x 64 pixels"):
            cifar100(place)


class TestDamage:
    @pytest.fixture
    def python(self, pixels: np.ndarray, labels: np.ndarray, tmp_path: Path) -> Path:
        write_python(tmp_path / "py", pixels, labels)
        return tmp_path / "py"

    @pytest.mark.parametrize(
        "damage", [lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-50])]
    )
    def test_a_batch_that_is_missing_or_cut_short(self, python: Path, damage: Callable[[Path], object]) -> None:
        damage(python / "data_batch_3")
        with pytest.raises(DataError, match="data_batch_3"):
            cifar10(python)

    def test_malicious_batch(self, python: Path, tmp_path: Path) -> None:
        class Bad:
            def __reduce__(self) -> Any:
                return os.system, (f"touch {tmp_path / 'ran'}",)

        (python / "test_batch").write_bytes(pickle.dumps({"data": Bad()}))
        with pytest.raises(DataError, match=r"test_batch .* asks for .*system"):
            cifar10(python)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        "held, words",
        [
            ({b"data": np.zeros((ROWS, 3072), np.uint8)}, "has no 'labels'"),
            ({b"data": np.zeros((ROWS, 10), np.uint8), b"labels": [0] * ROWS}, "3072 columns"),
            ({b"data": [1, 2], b"labels": [0] * ROWS}, "3072 columns"),
            ({b"data": np.zeros((ROWS, 3072), np.uint8), b"labels": [b"a"] * ROWS}, "list of numbers"),
            ({b"data": np.zeros((ROWS, 3072), np.uint8), b"labels": [99] * ROWS}, "not the original cifar10"),
            ({b"data": np.zeros((ROWS - 1, 3072), np.uint8), b"labels": [0] * (ROWS - 1)}, "incomplete"),
            ([1, 2], "has no 'data' and no 'labels'"),
        ],
    )
    def test_wrong_content(self, python: Path, held: Any, words: str) -> None:
        (python / "test_batch").write_bytes(python2(held))
        with pytest.raises(DataError, match=words):
            cifar10(python)

    def test_other_class_names_and_two_copies(self, python: Path) -> None:
        (python / "again").mkdir()
        (python / "again" / "data_batch_2").write_bytes(b"")
        with pytest.raises(DataError, match="data_batch_2 2 times"):
            cifar10(python)
        (python / "batches.meta").write_bytes(python2({b"label_names": [b"x", b"y"]}))
        with pytest.raises(DataError, match="x, y"):
            cifar10(python)

    def test_truncated_binary(self, pixels: np.ndarray, labels: np.ndarray, tmp_path: Path) -> None:
        write_binary(tmp_path / "b", pixels, labels)
        file = tmp_path / "b" / "data_batch_5.bin"
        raw = file.read_bytes()
        file.write_bytes(raw[:-1])
        with pytest.raises(DataError, match=r"data_batch_5\.bin .* not a multiple of 3,073"):
            cifar10(tmp_path)
        file.write_bytes(raw[:-3073])
        with pytest.raises(DataError, match="holds 19 training images"):
            cifar10(tmp_path)

    def test_wrong_sprites(self, pixels: np.ndarray, labels: np.ndarray, tmp_path: Path) -> None:
        root = tmp_path / "s"
        write_sprites(root, pixels, labels)
        (root / "test_lables.json").write_text("[1, 2")
        with pytest.raises(DataError, match=r"test_lables\.json .* is not readable JSON"):
            cifar10(root)
        (root / "test_lables.json").write_text('["a"]')
        with pytest.raises(DataError, match="not a list of whole numbers"):
            cifar10(root)
        Image.new("RGB", (1000, ROWS)).save(root / "test_batch.png")
        with pytest.raises(DataError, match="1000 pixels wide"):
            cifar10(root)
        (root / "test_batch.png").write_bytes((root / "data_batch_1.png").read_bytes()[:200])
        with pytest.raises(DataError, match=r"test_batch\.png .* is not a readable picture"):
            cifar10(root)

    def test_archives(self, python: Path, tmp_path: Path) -> None:
        whole = pack(python, tmp_path / "whole.tar.gz", "w:gz").read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"text", whole[:50] + b"\0" * 50 + whole[100:]):
            (tmp_path / "cut.tar.gz").write_bytes(damaged)
            with pytest.raises(DataError, match=r"cut\.tar\.gz cannot be read as a tar or zip"):
                cifar10(tmp_path / "cut.tar.gz")
        with tarfile.open(tmp_path / "other.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("readme"), io.BytesIO())
        with pytest.raises(DataError, match=r"other\.tar is not a copy of cifar10"):
            cifar10(tmp_path / "other.tar")
        with pytest.raises(DataError, match="There is no file or folder"):
            cifar10(tmp_path / "nowhere")

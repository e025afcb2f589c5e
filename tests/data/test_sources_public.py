"""MNIST, Fashion-MNIST, SVHN, CORe50 and Tiny ImageNet, made small."""

from __future__ import annotations

import gzip
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat, savemat

from iblurry.data.load import load
from iblurry.data.sources import folder as tiny
from iblurry.data.sources.mnist import FILES, fashion_mnist, mnist, svhn
from iblurry.errors import DataError


class TestFashion:
    @pytest.fixture
    def values(self) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        shapes = [(20, 28, 28), (20,), (10, 28, 28), (10,)]
        return [rng.integers(0, 256 if len(shape) == 3 else 10, shape, dtype=np.uint8) for shape in shapes]

    @pytest.fixture
    def place(self, values: list[np.ndarray], tmp_path: Path) -> Path:
        for name, value in zip(FILES, values, strict=True):
            head = bytes((0, 0, 8, value.ndim)) + struct.pack(f">{value.ndim}I", *value.shape)
            (tmp_path / name).write_bytes(head + value.tobytes())
        return tmp_path

    @pytest.mark.parametrize("packed", [False, True])
    def test_reads(self, packed: bool, values: list[np.ndarray], place: Path) -> None:
        for name in FILES if packed else ():
            (place / f"{name}.gz").write_bytes(gzip.compress((place / name).read_bytes()))
            (place / name).unlink()
        data = fashion_mnist(place)
        np.testing.assert_array_equal(data.train.images[:, 0], values[0])
        np.testing.assert_array_equal(data.train.labels, values[1])
        np.testing.assert_array_equal(data.test.images[:, 0], values[2])
        np.testing.assert_array_equal(data.test.labels, values[3])
        assert data.classes[9] == "Ankle boot"
        digits = mnist(place)
        assert (digits.name, digits.classes[9]) == ("mnist", "nine")
        np.testing.assert_array_equal(digits.test.images, data.test.images)

    @pytest.mark.parametrize(
        "damage, words",
        [
            (lambda raw: raw[:-1], r"15679"),
            (lambda raw: raw + b"\0", "holds 15681"),
            (lambda raw: b"\0\0\x08\x01" + raw[4:], "starts with 00000801, not 00000803"),
            (lambda raw: raw[:9], "starts with"),
            (lambda _: b"", "starts with"),
        ],
    )
    def test_damage(self, damage: object, words: str, place: Path) -> None:
        file = place / FILES[0]
        file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
        with pytest.raises(DataError, match=f"{FILES[0]} .*{words}"):
            fashion_mnist(place)

    def test_other_damage(self, place: Path) -> None:
        whole = gzip.compress((place / FILES[2]).read_bytes())
        (place / FILES[2]).unlink()
        for damaged in (whole[:-100], b"text", whole[:60] + b"\xff\xff" + whole[62:]):
            (place / f"{FILES[2]}.gz").write_bytes(damaged)
            with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz"):
                fashion_mnist(place)
        (place / f"{FILES[2]}.gz").unlink()
        with pytest.raises(DataError, match=r"has no file t10k-images-idx3-ubyte\.gz"):
            fashion_mnist(place)
        (place / FILES[2]).write_bytes((place / FILES[0]).read_bytes())
        with pytest.raises(DataError, match="20 test images but 10 labels"):
            fashion_mnist(place)


class TestSvhn:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        rng = np.random.default_rng(0)
        for part, count in (("train", 12), ("test", 5)):
            labels = (np.arange(count, dtype=np.uint8) % 10 + 1)[:, None]
            pixels = rng.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
            savemat(tmp_path / f"{part}_32x32.mat", {"X": pixels, "y": labels}, do_compression=True)
        return tmp_path

    def test_reads(self, place: Path) -> None:
        data = svhn(place)
        assert data.train.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
        assert (data.classes[0], len(data.test)) == ("zero", 5)
        published = loadmat(place / "train_32x32.mat")["X"]
        np.testing.assert_array_equal(data.train.images[7], published[..., 7].transpose(2, 0, 1))

    def test_refuses(self, place: Path) -> None:
        file = place / "test_32x32.mat"
        whole = file.read_bytes()
        for damaged in (whole[:200], whole[:1000], b"", b"text" * 99):
            file.write_bytes(damaged)
            with pytest.raises(DataError, match=r"test_32x32\.mat in .* is not a readable"):
                svhn(place)
        X = np.zeros((32, 32, 3, 2), np.uint8)
        for wrong in ({"X": X, "y": [0, 1]}, {"X": X, "y": [1, 2, 3]}, {"X": X / 1.0, "y": [1, 2]}):
            savemat(file, wrong)
            with pytest.raises(DataError, match="labels y of 1 to 10"):
                svhn(place)
        file.unlink()
        with pytest.raises(DataError, match=r"has no file test_32x32\.mat"):
            svhn(place)


class TestCore50:
    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for session in (1, 3, 10, 11):
            for thing in (1, 2, 50):
                folder = tmp_path / "core50_128x128" / f"s{session}" / f"o{thing}"
                folder.mkdir(parents=True)
                Image.new("RGB", (16, 16), (session, thing, 0)).save(folder / f"C_{session:02}_{thing:02}_000.png")
        monkeypatch.setattr(tiny, "CORE50_TRAIN", 6)
        monkeypatch.setattr(tiny, "CORE50_TEST", 6)
        return tmp_path

    @pytest.mark.parametrize("lazy", [False, True])
    def test_reads(self, lazy: bool, place: Path) -> None:
        data = load(f"core50:{place},size=16", lazy=lazy)
        assert data.train.images[:][:, 0, 0, 0].tolist() == [1] * 3 + [11] * 3
        assert data.test.images[:][:, 0, 0, 0].tolist() == [3] * 3 + [10] * 3
        assert data.train.labels.tolist() == [0, 1, 49] * 2
        assert (data.classes[1], data.classes[49], len(data.classes)) == ("plug adapter 2", "remote control 5", 50)
        kinds = load(f"core50:{place},size=16,objects=false")
        assert (kinds.train.labels.tolist(), kinds.classes[9]) == ([0, 0, 9] * 2, "remote control")
        assert load(f"core50:{place}").shape == (3, 128, 128)

    def test_refuses_an_incomplete_copy(self, place: Path) -> None:
        (place / "core50_128x128" / "s1" / "o2" / "C_01_02_000.png").unlink()
        with pytest.raises(DataError, match="5 training and 6 test images"):
            load(f"core50:{place}")


class TestTiny:
    WNIDS = ("n02124075", "n01443537")

    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(tiny, "TINY_CLASSES", 2)
        monkeypatch.setattr(tiny, "TINY_TRAIN", 11)
        monkeypatch.setattr(tiny, "TINY_TEST", 2)
        root = tmp_path / "tiny-imagenet-200"
        (root / "val" / "images").mkdir(parents=True)
        (root / "wnids.txt").write_text("\n".join(self.WNIDS) + "\n")
        for at, wnid in enumerate(self.WNIDS):
            images = root / "train" / wnid / "images"
            images.mkdir(parents=True)
            (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
            for number in range(11):
                Image.new("RGB", (64, 64), (100 * at + 8 * number, 0, 250)).save(images / f"{wnid}_{number}.JPEG")
        lines = []
        for number in range(4):
            Image.new("L", (64, 64), 60 * number).save(root / "val" / "images" / f"val_{number}.JPEG")
            lines.append(f"val_{number}.JPEG\t{self.WNIDS[number % 2]}\t0\t0\t10\t10\n")
        (root / "val" / "val_annotations.txt").write_text("".join(lines))
        return root

    def test_reads_in_the_order_of_the_numbers(self, place: Path) -> None:
        data = tiny.tinyimagenet(place)
        assert data.classes == ("n01443537", "n02124075")
        assert data.shape == (3, 64, 64)
        assert data.train.labels.tolist() == [0] * 11 + [1] * 11
        red = data.train.images[:, 0, 5, 5].astype(int)
        np.testing.assert_allclose(red, [100 + 8 * n for n in range(11)] + [8 * n for n in range(11)], atol=3)
        assert data.test.labels.tolist() == [1, 0, 1, 0]
        np.testing.assert_allclose(data.test.images[:, :, 9, 9].astype(int), [[60 * n] * 3 for n in range(4)], atol=2)
        assert data.mean == (0.4802, 0.4481, 0.3975)

    def test_a_zip_is_the_same(self, place: Path, tmp_path: Path) -> None:
        archive = tmp_path / "t.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            for file in sorted(place.rglob("*"), reverse=True):
                packed.write(file, file.relative_to(tmp_path))
        assert tiny.tinyimagenet(archive).fingerprint() == tiny.tinyimagenet(place).fingerprint()
        raw = archive.read_bytes()
        archive.write_bytes(raw.replace(b"\xff\xd8\xff", b"\0\0\0", 1))  # the first picture
        with pytest.raises(DataError, match=r"JPEG in .*t\.zip cannot be read \(Bad CRC"):
            tiny.tinyimagenet(archive)

    def test_damage(self, place: Path) -> None:
        images = place / "train" / self.WNIDS[0] / "images"
        name = f"{self.WNIDS[0]}_3.JPEG"
        whole = (images / name).read_bytes()
        (images / name).write_bytes(whole[:100])
        with pytest.raises(DataError, match=f"{name} is not a readable picture"):
            tiny.tinyimagenet(place)
        (images / name).unlink()
        with pytest.raises(DataError, match=r"10 .* n02124075"):
            tiny.tinyimagenet(place)
        notes = place / "val" / "val_annotations.txt"
        notes.write_text(notes.read_text() + "val_9.JPEG\tn999\t0\n")
        with pytest.raises(DataError, match="'n999', which is not in wnids"):
            tiny.tinyimagenet(place)
        (place / "wnids.txt").write_bytes(b"n\xff\n")  # no text
        with pytest.raises(DataError, match="wnids"):
            tiny.tinyimagenet(place)
        notes.unlink()
        with pytest.raises(DataError, match=r"has no file val_annotations\.txt"):
            tiny.tinyimagenet(place)
        (place / "wnids.txt").unlink()
        with pytest.raises(DataError, match=r"has no file wnids\.txt"):
            tiny.tinyimagenet(place)

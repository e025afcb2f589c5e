"""Pictures on the disk behave like the array they would be in memory."""

from __future__ import annotations

import json
import mmap
import os
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from iblurry.analysis.figures.sheet import dataset_sheet
from iblurry.data.dataset import Dataset, LabelledImages, mean_and_std
from iblurry.data.images import PictureFiles
from iblurry.data.load import load, parse_spec
from iblurry.data.sources.arrays import arrays, save
from iblurry.data.sources.folder import folder, imagenet
from iblurry.errors import DataError, InputError
from iblurry.streams import published
from iblurry.streams.iterator import StreamIterator
from iblurry.streams.order import i_blurry

ORDER = i_blurry(np.arange(9) % 3, tasks=1, disjoint=0, seed=2)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two classes, five training and two test pictures each, 9 x 7 pixels."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 5), ("val", 2)):
        for name in ("n01", "n02"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{name}_{number}.png")
    return tmp_path


@pytest.mark.parametrize("options", [{"size": 6}, {"size": 6, "channels": 1}, {}])
def test_a_lazy_folder_is_the_same_data(place: Path, options: dict[str, int]) -> None:
    whole, lazy = folder(place, **options), folder(place, lazy=True, **options)  # type: ignore[arg-type]
    assert isinstance(lazy.train.images, PictureFiles)
    assert isinstance(whole.train.images, np.ndarray)
    assert (lazy.classes, lazy.shape, lazy.mean, lazy.std) == (whole.classes, whole.shape, whole.mean, whole.std)
    for mine, theirs in ((lazy.train, whole.train), (lazy.test, whole.test)):
        images = mine.images
        assert (images.shape, images.dtype, len(images)) == (theirs.images.shape, np.uint8, len(theirs))
        np.testing.assert_array_equal(mine.labels, theirs.labels)
        for rows in (1, -1, np.int64(2), slice(1, 3), np.array([3, 0, 3]), [1, 2], mine.labels == 1, []):
            chosen = np.array(rows, dtype=np.int64) if isinstance(rows, list) else rows
            np.testing.assert_array_equal(images[chosen], theirs.images[chosen])
            assert images[chosen].flags.c_contiguous
        np.testing.assert_array_equal(np.asarray(images), theirs.images)


def test_how_much_is_decoded_at_once_is_a_matter_of_size(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IBLURRY_EAGER_BYTES", str(14 * 3 * 6 * 6))
    assert isinstance(folder(place, size=6).train.images, np.ndarray)
    assert isinstance(folder(place, size=7).train.images, PictureFiles)
    assert isinstance(folder(place, size=7, lazy=False).train.images, np.ndarray)
    monkeypatch.setenv("IBLURRY_EAGER_BYTES", "4 GiB")
    with pytest.raises(InputError, match="IBLURRY_EAGER_BYTES='4 GiB'"):
        folder(place, size=7)


def test_lazy_in_a_spec(place: Path) -> None:
    assert parse_spec(f"folder:{place},size=5,lazy=true")[2] == {"size": 5, "lazy": True}
    assert isinstance(load(f"folder:{place},size=5,lazy=true").test.images, PictureFiles)
    assert isinstance(load(f"{place}", size=5, lazy=False).test.images, np.ndarray)
    with pytest.raises(InputError, match=r"lazy.*'maybe'"):
        load(f"folder:{place},lazy=maybe")


def test_the_fingerprint_sees_every_file(place: Path) -> None:
    prints = {folder(place, size=6, lazy=True).fingerprint()}
    assert folder(place, size=6, lazy=True).fingerprint() in prints
    file = place / "train" / "n02" / "n02_3.png"
    os.utime(file, (time.time(), file.stat().st_mtime + 1))  # changed in place, to the same size
    prints.add(folder(place, size=6, lazy=True).fingerprint())
    before = file.stat()
    file.write_bytes(file.read_bytes() + b"\0")  # longer, but as old
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    prints.add(folder(place, size=6, lazy=True).fingerprint())
    file.rename(file.with_name("n02_30.png"))
    prints.add(folder(place, size=6, lazy=True).fingerprint())
    prints.add(folder(place, size=5, lazy=True).fingerprint())
    assert len(prints) == 5


def test_a_copy_that_keeps_the_times_is_the_same_data(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("copy")
    for file in sorted(place.rglob("*.png")):
        copy = other / file.relative_to(place)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        os.utime(copy, (file.stat().st_atime, int(file.stat().st_mtime)))
    assert folder(other, lazy=True).fingerprint() == folder(place, lazy=True).fingerprint()


def test_a_file_that_cannot_be_read_is_named(place: Path) -> None:
    images = folder(place, size=6, lazy=True).train.images
    (place / "train" / "n01" / "n01_2.png").write_bytes(b"text")
    (place / "train" / "n01" / "n01_3.png").unlink()
    np.testing.assert_array_equal(images[1], images[np.array([1])][0])
    with pytest.raises(DataError, match=r"n01_2\.png is not a readable picture"):
        images[2]
    with pytest.raises(DataError, match=r"n01_3\.png.*No such file"):
        images[3]
    assert PictureFiles(place, ["train/n01/n01_0.png"], (3, 4, 4))[0].shape == (3, 4, 4)
    with pytest.raises(DataError, match=r"n01_0\.png is 9 x 7 .*size="):
        PictureFiles(place, ["train/n01/n01_0.png"], (3, 4, 4), resized=False)[0]
    with pytest.raises(InputError, match="5 x 4"):
        PictureFiles(place, [], (3, 4, 5))


def test_moments_of_some() -> None:
    images = np.random.default_rng(1).integers(0, 256, (1000, 2, 3, 3), dtype=np.uint8)
    for most, rows in ((None, images), (1000, images), (5000, images), (300, images[np.arange(300) * 1000 // 300])):
        mean, std = mean_and_std(images, limit=most)
        assert mean == pytest.approx(rows.mean(axis=(0, 2, 3)) / 255)
        assert std == pytest.approx(rows.std(axis=(0, 2, 3)) / 255)


def test_what_else_is_done_with_data(place: Path, tmp_path: Path) -> None:
    whole, lazy = folder(place), folder(place, lazy=True)
    assert dataset_sheet(lazy).tobytes() == dataset_sheet(whole).tobytes()
    save(lazy, tmp_path / "saved.npz")
    assert arrays(tmp_path / "saved.npz").fingerprint() == whole.fingerprint()
    with pytest.raises(InputError, match="There are 10 images but 9 labels"):
        LabelledImages(lazy.train.images, lazy.train.labels[:9])
    empty = LabelledImages(PictureFiles(place, [], lazy.shape, resized=False), lazy.test.labels[:0])
    assert Dataset("none", lazy.classes, lazy.train, empty, lazy.mean, lazy.std).shape == (3, 7, 9)


def test_mapped_arrays_stay_on_the_disk(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 3, 4, 4), dtype=np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    labels = np.arange(9) % 3
    data, plain = (Dataset.from_arrays(x, labels, x, labels) for x in (mapped, pixels))
    assert np.shares_memory(data.train.images, mapped)
    assert (data.fingerprint(), data.mean, data.std) == (plain.fingerprint(), plain.mean, plain.std)
    for mine, theirs in zip(StreamIterator(data, ORDER), StreamIterator(plain, ORDER), strict=True):
        np.testing.assert_array_equal(mine.image, theirs.image)
        assert mine.image.flags.c_contiguous


def test_a_large_npz_stays_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("shapes:classes=3,train=4,test=2")
    save(data, tmp_path / "s.npz")
    taken = data.train.images.nbytes + data.test.images.nbytes + 2 * 128  # and the two headers
    for limit, on_disk in ((taken, False), (taken - 1, True)):
        monkeypatch.setenv("IBLURRY_EAGER_BYTES", str(limit))
        back = arrays(tmp_path / "s.npz")
        assert isinstance(root(back.train.images), mmap.mmap) == on_disk
        assert back.fingerprint() == data.fingerprint()
        np.testing.assert_array_equal(back.test.images[np.array([4, 0])], data.test.images[np.array([4, 0])])
    for write in (np.savez, np.savez_compressed):  # what is packed can only be read whole
        images = {"x_train": np.asfortranarray(data.train.images), "x_test": data.test.images[:0]}
        write(tmp_path / "f.npz", **images, y_train=data.train.labels, y_test=[], layout="NCHW")
        back = arrays(tmp_path / "f.npz")
        np.testing.assert_array_equal(back.train.images, data.train.images)
        assert len(back.test) == 0
    whole = (tmp_path / "s.npz").read_bytes()
    (tmp_path / "s.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a readable"):
        arrays(tmp_path / "s.npz")


def root(view: np.ndarray) -> object:
    """What the memory of an array belongs to."""
    while isinstance(view, np.ndarray) and view.base is not None:
        view = view.base
    return view


class TestImageNet:
    def test_sorted_val(self, place: Path) -> None:
        data = load(f"imagenet:{place},size=8,lazy=true")
        assert (data.name, data.classes, data.shape) == ("imagenet", ("n01", "n02"), (3, 8, 8))
        assert data.mean == (0.485, 0.456, 0.406)
        assert isinstance(data.train.images, PictureFiles)
        other = folder(place, size=8)
        for mine, theirs in ((data.train, other.train), (data.test, other.test)):
            np.testing.assert_array_equal(mine.labels, theirs.labels)
            np.testing.assert_array_equal(np.asarray(mine.images), theirs.images)
        (place / "val" / "n02").rename(place / "val" / "n03")
        with pytest.raises(DataError, match=r"'n03'"):
            imagenet(place)

    def test_as_published(self, place: Path) -> None:
        inside = place / "ILSVRC" / "Data" / "CLS-LOC"
        inside.mkdir(parents=True)
        (place / "train").rename(inside / "train")
        (inside / "val").mkdir()
        lines = ["ImageId,PredictionString"]
        for number, wnid in enumerate(["n02", "n01", "n02"]):
            Image.new("RGB", (5, 5), (60 * number, 0, 0)).save(inside / "val" / f"ILSVRC2012_val_{number:08}.JPEG")
            lines.append(f"ILSVRC2012_val_{number:08},{wnid} 1 2 3 4 {wnid} 5 6 7 8")
        with pytest.raises(DataError, match=r"LOC_val_solution\.csv"):
            imagenet(place)
        (place / "LOC_val_solution.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
        data = imagenet(place, size=4)
        assert data.test.labels.tolist() == [1, 0, 1]
        np.testing.assert_allclose(data.test.images[:, 0, 2, 2].astype(int), [0, 60, 120], atol=3)
        (place / "LOC_val_solution.csv").write_text("\n".join([*lines[:2], lines[2].replace("n01", "n09")]))
        with pytest.raises(DataError, match=r"val_00000001\.JPEG .*'n09'"):
            imagenet(place)

    def test_published_sets_go_by_the_names_of_files(self, place: Path, tmp_path: Path) -> None:
        for file in (place / "train").rglob("*.png"):  # numbers with gaps, as ImageNet's are
            wnid, number = file.stem.split("_")
            file.rename(file.with_name(f"{wnid}_{3 * int(number) + 1}.JPEG"))
        data = imagenet(place, size=4, lazy=True)
        order = i_blurry(data.train.labels, tasks=2, disjoint=0, blur=50, seed=1)
        published.export(order, data, tmp_path / "sets", seed=1, n=0, m=50)
        records = json.loads((tmp_path / "sets" / "imagenet_split2_n0_m50_rand1_task0.json").read_text())
        assert [record["file_name"] for record in records] == [data.train.images.names[i] for i in order.tasks[0]]
        assert published.read(tmp_path / "sets", data, tasks=2, n=0, m=50, seed=1) == order
        records[0]["file_name"] = "train/n01/n01_2.JPEG"  # no such file, though there is a third of its class
        records[0]["klass"] = "n01"
        (tmp_path / "sets" / "imagenet_split2_n0_m50_rand1_task0.json").write_text(json.dumps(records))
        with pytest.raises(DataError, match=r"n01_2\.JPEG"):
            published.read(tmp_path / "sets", data, tasks=2, n=0, m=50, seed=1)
        with pytest.raises(InputError, match="load it with lazy=true"):
            published.read(tmp_path / "sets", imagenet(place, size=4), tasks=2, n=0, m=50, seed=1)

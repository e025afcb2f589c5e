"""The sources that are always there: digits, shapes, your own arrays and your own pictures."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.data.sources.arrays import arrays, save
from iblurry.data.sources.digits import digits
from iblurry.data.sources.folder import folder
from iblurry.data.sources.shapes import shapes
from iblurry.errors import DataError, InputError


def test_digits_are_those_of_uci() -> None:
    sklearn = importlib.util.find_spec("sklearn")  # found, not imported: that takes seconds
    if sklearn is None or sklearn.origin is None:
        pytest.skip("scikit-learn, which has a copy of the original, is not installed")
    table = np.loadtxt(Path(sklearn.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images, target = table[:, :64].reshape(-1, 8, 8), table[:, 64]
    data = digits()
    assert data.shape == (1, 8, 8)
    assert len(data.train) + len(data.test) == 1797
    scaled = np.rint(images * 255 / 16).astype(np.uint8)
    original = sorted((int(t), i.tobytes()) for t, i in zip(target, scaled, strict=True))
    parts = [
        (int(t), i.tobytes()) for part in (data.train, data.test) for t, i in zip(part.labels, part.images, strict=True)
    ]
    assert sorted(parts) == original  # each image once, with its label
    assert np.bincount(data.train.labels).tolist() == [140] * 10
    of_class = scaled[target == 3]
    train = data.train.images[data.train.labels == 3, 0]
    places = [next(k for k, image in enumerate(of_class) if (image == one).all()) for one in train]
    assert places == sorted(places)
    assert max(np.diff(places)) == 2  # test images lie evenly between training images, never two together
    assert data.classes[3] == "three"


class TestShapes:
    def test_sizes_and_names(self) -> None:
        data = shapes(classes=23, train=3, test=2, size=9, channels=3)
        assert data.shape == (3, 9, 9)
        assert len(set(data.classes)) == 23
        assert np.bincount(data.train.labels).tolist() == [3] * 23
        assert np.bincount(data.test.labels).tolist() == [2] * 23

    def test_an_image_depends_on_the_seed_and_its_place_only(self) -> None:
        few, many = shapes(classes=2, train=5, test=1), shapes(classes=3, train=70, test=4)
        np.testing.assert_array_equal(few.train.images[:5], many.train.images[:5])
        np.testing.assert_array_equal(few.train.images[5:10], many.train.images[70:75])
        np.testing.assert_array_equal(few.test.images[1], many.test.images[4])
        assert shapes(classes=2, train=5, test=1, seed=1).fingerprint() != few.fingerprint()
        together = np.concatenate([many.train.images, many.test.images])
        assert len(np.unique(together.reshape(len(together), -1), axis=0)) == len(together)

    def test_a_seed_means_the_same_bytes_everywhere(self) -> None:
        data = shapes(classes=12, train=2, test=1, size=9, channels=3, seed=5)
        assert data.fingerprint() == "6e4be866aa8ff5dbe773a78173f1f825"

    def test_noise_has_the_spread_asked_for(self) -> None:
        plain, noisy = (shapes(classes=1, train=64, test=1, noise=noise).train.images / 255 for noise in (0, 0.05))
        middle = (plain > 0.2) & (plain < 0.8)  # where nothing is clipped
        assert (noisy - plain)[middle].std() == pytest.approx(0.05, rel=0.05)
        assert (noisy - plain)[middle].mean() == pytest.approx(0, abs=0.003)

    @pytest.mark.parametrize("wrong", [{"classes": 0}, {"train": 0}, {"size": 2}, {"channels": 2}, {"noise": -1.0}])
    def test_refuses(self, wrong: dict[str, int]) -> None:
        with pytest.raises(InputError, match=f"{next(iter(wrong))}|channels"):
            shapes(**wrong)  # type: ignore[arg-type]


class TestArrays:
    @pytest.mark.parametrize("shape", [(1, 4, 4), (3, 5, 4), (2, 4, 4), (3, 4, 3)])
    def test_what_is_saved_is_read(self, shape: tuple[int, int, int], tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        parts = [LabelledImages(rng.integers(0, 256, (n, *shape), dtype=np.uint8), np.arange(n) % 3) for n in (7, 0)]
        data = Dataset("any", ("ä", "b b", "c"), *parts, mean=(0.1,) * shape[0], std=(1 / 3,) * shape[0])
        save(data, tmp_path / "new" / "mine.npz")
        back = arrays(tmp_path / "new" / "mine.npz")
        assert back.fingerprint() == data.fingerprint()
        assert back.name == "mine"
        assert [file.name for file in (tmp_path / "new").iterdir()] == ["mine.npz"]

    def test_a_file_anyone_can_write(self, tmp_path: Path) -> None:
        pixels = np.random.default_rng(0).random((4, 6, 6, 3))
        np.savez(tmp_path / "x.npz", x_train=pixels, y_train=["b", "a", "b", "a"], x_test=pixels[:1], y_test=["b"])
        data = arrays(tmp_path / "x.npz")
        assert data.classes == ("a", "b")
        assert data.shape == (3, 6, 6)
        assert data.mean == pytest.approx(np.rint(pixels * 255).mean(axis=(0, 1, 2)) / 255)

    def test_a_failed_save_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place = tmp_path / "d.npz"
        save(digits(), place)
        before = place.read_bytes()

        def full(file: io.BufferedWriter, **_: object) -> None:
            file.write(b"half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "savez", full)
        with pytest.raises(Exception, match="is full"):
            save(shapes(classes=2), place)
        assert place.read_bytes() == before
        assert [file.name for file in tmp_path.iterdir()] == ["d.npz"]

    def test_refuses(self, tmp_path: Path) -> None:
        place = tmp_path / "x.npz"
        with pytest.raises(DataError, match="There is no file"):
            arrays(place)
        np.savez(place, x_train=np.zeros((1, 4, 4)), y_train=[0])
        with pytest.raises(DataError, match="x_test, y_test"):
            arrays(place)
        np.savez(place, x_train=np.zeros((1, 4, 4)), y_train=[0.5], x_test=np.zeros((1, 4, 4)), y_test=[0])
        with pytest.raises(DataError, match=r"x\.npz cannot be used: .*float64"):
            arrays(place)
        np.savez(place, **dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), np.array([{}], dtype=object)))
        with pytest.raises(DataError, match="pickle"):
            arrays(place)
        save(digits(), place)
        whole = place.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"nonsense", whole[:500] + b"\xff" * 100 + whole[600:]):
            place.write_bytes(damaged)
            with pytest.raises(DataError, match="not a readable"):
                arrays(place)
        with place.open("wb") as file:
            np.save(file, np.zeros(3))
        with pytest.raises(DataError, match="not a readable"):
            arrays(place)


class TestFolder:
    @pytest.fixture
    def pictures(self, tmp_path: Path) -> Path:
        colours = {"red": (200, 10, 20), "blue": (10, 20, 200)}
        for part, count in (("train", 3), ("val", 1)):
            for name, colour in colours.items():
                (tmp_path / part / name).mkdir(parents=True)
                for number in range(count):
                    Image.new("RGB", (6, 4), colour).save(tmp_path / part / name / f"{number}.png")
        (tmp_path / "train" / "red" / ".hidden").write_text("not a picture")
        return tmp_path

    def test_reads(self, pictures: Path) -> None:
        data = folder(pictures)
        assert data.classes == ("blue", "red")
        assert data.shape == (3, 4, 6)
        assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
        assert data.train.images[3, :, 1, 2].tolist() == [200, 10, 20]
        assert data.test.images[0, :, 0, 0].tolist() == [10, 20, 200]
        assert data.mean == pytest.approx((105 / 255, 15 / 255, 110 / 255))

    def test_resizes_and_turns_grey(self, pictures: Path) -> None:
        Image.new("L", (9, 9), 100).save(pictures / "train" / "red" / "0.png")
        assert folder(pictures).shape == (3, 8, 8)
        data = folder(pictures, size=5, channels=1)
        assert data.shape == (1, 5, 5)
        assert data.train.images[3].min() == data.train.images[3].max() == 100

    def test_refuses(self, pictures: Path) -> None:
        broken = pictures / "train" / "red" / "1.png"
        whole = broken.read_bytes()
        for damaged in (whole[:40], b"", b"text"):
            broken.write_bytes(damaged)
            with pytest.raises(DataError, match=r"red/1\.png is not a readable picture") as said:
                folder(pictures)
            assert "<" not in str(said.value)  # no object that Pillow read from
        broken.write_bytes(whole)
        with pytest.raises(InputError, match="channels=2"):
            folder(pictures, channels=2)
        with pytest.raises(InputError, match="size=0"):
            folder(pictures, size=0)
        (pictures / "val" / "green").mkdir()
        with pytest.raises(DataError, match="'green'"):
            folder(pictures)
        (pictures / "train" / "green").mkdir()
        with pytest.raises(DataError, match="green has no pictures"):
            folder(pictures)
        with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
            folder(pictures / "nowhere")
        for wrong in (-0.1, 1.0):
            with pytest.raises(InputError, match=f"test={wrong}"):
                folder(pictures, test=wrong)
        (pictures / "empty" / ".git").mkdir(parents=True)
        with pytest.raises(DataError, match="has no folders of classes"):
            folder(pictures / "empty")

    @pytest.mark.parametrize("below", ["", "train"])
    def test_splits_each_class_by_a_seed_where_no_test_pictures_are(self, below: str, tmp_path: Path) -> None:
        for name, count in (("a", 10), ("b", 2), ("c", 1), ("train", 4)):
            for number in range(count):
                picture = tmp_path / below / name / f"{number}.png"
                picture.parent.mkdir(parents=True, exist_ok=True)
                Image.new("L", (4, 4), number).save(picture)
        first, again, other = folder(tmp_path), folder(tmp_path), folder(tmp_path, seed=1)
        assert np.bincount(first.test.labels, minlength=4).tolist() == [2, 1, 0, 1]
        assert first.fingerprint() == again.fingerprint() != other.fingerprint()
        shades = [
            (part.labels[row], int(part.images[row].max()))
            for part in (first.train, first.test)
            for row in range(len(part))
        ]
        assert sorted(shades) == [(c, n) for c, count in enumerate((10, 2, 1, 4)) for n in range(count)]
        assert "4 of 17 pictures are the test images" in first.notes[0]
        half = folder(tmp_path, test=0.5)
        assert np.bincount(half.test.labels, minlength=4).tolist() == [5, 1, 0, 2]
        assert len(folder(tmp_path, test=0).test) == 0

    @pytest.mark.parametrize(
        "sizes, chosen",
        [
            ([(6, 4)] * 3, None),
            ([(128, 100)] * 3, None),
            ([(4, 6), (6, 4), (6, 4)], (8, 8)),
            ([(20, 30), (40, 22), (90, 80)], (22, 22)),
            ([(129, 300)] * 3, (64, 64)),
        ],
    )
    def test_a_size_is_chosen_where_there_is_not_one(
        self, sizes: list[tuple[int, int]], chosen: object, tmp_path: Path
    ) -> None:
        (tmp_path / "a").mkdir()
        for number, size in enumerate(sizes):
            Image.new("L", size, 9).save(tmp_path / "a" / f"{number}.png")
        data = folder(tmp_path)
        assert data.shape[1:] == (chosen or sizes[0][::-1])
        assert any("resized" in note for note in data.notes) == (chosen is not None)

    def test_a_picture_on_its_side_counts_as_it_is_shown(self, pictures: Path) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (6, 4)).save(pictures / "train" / "red" / "0.jpg", exif=exif)
        assert folder(pictures).shape == (3, 8, 8)

    def test_links_are_followed_and_said(self, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        outside = tmp_path_factory.mktemp("outside")
        for name in ("file.png", "folder/one.png", "class/two.png"):
            (outside / name).parent.mkdir(exist_ok=True)
            Image.new("RGB", (6, 4)).save(outside / name)
        before = folder(pictures)
        (pictures / "train" / "red" / "inside.png").symlink_to(pictures / "train" / "red" / "0.png")
        (pictures / "train" / "red" / "loop").symlink_to(pictures / "train" / "red")
        within = folder(pictures)
        assert (len(within.train), within.notes) == (len(before.train) + 1, ())
        for place, target in (("red/link.png", "file.png"), ("blue/more", "folder"), ("green", "class")):
            (pictures / "train" / place).symlink_to(outside / target)
        data = folder(pictures)
        assert (len(data.train), data.classes) == (len(before.train) + 4, ("blue", "green", "red"))
        assert "3 pictures are behind links that lead out of the folder, such as" in data.notes[-1]

    @pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "\u202edog", "caf\u00e9", "\udcff"])
    def test_names_that_cannot_be_told_apart_are_refused(self, name: str, pictures: Path) -> None:
        (pictures / "train" / "cafe\u0301").mkdir()
        Image.new("RGB", (6, 4)).save(pictures / "train" / "cafe\u0301" / "0.png")
        assert "caf\u00e9" in folder(pictures).classes
        (pictures / "train" / "red").rename(pictures / "train" / name)
        (pictures / "val" / "red").rename(pictures / "val" / name)
        with pytest.raises(InputError) as said:
            folder(pictures)
        assert (ascii if name.isprintable() else repr)(name) in str(said.value)
        assert str(said.value).isprintable()

    def test_a_hidden_folder_is_said(self, pictures: Path) -> None:
        assert not folder(pictures).notes
        (pictures / "train" / "..x").mkdir()
        assert folder(pictures).notes == ("Hidden folders are left out: '..x'; rename those that are classes.",)

"""Data sets of torch, Hugging Face and pandas, each in one call."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset

from iblurry.data.dataset import Dataset
from iblurry.data.images import PictureFiles
from iblurry.data.picture import to_pixels
from iblurry.data.sources.folder import folder
from iblurry.errors import DataError, InputError, UnknownNameError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)  # (N, H, W, C)
PLANES = PIXELS.transpose(0, 3, 1, 2)
LABELS = [0, 1, 2, 0, 1, 2]


def pictures(pixels=PIXELS):
    return [Image.fromarray(each) for each in pixels]


def encode(picture, kind="PNG", **more):
    file = io.BytesIO()
    picture.save(file, kind, **more)
    return file.getvalue()


@pytest.fixture
def place(tmp_path):
    """The six pictures as train/<class>/<row>.png and, the first three, in test/."""
    for part, rows in (("train", range(6)), ("test", range(3))):
        for row in rows:
            file = tmp_path / part / "abc"[LABELS[row]] / f"{row}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(PIXELS[row]).save(file)
    return tmp_path


class MapStyle:
    """What torch.utils.data.Dataset asks for."""

    def __init__(self, images, labels, **more):
        self.images, self.labels = images, labels
        vars(self).update(more)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return self.images[row], self.labels[row]


class TestTorch:
    def forms(self):
        yield pictures()
        yield PIXELS
        yield PLANES
        yield PLANES / 255.0
        yield torch.from_numpy(PLANES.copy())
        yield (torch.from_numpy(PLANES.copy()) / 255).requires_grad_()
        yield [encode(picture) for picture in pictures()]

    def test_every_form_of_an_image(self):
        for images in self.forms():
            data = Dataset.from_torch(MapStyle(images, LABELS), MapStyle(images, LABELS[:2]))
            np.testing.assert_array_equal(data.train.images, PLANES)
            np.testing.assert_array_equal(data.test.images, PLANES[:2])
            assert (data.classes, data.name) == (("0", "1", "2"), "torch")
            assert data.train.labels.tolist() == LABELS
            whole = Dataset.from_arrays(PLANES, LABELS, PLANES[:2], LABELS[:2])
            assert data.fingerprint() == whole.fingerprint()

    def test_torch_itself(self):
        pairs = TensorDataset(torch.from_numpy(PLANES.copy()), torch.tensor(LABELS))
        found = Dataset.from_torch(Subset(pairs, [3, 1]), ConcatDataset([pairs, pairs]))
        np.testing.assert_array_equal(found.train.images, PLANES[[3, 1]])
        assert len(found.test) == 12

        class Endless(IterableDataset):
            def __iter__(self):
                return iter(pairs)

        for wrong in (DataLoader(pairs), Endless()):
            with pytest.raises(InputError, match=type(wrong).__name__):
                Dataset.from_torch(wrong, pairs)

    def test_class_names_are_kept_also_through_a_subset(self):
        named = MapStyle(PIXELS, LABELS, classes=["ant", "bee", "cat", "dog"])
        subset = MapStyle(PIXELS[:2], LABELS[:2], dataset=named)
        for data in (Dataset.from_torch(named, subset), Dataset.from_torch(subset, None)):
            assert data.classes == ("ant", "bee", "cat", "dog")
        assert Dataset.from_torch(named, None, classes=["x", "y", "z"]).classes == ("x", "y", "z")
        assert Dataset.from_torch(MapStyle(PIXELS, [*"bababa"]), None).classes == ("a", "b")

    def test_parts_that_number_their_classes_differently(self):
        """As two ImageFolders do, one of which lacks a class."""
        train = MapStyle(PIXELS, LABELS, classes=["ant", "bee", "cat"])
        test = MapStyle(PIXELS[:2], [0, 1], classes=["bee", "cat"])
        assert Dataset.from_torch(train, test).test.labels.tolist() == [1, 2]
        with pytest.raises(InputError, match="'wasp'"):
            Dataset.from_torch(train, MapStyle(PIXELS[:2], [0, 1], classes=["bee", "wasp"]))
        with pytest.raises(InputError, match=r"test.*2 classes"):
            Dataset.from_torch(train, MapStyle(PIXELS[:2], [0, 5], classes=["bee", "wasp"]))

    def test_size_and_channels(self):
        grey = MapStyle([Image.fromarray(PIXELS[0, :, :, 0]), PIXELS[1, :, :, 0]], [0, 1])
        assert Dataset.from_torch(grey, None).shape == (1, 5, 4)
        assert Dataset.from_torch(grey, None, channels=3, size=8).shape == (3, 8, 8)
        mixed = Dataset.from_torch(grey, MapStyle(PIXELS[2:4], [0, 1]))  # grey, then colour
        assert mixed.shape == (3, 5, 4)
        assert (mixed.train.images == PIXELS[:2, None, :, :, 0]).all()
        np.testing.assert_array_equal(mixed.test.images, PLANES[2:4])
        for images in (pictures(), PIXELS):  # however they are given
            small = Dataset.from_torch(MapStyle(images, LABELS), None, size=3, channels=1)
            expected = [to_pixels(each, 1, size=(3, 3)) for each in pictures()]
            assert np.abs(small.train.images.astype(int) - expected).max() <= 1
        planes = MapStyle(np.zeros((2, 5, 4, 4), dtype=np.uint8), [0, 1])
        assert Dataset.from_torch(planes, None, layout="NCHW", size=2).shape == (5, 2, 2)

    def test_an_open_picture_is_turned_upright(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        opened = Image.open(io.BytesIO(encode(pictures()[0], exif=exif)))
        data = Dataset.from_torch([(opened, 0)], None)
        np.testing.assert_array_equal(data.train.images[0], np.rot90(PIXELS[0], -1).transpose(2, 0, 1))

    @pytest.mark.parametrize(
        "train, words",
        [
            (None, "NoneType"),
            (5, "int"),
            (iter([]), "iterator"),
            ([], "no training images"),
            ({"a": 1}, "Row 0.*KeyError"),
            ([1, 2], "Row 0.*1"),
            ([(PIXELS[0],)], "Row 0"),
            ([(PIXELS[0], 0), (PIXELS[1], None)], "Row 1.*label"),
            ([(None, 0)], "Row 0.*image"),
            ([(PIXELS[0], 0), (PIXELS[1][:2], 1)], r"image 1.*\(3, 2, 4\).*size="),
            ([(PIXELS[0], 0), ("a.png", 1)], r"image 1.*a\.png"),
            ([(PIXELS[0], 0), (PIXELS[1], "b")], "'b'"),
            ([(PIXELS[0], True), (PIXELS[1], 1)], "True"),
            ([(PIXELS[0], (0, 1))], "labels"),
            ([(PIXELS, 0)], r"\(6, 5, 4, 3\)"),
            ([(PIXELS[0] * 1.0, 0)], r"image 0.*\[0, 1\]"),
            ([(object(), 0)], "image 0.*object"),
            ([(encode(pictures()[0])[:60], 0)], "image 0 is not a readable picture"),
            ([(Image.open(io.BytesIO(encode(pictures()[0])[:60])), 0)], "image 0 is not a readable picture"),
        ],
    )
    def test_what_is_wrong_is_named(self, train, words):
        with pytest.raises(InputError, match=words):
            Dataset.from_torch(train, [])

    @pytest.mark.parametrize("wrong", [{"size": 0}, {"channels": 2}, {"layout": "CHW"}, {"size": True}])
    def test_wrong_options_are_named(self, wrong):
        with pytest.raises(InputError, match=str(next(iter(wrong.values())))):
            Dataset.from_torch(MapStyle(PIXELS, LABELS), None, **wrong)


class TestDataFrame:
    def files(self, place, part):
        return sorted(str(file) for file in (place / part).rglob("*.png"))

    def test_paths_are_the_folder(self, place, monkeypatch):
        expected = folder(place, size=4)
        absolute, relative = (
            [
                pandas.DataFrame({"file": names, "species": [name.split("/")[-2] for name in names]})
                for names in (
                    [name.removeprefix(cut) for name in self.files(place, part)] for part in ("train", "test")
                )
            ]
            for cut in ("", f"{place}/")
        )
        monkeypatch.chdir(place)
        columns = {"path": "file", "label": "species", "size": 4}
        for tables, options in ((absolute, {}), (relative, {}), (relative, {"root": place})):
            for lazy in (None, True):
                data = Dataset.from_dataframe(*tables, **columns, **options, lazy=lazy)
                assert isinstance(data.train.images, PictureFiles) == bool(lazy)
                assert (data.classes, data.mean, data.std) == (expected.classes, expected.mean, expected.std)
                for mine, theirs in ((data.train, expected.train), (data.test, expected.test)):
                    np.testing.assert_array_equal(np.asarray(mine.images), theirs.images)
                    np.testing.assert_array_equal(mine.labels, theirs.labels)
        lazy = [Dataset.from_dataframe(*tables, **columns, lazy=True) for tables in (absolute, relative)]
        assert lazy[0].fingerprint() == lazy[1].fingerprint() == folder(place, size=4, lazy=True).fingerprint()

    def test_many_files_stay_files(self, place, monkeypatch):
        monkeypatch.setenv("IBLURRY_EAGER_BYTES", "100")
        table = pandas.DataFrame({"file": self.files(place, "train"), "label": LABELS})
        data = Dataset.from_dataframe(table, table, path="file", size=4, channels=1)
        assert isinstance(data.train.images, PictureFiles)
        assert data.shape == (1, 4, 4)

    def test_columns_of_images(self):
        for images in (list(PIXELS), pictures(), [encode(picture) for picture in pictures()]):
            data = Dataset.from_dataframe(pandas.DataFrame({"image": images, "label": LABELS}), None, image="image")
            np.testing.assert_array_equal(data.train.images, PLANES)

    def test_pandas(self):
        table = pandas.DataFrame({"pixels": list(PIXELS), "label": [*"bcabca"]})
        data = Dataset.from_dataframe(table[:4], table[4:], image="pixels")  # rows are not numbered from 0
        np.testing.assert_array_equal(data.test.images, PLANES[4:])
        assert (data.classes, data.test.labels.tolist()) == (("a", "b", "c"), [2, 0])
        table["label"] = pandas.Categorical(table["label"], categories=["c", "b", "a", "z"])
        assert Dataset.from_dataframe(table, None, image="pixels").classes == ("c", "b", "a", "z")
        assert Dataset.from_dataframe(table, None, image="pixels").train.labels.tolist() == [1, 0, 2, 1, 0, 2]
        table["label"] = pandas.Categorical([7, 3, 7, 3, 7, 3])
        numbered = Dataset.from_dataframe(table, None, image="pixels")
        assert (numbered.classes, numbered.train.labels.tolist()) == (("3", "7"), [1, 0, 1, 0, 1, 0])
        for missing in (None, float("nan"), pandas.NA):
            table["label"] = pandas.Series(["a", "b", "c", missing, "a", "b"], dtype=object)
            with pytest.raises(InputError, match=r"Row 3.*label"):
                Dataset.from_dataframe(table, None, image="pixels")

    def test_what_is_wrong_is_named(self, place):
        good = pandas.DataFrame({"file": self.files(place, "train"), "label": LABELS})
        for wrong, kind, words in (
            ({"path": "fil"}, UnknownNameError, "'file'"),
            ({"path": "file", "label": "class"}, UnknownNameError, "'class'"),
            ({}, InputError, "path=None, image=None"),
            ({"path": "file", "image": "file"}, InputError, "path='file', image='file'"),
            ({"path": "label"}, InputError, "Row 0.*0"),
        ):
            with pytest.raises(kind, match=words):
                Dataset.from_dataframe(good, good, **wrong)
        for wrong in (None, 3, "table", [1], object()):
            with pytest.raises(InputError):
                Dataset.from_dataframe(wrong, good, path="file")
        with pytest.raises(DataError, match=r"nowhere\.png"):
            Dataset.from_dataframe(pandas.DataFrame({"file": ["nowhere.png"], "label": [0]}), None, path="file")
        with pytest.raises(InputError, match="size="):
            Dataset.from_dataframe(good, good, path="file", size=0)


class Split(list):
    """What of datasets.Dataset is used."""

    def __init__(self, rows, **features):
        super().__init__(rows)
        self.features = features


class TestHuggingFace:
    def test_rows_and_names(self):
        rows = [{"img": each, "fine": label} for each, label in zip(pictures(), LABELS, strict=True)]
        names = SimpleNamespace(names=["ant", "bee", "cat"])
        data = Dataset.from_huggingface(Split(rows, fine=names), Split(rows[:2], fine=names), image="img", label="fine")
        np.testing.assert_array_equal(data.train.images, PLANES)
        assert (data.classes, data.test.labels.tolist(), len(data.test)) == (("ant", "bee", "cat"), [0, 1], 2)

    def test_what_is_wrong_is_named(self):
        rows = [{"image": PIXELS[0], "label": 0}]
        with pytest.raises(InputError, match="train, test"):
            Dataset.from_huggingface({"train": rows, "test": rows}, rows)
        with pytest.raises(InputError, match="generator"):
            Dataset.from_huggingface((row for row in rows), rows)
        with pytest.raises(UnknownNameError, match="'image'"):
            Dataset.from_huggingface(rows, rows, image="imge")
        with pytest.raises(UnknownNameError, match="'labels'"):
            Dataset.from_huggingface(rows, rows, label="labels")
        with pytest.raises(InputError, match="Row 0"):
            Dataset.from_huggingface([1], rows)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")
    def test_datasets_itself(self, place, monkeypatch):
        library = pytest.importorskip("datasets", reason="needs datasets: pip install datasets")
        features = library.Features({"image": library.Image(), "label": library.ClassLabel(names=["a", "b", "c"])})
        deep = Image.fromarray(np.full((5, 4), 1000, dtype=np.uint16))
        held = library.Dataset.from_dict({"image": [*pictures(), deep], "label": [*LABELS, 2]}, features=features)
        for split in (held, held.with_format("numpy")):
            split = split.select(range(6)) if split is not held else split
            data = Dataset.from_huggingface(split, split.select([2]))
            np.testing.assert_array_equal(data.train.images[:6], PLANES)
            assert (data.classes, data.test.labels.tolist()) == (("a", "b", "c"), [2])
        assert (Dataset.from_huggingface(held, None).train.images[6] == 1000 // 256).all()
        with pytest.raises(InputError, match="streaming"):
            Dataset.from_huggingface(held.to_iterable_dataset(), held)
        with pytest.raises(InputError, match="train"):
            Dataset.from_huggingface(library.DatasetDict({"train": held}), held)
        files = sorted(str(file) for file in (place / "train").rglob("*.png"))
        paths = library.Dataset.from_dict({"image": files, "label": [*"aabbcc"]}).cast_column("image", library.Image())
        lazy = Dataset.from_huggingface(paths, None, size=4, lazy=True)
        assert isinstance(lazy.train.images, PictureFiles)
        np.testing.assert_array_equal(np.asarray(lazy.train.images), folder(place, size=4).train.images)
        shouting = paths.with_transform(lambda rows: {**rows, "label": [label.upper() for label in rows["label"]]})
        assert Dataset.from_huggingface(shouting, None).classes == ("A", "B", "C")

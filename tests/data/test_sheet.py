"""The contact sheet shows the images it says it shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from iblurry.data.dataset import Dataset
from iblurry.data.sheet import contact_sheet, save_sheet
from iblurry.data.sources.shapes import shapes
from iblurry.errors import InputError


def test_each_class_has_its_row_of_tiles() -> None:
    colours = np.array([[250, 1, 2], [3, 250, 4], [5, 6, 250]], dtype=np.uint8)
    labels = np.repeat(np.arange(3), [20, 5, 1])
    images = np.broadcast_to(colours[labels][:, :, None, None], (26, 3, 10, 10)).copy()
    data = Dataset.from_arrays(images, labels, images, labels, classes=["red", "green", "blue"])
    sheet = np.asarray(contact_sheet(data, columns=8)).astype(int)
    side = 10 * round(56 / 10)
    tops = []
    for colour, tiles in zip(colours, (8, 5, 1), strict=True):
        found = np.argwhere((sheet == colour).all(axis=2))
        assert len(found) == tiles * side * side
        tops.append(found[0, 0])
    assert tops == sorted(tops)


def test_odd_data_fit(tmp_path: Path) -> None:
    pixels = np.zeros((2, 2, 90, 5), dtype=np.uint8)
    names = ["a" * 60, "ж"]
    data = Dataset.from_arrays(pixels, [0, 0], pixels, [0, 1], classes=names, layout="NCHW")
    save_sheet(data, tmp_path / "deep" / "odd.png", columns=3)
    with Image.open(tmp_path / "deep" / "odd.png") as sheet:
        assert sheet.size[0] > 500
        assert sheet.size[1] > 180


def test_only_png(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ending in \.png, not 'x\.jpg'"):
        save_sheet(shapes(classes=1, train=1, test=0), tmp_path / "x.jpg")

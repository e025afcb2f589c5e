"""Contact sheets show the images that they say they show."""

import numpy as np
import pytest

from iblurry.analysis.figures.sheet import augmentation_sheet, dataset_sheet
from iblurry.augment.autoaugment import OPERATIONS, POLICIES
from iblurry.data.dataset import Dataset
from iblurry.rng import Rng
from tests.augment.pictures import do, pictures
from tests.laws.user_transforms import Brightness, Negative

MARGIN, SPACE, SIDE = 24, 6, 64


def cells(sheet, rows):
    """The images of each of the rows, eleven each, of 64 x 64 pixels that are not enlarged."""
    sheet = np.asarray(sheet)
    down = (sheet.shape[0] - 2 * MARGIN + SPACE) // rows
    lefts = [sheet.shape[1] - MARGIN - SIDE - at * (SIDE + SPACE) for at in range(11)][::-1]
    tops = [MARGIN + at * down for at in range(rows)]
    return [[sheet[top : top + SIDE, left : left + SIDE] for left in lefts] for top in tops]


def test_each_class_has_its_row_of_tiles():
    colours = np.array([[250, 1, 2], [3, 250, 4], [5, 6, 250]], dtype=np.uint8)
    labels = np.repeat(np.arange(3), [20, 5, 1])
    images = np.broadcast_to(colours[labels][:, :, None, None], (26, 3, 10, 10)).copy()
    data = Dataset.from_arrays(images, labels, images, labels, classes=["red", "green", "blue"])
    sheet = np.asarray(dataset_sheet(data, columns=8)).astype(int)
    side = 10 * round(56 / 10)
    tops = []
    for colour, tiles in zip(colours, (8, 5, 1), strict=True):
        found = np.argwhere((sheet == colour).all(axis=2))
        assert len(found) == tiles * side * side
        tops.append(found[0, 0])
    assert tops == sorted(tops)


def test_odd_data_fit():
    pixels = np.zeros((2, 2, 90, 5), dtype=np.uint8)
    names = ["a" * 60, "ж"]
    data = Dataset.from_arrays(pixels, [0, 0], pixels, [0, 1], classes=names, layout="NCHW")
    width, height = dataset_sheet(data, columns=3).size
    assert width > 500
    assert height > 180


def test_a_row_for_each_operation_and_policy():
    """For example rotations: the image as it is, turned by -30 degrees, and in the last cell by 30."""
    images = pictures((3, SIDE, SIDE))[:1]
    rows = cells(augmentation_sheet(images, Rng(1)), len(OPERATIONS) + len(POLICIES))
    rotations = rows[OPERATIONS.index("Rotate")]
    for column, turn in ((0, 0.0), (1, -30.0), (10, 30.0)):
        np.testing.assert_array_equal(rotations[column], do("Rotate", turn, images)[0].transpose(1, 2, 0))


def test_a_row_for_each_transform():
    """The image as it is, then ten draws: half of them the negative, and many shades."""
    images = pictures((3, SIDE, SIDE))[:1]
    negative, bright = cells(augmentation_sheet(images, Rng(1), [Negative(), Brightness()]), 2)
    plain = images[0].transpose(1, 2, 0)
    assert np.array_equal(negative[0], plain)
    assert {int(cell.astype(int).sum()) for cell in negative} == {int(plain.sum()), int((255 - plain).sum())}
    assert len({int(cell.astype(int).sum()) for cell in bright}) > 8


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 20, 34)])
def test_the_seed_decides(shape):
    sheets = [augmentation_sheet(pictures(shape), Rng(seed)).tobytes() for seed in (1, 1, 2)]
    assert sheets[0] == sheets[1] != sheets[2]

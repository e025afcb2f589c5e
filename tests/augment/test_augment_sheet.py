"""The contact sheet shows every operation, and the same for the same seed."""

import numpy as np
import pytest

from iblurry.augment.autoaugment import OPERATIONS
from iblurry.augment.policies import POLICIES
from iblurry.augment.sheet import GAP, LABEL, MARGIN, contact_sheet
from iblurry.rng import Rng
from tests.augment.pictures import do, pictures
from tests.laws.user_transforms import Brightness, Negative


@pytest.mark.quick("shape1")
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 20, 34)])
def test_a_row_for_each_operation_and_policy(shape):
    images = pictures(shape)
    one = contact_sheet(images, Rng(1))
    assert np.array_equal(np.asarray(one), np.asarray(contact_sheet(images, Rng(1))))
    assert not np.array_equal(np.asarray(one), np.asarray(contact_sheet(images, Rng(2))))
    rows = np.asarray(one)[:, : MARGIN + 100].min((1, 2)) < 128  # dark ink of the names
    starts = np.flatnonzero(rows[1:] & ~rows[:-1])
    assert len(starts) >= len(OPERATIONS) + len(POLICIES)


def test_a_row_for_each_transform():
    """The image as it is, then ten draws: half of them the negative, and many shades."""
    images = pictures((3, 64, 64))[:1]
    sheet = np.asarray(contact_sheet(images, Rng(1), [Negative(), Brightness()]))
    down = (sheet.shape[0] - 2 * MARGIN + GAP) // 2
    tops, lefts = (MARGIN, MARGIN + down), [MARGIN + LABEL + at * (64 + GAP) for at in range(11)]
    negative, bright = ([sheet[top : top + 64, left : left + 64] for left in lefts] for top in tops)
    plain = images[0].transpose(1, 2, 0)
    assert np.array_equal(negative[0], plain)
    assert {int(cell.astype(int).sum()) for cell in negative} == {int(plain.sum()), int((255 - plain).sum())}
    assert len({int(cell.astype(int).sum()) for cell in bright}) > 8


def test_the_cells_are_the_operation():
    """In the row of rotations: the image as it is, turned by -30 degrees, and in the last cell by 30."""
    images = pictures((3, 64, 64))[:1]
    sheet = np.asarray(contact_sheet(images, Rng(1)))
    right = sheet.shape[1] - MARGIN
    top = MARGIN + OPERATIONS.index("Rotate") * (sheet.shape[0] - 2 * MARGIN + GAP) // (len(OPERATIONS) + len(POLICIES))
    for left, turn in ((MARGIN + LABEL, 0.0), (MARGIN + LABEL + 64 + GAP, -30.0), (right - 64, 30.0)):
        cell = do("Rotate", turn, images)[0].transpose(1, 2, 0)
        np.testing.assert_array_equal(sheet[top : top + 64, left : left + 64], cell)

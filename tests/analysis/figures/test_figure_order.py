"""The figure of an order shows its counts and roles."""

import numpy as np
import pytest

from iblurry.analysis.figures.order import WINDOWS, draw_order
from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.streams import Gaussian
from iblurry.streams.order import i_blurry


def classes_of(count, each=40):
    labels = np.tile(np.arange(count, dtype=np.int64), each)
    part = LabelledImages(np.zeros((len(labels), 1, 1, 1), dtype=np.uint8), labels)
    return Dataset("own", tuple(f"class_{c}$" for c in range(count)), part, part, (0.5,), (0.5,))


def tiles(axes):
    return axes.collections[0].get_array().filled(0)


@pytest.mark.parametrize("classes, disjoint", [(10, 50), (60, 50), (20, 0), (20, 100)])
def test_panels_hold_the_counts_by_role(classes, disjoint, tmp_path):
    data = classes_of(classes)
    order = i_blurry(data.train.labels, disjoint=disjoint, blur=40)
    panels = draw_order(order, data, tmp_path / "a.svg").axes[: len(set(order.roles))]
    counts = order.counts(data.train.labels)
    np.testing.assert_array_equal(np.concatenate([tiles(axes) for axes in panels]), counts)
    names = [tick.get_text().replace("\\", "") for axes in panels for tick in axes.get_yticklabels()]
    assert names == ([data.classes[c] for c in order.classes] if classes <= 40 else [])
    numbers = [int(text.get_text()) for axes in panels for text in axes.texts]
    assert sorted(numbers) == (sorted(counts[counts > 0].tolist()) if classes <= 40 else [])
    bold = [int(text.get_text()) for axes in panels for text in axes.texts if text.get_weight() == "bold"]
    assert sorted(bold) == (sorted(counts.max(axis=1).tolist()) if classes <= 40 else [])


def test_windows_show_when_classes_come(tmp_path):
    data = classes_of(10, each=60)
    order = Gaussian(sigma=0.1).order(data, 1)
    axes = draw_order(order, data, tmp_path / "a.svg", in_tasks=False).axes[0]
    np.testing.assert_array_equal(tiles(axes), order.in_windows(WINDOWS).counts(data.train.labels))
    assert (tiles(axes).sum(axis=0) == 10).all()
    assert (np.diff(tiles(axes) @ np.arange(WINDOWS)) > 0).all()  # from the upper left to the lower right
    assert not axes.texts

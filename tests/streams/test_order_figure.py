"""The figure of an order shows its counts, roles and major tasks, and is the same file every time."""

import numpy as np
import pytest

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.errors import InputError
from iblurry.streams import Gaussian, order_figure
from iblurry.streams.order import i_blurry


def classes_of(count, each=40):
    labels = np.tile(np.arange(count, dtype=np.int64), each)
    part = LabelledImages(np.zeros((len(labels), 1, 1, 1), dtype=np.uint8), labels)
    return Dataset("own", tuple(f"class_{c}$" for c in range(count)), part, part, (0.5,), (0.5,))


def written(axes):
    return [text.get_text() for text in axes.texts]


def test_every_count_is_written():
    data = classes_of(10)
    order = i_blurry(data.train.labels, blur=40)
    axes = order_figure.draw(order, data).axes[0]
    counts = order.counts(data.train.labels)
    numbers = sorted(int(text) for text in written(axes) if text.isdigit())
    assert numbers == sorted(counts[counts > 0].tolist())
    assert {"5 disjoint", "5 blurry"} <= set(written(axes))
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [data.classes[c] for c in order.classes]


def test_tiles_hold_the_counts():
    data = classes_of(60)
    order = i_blurry(data.train.labels, blur=40)
    axes = order_figure.draw(order, data).axes[0]
    meshes = [mesh.get_array().filled(0) for mesh in axes.collections]  # disjoint tasks, then blurry ones
    drawn = np.concatenate([np.concatenate(meshes[:5], axis=1), np.concatenate(meshes[5:], axis=1)])
    assert (drawn == order.counts(data.train.labels)).all()
    assert written(axes) == ["30 disjoint", "30 blurry"]  # too many to write each
    assert [tick.get_text() for tick in axes.get_yticklabels()] == []


def test_major_tasks_are_framed():
    data = classes_of(20)
    order = i_blurry(data.train.labels, blur=20)
    axes = order_figure.draw(order, data).axes[0]
    assert len(axes.patches) == 5
    for task, frame in enumerate(axes.patches):
        assert task * 160 < frame.get_x() < frame.get_x() + frame.get_width() < (task + 1) * 160
        assert frame.get_y() == pytest.approx(10.6 + 2 * task)  # below the ten disjoint classes and the gap
        assert frame.get_height() == pytest.approx(2)  # classes with this major task


@pytest.mark.parametrize("n, roles", [(0, ["20 blurry"]), (100, ["20 disjoint"])])
def test_one_kind_of_class(n, roles):
    data = classes_of(20)
    axes = order_figure.draw(i_blurry(data.train.labels, disjoint=n), data).axes[0]
    assert [text for text in written(axes) if "r" in text or "t" in text] == roles


@pytest.mark.quick(".svg-<?xml")
@pytest.mark.parametrize("ending, start", [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_formats_are_reproducible(tmp_path, ending, start):
    data = classes_of(4)
    for name in "ab":
        figure = order_figure.draw(i_blurry(data.train.labels, tasks=2), data)
        order_figure.save(figure, tmp_path / "new" / f"{name}{ending}")
    a, b = ((tmp_path / "new" / f"{name}{ending}").read_bytes() for name in "ab")
    assert a.startswith(start)
    assert a == b


def test_other_formats_are_refused(tmp_path):
    data = classes_of(4)
    with pytest.raises(InputError, match=r"ends in '.jpg'; end it in .png, .svg or .pdf"):
        order_figure.save(order_figure.draw(i_blurry(data.train.labels, tasks=2), data), tmp_path / "a.jpg")
    assert list(tmp_path.iterdir()) == []


def test_windows_show_when_classes_come():
    data = classes_of(10, each=60)
    order = Gaussian(sigma=0.1).order(data, 1)
    axes = order_figure.draw(order, data, in_tasks=False).axes[0]
    drawn = np.concatenate([mesh.get_array().filled(0) for mesh in axes.collections], axis=1)
    assert (drawn == order.in_windows(order_figure.WINDOWS).counts(data.train.labels)).all()
    assert (drawn.sum(axis=0) == 10).all()
    assert (np.diff(drawn @ np.arange(drawn.shape[1])) > 0).all()  # from the upper left to the lower right
    assert (written(axes), axes.patches[:]) == ([], [])  # neither counts nor roles, no frames
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [data.classes[c] for c in order.classes]


def test_many_small_tasks_do_not_crowd():
    data = classes_of(50, each=4)
    axes = order_figure.draw(i_blurry(data.train.labels, tasks=25, disjoint=50), data).axes[0]
    ticks = axes.get_xticks()
    assert (np.diff(ticks) >= 0.09 * 200).all()
    assert len(ticks) > 5

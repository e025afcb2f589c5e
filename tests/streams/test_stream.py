"""The stream hands over the order's samples, one by one, from wherever it is put."""

import numpy as np
import pytest

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.errors import InputError
from iblurry.streams.iterator import StreamItem, StreamIterator
from iblurry.streams.order import Order

LABELS = np.array([0, 1, 2, 1, 0, 2, 2], dtype=np.int64)
IMAGES = np.arange(7 * 3 * 2 * 2, dtype=np.uint8).reshape(7, 3, 2, 2)
ORDER = Order((np.array([4, 1, 0]), np.array([6]), np.array([2, 5, 3])), (0, 1, 2), 0)


@pytest.fixture
def stream():
    part = LabelledImages(IMAGES, LABELS)
    return StreamIterator(Dataset("seven", ("ant", "bee", "cat"), part, part, (0.5,) * 3, (0.5,) * 3), ORDER)


def test_samples_in_order(stream):
    samples = list(stream)
    assert [s.index for s in samples] == [4, 1, 0, 6, 2, 5, 3]
    assert [s.label for s in samples] == ["ant", "bee", "ant", "cat", "cat", "cat", "bee"]
    assert [s.task for s in samples] == [0, 0, 0, 1, 2, 2, 2]
    assert [s.last_of_task for s in samples] == [False, False, True, True, False, False, True]
    assert all((s.image == IMAGES[s.index]).all() and s.image.shape == (3, 2, 2) for s in samples)
    first = samples[0]
    assert isinstance(first, StreamItem)
    assert [type(field) for field in first[1:]] == [str, int, int, bool]


def test_position_counts_what_was_handed_over(stream):
    assert (len(stream), stream.position) == (7, 0)
    for sample in stream:
        if sample.index == 0:
            break
    assert stream.position == 3
    assert [s.index for s in stream] == [6, 2, 5, 3]
    assert stream.position == 7
    assert list(stream) == []


def test_seek_during_iteration(stream):
    met = []
    for sample in stream:
        met.append(sample.index)
        if len(met) == 2:
            stream.seek(5)
    assert met == [4, 1, 5, 3]


@pytest.mark.parametrize("position", range(8))
def test_seek_anywhere(stream, position):
    whole = [s[1:] for s in stream]
    stream.seek(position)
    assert stream.position == position
    assert [s[1:] for s in stream] == whole[position:]


@pytest.mark.parametrize("position", [-1, 8])
def test_seek_outside(stream, position):
    with pytest.raises(InputError, match=rf"{position}.* 7 samples"):
        stream.seek(position)
    assert stream.position == 0


def test_an_order_of_other_data(stream):
    with pytest.raises(InputError, match=r"sample 7.*'seven'"):
        StreamIterator(stream.dataset, Order((np.array([0, 7]),), (0,), 0))

"""Shuffled: epochs over the memory."""

from __future__ import annotations

import itertools

import pytest

from iblurry.errors import InputError
from iblurry.parts import Shuffled


def test_every_row_once_an_epoch_in_another_order(make_context):
    part = Shuffled(count=4).attach(make_context(10))
    epochs = [[part.draw_rows("draws", 3 * epoch + batch, 10) for batch in range(3)] for epoch in range(5)]
    for batches in epochs:
        assert [len(rows) for rows in batches] == [4, 4, 2]
        assert sorted(itertools.chain(*batches)) == list(range(10))
    assert len({tuple(itertools.chain(*batches)) for batches in epochs}) == 5


def test_a_batch_is_a_function_of_the_step_alone(make_context):
    part, fresh = Shuffled(count=4).attach(make_context(10)), Shuffled(count=4).attach(make_context(10))
    walked = [part.draw_rows("draws", step, 10) for step in range(9)]
    assert [fresh.draw_rows("draws", step, 10) for step in (7, 2, 5)] == [walked[7], walked[2], walked[5]]
    assert fresh.draw_rows("draws", 7, 9) != walked[7]  # another memory, another order


def test_fewer_rows_than_a_batch(make_context):
    part = Shuffled(count=4).attach(make_context(10))
    assert sorted(part.draw_rows("draws", 3, 2)) == [0, 1]
    assert part.draw_rows("draws", 3, 0) == []
    assert part.joins(2) == 2
    assert part.joins(99) == 4


def test_no_empty_batches():
    with pytest.raises(InputError, match="count=0"):
        Shuffled(count=0)

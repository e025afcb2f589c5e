"""Parts that need no more than random numbers, or a norm."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from iblurry.parts import Clip, Nothing, Shuffled, Uniform
from iblurry.parts.context import Drawn
from iblurry.parts.memory import Batch


def test_clip_shortens_long_gradients_only(make_context):
    context = make_context(2)
    parameters = list(context.network.parameters())
    for length, expected in ((7.0, 3.0), (2.0, 2.0)):
        for i, parameter in enumerate(parameters):
            parameter.grad = torch.zeros_like(parameter)
            parameter.grad.flatten()[0] = length / np.sqrt(len(parameters)) * (-1) ** i
        Clip(norm=3.0).attach(context).adjust(Drawn(torch.zeros(0, dtype=torch.int64), None))
        total = np.sqrt(sum(float((p.grad**2).sum()) for p in parameters))
        assert total == pytest.approx(expected, rel=1e-5)


def test_uniform_takes_what_was_drawn_and_nothing_takes_none():
    stream, rows = Batch(torch.zeros(0, 1, 8, 8), torch.zeros(0)), torch.tensor([3, 1])
    drawn = Drawn(rows, None)
    assert Uniform(count=5).joins(3) == 3
    assert Uniform(count=5).joins(9) == Uniform(count=5).rows_per_update == 5
    assert Uniform().choose(stream, drawn) is rows
    assert Nothing().joins(9) == Nothing().rows_per_update == 0


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

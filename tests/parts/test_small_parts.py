from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.errors import InputError, UnknownNameError
from iblurry.parts import Admission, Clip, Nothing, Reservoir, Uniform
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


def test_bad_fields():
    with pytest.raises(InputError, match="count=0"):
        Uniform(count=0)
    with pytest.raises(InputError, match="norm=0"):
        Clip(norm=0)


def test_parts_of_ones_own_are_known_by_name_and_by_their_fields():
    class Oldest(Admission):
        patience: int = 3

        def choose_row(self, one):
            return self.context.memory.written_at[:-1].argmin(0, keepdim=True)

    assert Admission.named("Oldest") is Oldest
    assert Admission.from_json(Oldest(patience=5).to_json()) == Oldest(patience=5)
    assert Oldest() != Reservoir()
    with pytest.raises(UnknownNameError, match="Did you mean 'patience'"):
        Admission.from_json({"Oldest": {"patence": 1}})
    with pytest.raises(UnknownNameError, match="Did you mean 'Reservoir'"):
        Admission.named("Resevoir")
    with pytest.raises(InputError, match="'Reservoir'"):
        Admission.from_json("Reservoir")

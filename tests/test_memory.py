from __future__ import annotations

import pytest
import torch

from iblurry.errors import InputError
from iblurry.memory import Memory, Sample


def one(label, value):
    return Sample(torch.full((1, 1, 2, 2), value, dtype=torch.uint8), torch.tensor([label]), label)


def test_rows_fill_in_order_and_the_discard_row_swallows():
    memory = Memory(2, (1, 2, 2))
    for label in (4, 5):
        memory.write(memory.next_row(), one(label, 10 * label))
    assert memory.full
    memory.write(memory.discard, one(6, 99))
    batch = memory.read(torch.tensor([1, 0]))
    assert batch.labels.tolist() == [5, 4]
    assert batch.images[:, 0, 0, 0].tolist() == [50, 40]
    assert memory.size == 2


def test_who_was_written_when():
    memory = Memory(3, (1, 2, 2))
    for label in range(2):
        memory.write(memory.next_row(), one(label, label))
    mark = memory.clock.clone()
    assert memory.filled().tolist() == [True, True, False]
    memory.write(memory.row(0), one(7, 7))
    assert memory.rewritten_since(mark).tolist() == [True, False, False]
    assert memory.members(7).tolist() == [True, False, False]
    assert memory.written_at.tolist() == [3, 2, 0, 0]


def test_columns_stay_when_a_row_is_written_and_come_back_with_the_state():
    memory = Memory(2, (1, 2, 2))
    column = memory.column("importance", fill=0.5)
    memory.write(memory.next_row(), one(1, 1))
    column[0] = 3.0
    again = Memory(2, (1, 2, 2))
    again.load_state_dict(memory.state_dict())
    assert again.column("importance").tolist() == [3.0, 0.5, 0.5]
    assert again.column("importance").data_ptr() != column.data_ptr()
    assert (again.size, again.labels.tolist()) == (1, [1, -1, -1])


def test_more_than_the_machine_has_is_refused():
    with pytest.raises(InputError, match=f"memory={10**15}"):
        Memory(10**15, (1, 8, 8))

from __future__ import annotations

import pytest
import torch

from iblurry.errors import InputError
from iblurry.parts.memory import Memory, Sample


def one(label, value):
    return Sample(torch.full((1, 1, 2, 2), value, dtype=torch.uint8), torch.tensor([label]), label)


def test_rows_fill_in_order_and_the_discard_row_swallows():
    """A rejected sample counts as a write."""
    memory = Memory(2, (1, 2, 2))
    for label in (4, 5):
        memory.write(memory.next_row(), one(label, 10 * label))
    assert memory.full
    assert (memory.discard.tolist(), memory.row(1).tolist()) == ([2], [1])
    memory.write(memory.discard, one(6, 99))
    batch = memory.read(torch.tensor([1, 0]))
    assert batch.labels.tolist() == [5, 4]
    assert batch.images[:, 0, 0, 0].tolist() == [50, 40]
    assert (memory.size, memory.written_at.tolist(), memory.clock.tolist()) == (2, [1, 2, 3], [3])
    assert memory.filled().tolist() == [True, True]


def test_who_was_written_when():
    memory = Memory(3, (1, 2, 2))
    for label in range(2):
        memory.write(memory.next_row(), one(label, label))
    assert memory.filled().tolist() == [True, True, False]
    memory.write(memory.row(0), one(7, 7))
    assert memory.members(7).tolist() == [True, False, False]
    assert memory.written_at.tolist() == [3, 2, 0, 0]


def test_columns_stay_when_a_row_is_written_and_come_back_with_the_state():
    memory, again = Memory(2, (1, 2, 2)), Memory(2, (1, 2, 2))
    column = memory.column("importance", fill=0.5)
    assert (memory.column("zero").dtype, memory.column("zero").tolist()) == (torch.float64, [0.0] * 3)
    table = memory.column("table", fill=2, dtype="int64", shape=(2,))
    assert (table.dtype, table.tolist()) == (torch.int64, [[2, 2]] * 3)
    memory.write(memory.next_row(), one(1, 1))
    column[0], memory.offered = 3.0, 5
    again.load_state_dict(memory.state_dict())
    assert again.column("importance").tolist() == [3.0, 0.5, 0.5]
    assert again.column("importance").data_ptr() != column.data_ptr()
    assert again.column("table", dtype="int64", shape=(2,)).tolist() == [[2, 2]] * 3
    assert (again.offered, again.size, again.labels.tolist()) == (5, 1, [1, -1, -1])


def numbered(capacity, labels, shape=(1, 2, 2)):
    """A memory whose row i holds label i, pixels that count from 10 i, and 100 + i in a column that starts at 0.5."""
    memory = Memory(capacity, shape)
    column = memory.column("mark", fill=0.5)
    for i, label in enumerate(labels):
        pixels = (torch.arange(torch.Size(shape).numel()) + 10 * i).to(torch.uint8).view(1, *shape)
        memory.write(memory.next_row(), Sample(pixels, torch.tensor([label]), label))
        column[i] = 100 + i
    return memory


def test_removed_rows_close_up_and_what_they_leave_is_as_new():
    memory = numbered(6, [4, 5, 6, 7, 8])
    memory.column("mark")[-1] = 7.0  # the discard row's
    memory.remove(torch.tensor([True, False, False, True, False, True]))
    assert (memory.size, memory.full) == (3, False)
    assert memory.labels.tolist() == [5, 6, 8, -1, -1, -1, -1]
    assert memory.written_at.tolist() == [2, 3, 5, 0, 0, 0, 0]
    assert memory.column("mark").tolist() == [101, 102, 104, 0.5, 0.5, 0.5, 7.0]
    assert memory.images[:, 0, 0, 0].tolist() == [10, 20, 40, 0, 0, 0, 0]
    memory.write(memory.next_row(), one(9, 90))
    assert memory.labels[:4].tolist() == [5, 6, 8, 9]
    full = numbered(3, [1, 1, 1])
    full.remove(torch.tensor([True, True, True]))
    assert (full.size, full.labels.tolist(), full.column("mark").tolist()) == (0, [-1] * 4, [0.5] * 4)


def test_relabelled_rows_keep_all_else():
    memory = numbered(3, [4, 5, 6])
    memory.relabel(torch.tensor([True, False, True]), 9)
    assert memory.labels.tolist() == [9, 5, 9, -1]
    assert memory.written_at.tolist() == [1, 2, 3, 0]
    assert memory.read(memory.row(2)).images.flatten().tolist() == [20, 21, 22, 23]


@pytest.mark.parametrize("shape", [(1, 2, 2), (3, 3, 3), (2, 2, 4)])  # 4, 27 and 16 bytes a row
def test_rows_are_read_as_they_were_written(shape):
    memory, size = numbered(4, [1, 2, 3], shape), torch.Size(shape).numel()
    batch = memory.read(torch.tensor([2, 0, 2]))
    assert batch.images.shape == (3, *shape)
    assert batch.images.flatten(1).tolist() == [list(range(start, start + size)) for start in (20, 0, 20)]
    assert batch.labels.tolist() == [3, 1, 3]


def test_a_window_starts_at_a_share_of_the_filled_rows_and_wraps():
    memory = numbered(10, range(4))
    assert memory.window(0, 2).tolist() == [0, 1]
    assert memory.window(5, 3).tolist() == [2, 3, 0]  # half of 10 is half of 4
    assert memory.window(19, 2).tolist() == [3, 0]  # 9 tenths of 4 are 3
    full = numbered(4, range(4))
    assert [full.window(start, 2).tolist() for start in (1, 3, 6)] == [[1, 2], [3, 0], [2, 3]]


def test_a_row_is_measured_twice_if_it_was_neither_new_nor_skipped():
    memory = numbered(5, range(4))  # written at 1, 2, 3, 4; row 4 is empty
    before = torch.tensor([1.0, -1.0, 0.0, 2.0, 1.0], dtype=torch.float64)
    losses = torch.tensor([float("nan"), 1.0, 0.0, 3.0, 1.0], dtype=torch.float64)
    assert memory.measured_twice(before, losses, torch.tensor([3])).tolist() == [True, False, True, False, False]
    assert memory.measured_twice(losses, -before, torch.tensor([9])).tolist() == [False, True, True, False, False]


def test_more_than_the_machine_has_is_refused():
    with pytest.raises(InputError, match=f"memory={10**15}"):
        Memory(10**15, (1, 8, 8))

"""Amendments: what happens to a learner beside its stream, namely rehearsal and the correction of mistakes.

Samples have numbers from 1, in the order they were observed. A correction changes the memory and the head at once; what
the weights have learnt from a mistake stays there until updates from the corrected memory overwrite it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from iblurry.errors import InputError, UnknownLabelError
from iblurry.learner.config import Label
from iblurry.learner.learner import Learner
from iblurry.parts.memory import REMOVED


def can_rehearse(learner: Learner) -> bool:
    """Whether updates can be taken from its memory alone, as it is now."""
    return learner.method.rehearsal.joins(learner.context.memory.size) > 0


def rehearse(learner: Learner, updates: int) -> None:
    """Takes so many updates from the memory alone; nothing where that is empty, or the method never reads it.

    They are extra: the learning rate stays, and what measures progress along the stream leaves them out.
    """
    if not can_rehearse(learner):
        return
    memory = learner.context.memory
    for _ in range(updates):
        learner.trainer.update(memory.read(memory.discard[:0]), last_of_round=False, is_extra=True)
    _tell(learner)


def remove(learner: Learner, number: int) -> bool:
    """Takes a sample out of the memory; False where it is not there (any more)."""
    _check(learner)
    return _correct(learner, number, None)


def relabel(learner: Learner, number: int, label: Label) -> bool:
    """Gives a sample in the memory another label, a new one if need be; False where it is not there (any more)."""
    _check(learner)
    known = learner.context.network.row_of(label)
    return _correct(learner, number, learner.meet(label) if known is None else known)


def rename_class(learner: Learner, label: Label, to: Label) -> None:
    """Calls a class by another name, which no class has."""
    network = learner.context.network
    row = _row(learner, label)
    if network.row_of(to) not in (None, row):
        raise InputError(f"There is a class {to!r} already; merge {label!r} into it instead.")
    network.labels[row] = to


def merge_class(learner: Learner, label: Label, to: Label) -> None:
    """The samples of a class get the label of another, and its head row is closed."""
    if label == to:
        raise InputError(f"The class {label!r} cannot be merged into itself; give another class.")
    _close(learner, _row(learner, label), into=_row(learner, to))


def delete_class(learner: Learner, label: Label) -> None:
    """The samples of a class leave the memory, and its head row is closed: it never answers again."""
    _close(learner, _row(learner, label), into=None)


def _correct(learner: Learner, number: int, to: int | None) -> bool:
    """Moves a sample to another head row, or takes it out; returns whether it was found."""
    memory, waiting = learner.context.memory, learner.stream_batch
    place = number - 1 - learner.context.seen + len(waiting)  # among the samples that wait for their round
    is_waiting = 0 <= place < len(waiting)
    if is_waiting:
        _move_waiting(learner, place, to)
    found = memory.written_at[:-1] == number  # of one row at most, (capacity,) bool
    is_held = bool(found.any())
    if is_held:
        for part in learner.parts.values():
            part.on_corrected(memory.images[:-1][found], int(memory.labels[:-1][found]), to)
        _move(learner, found, to)
        _tell(learner)
    return is_held or is_waiting


def _close(learner: Learner, row: int, into: int | None) -> None:
    _check(learner)
    _move(learner, learner.context.memory.members(row), into)
    for place, sample in enumerate(learner.stream_batch):
        if sample.label == row:
            _move_waiting(learner, place, into)
    learner.context.network.close_row(row)
    for shared in learner.context.shared.values():
        shared.on_rows_changed()
    for part in learner.parts.values():
        part.on_class_closed(row, into)
    _tell(learner)


def _move(learner: Learner, rows: Tensor, to: int | None) -> None:
    """Gives the samples of these memory rows, (capacity,) bool, to a head row, or takes them out."""
    if to is None:
        learner.context.memory.remove(rows)
    else:
        learner.context.memory.relabel(rows, to)


def _move_waiting(learner: Learner, place: int, to: int | None) -> None:
    sample, row = learner.stream_batch[place], REMOVED if to is None else to
    if sample.label != REMOVED:  # what was removed stays so
        learner.stream_batch[place] = sample._replace(labels=torch.full_like(sample.labels, row), label=row)


def _tell(learner: Learner) -> None:
    learner.prepared_at = None  # the next answer is another one
    for part in learner.parts.values():
        part.on_amended()


def _row(learner: Learner, label: Label) -> int:
    row = learner.context.network.row_of(label)
    if row is None:
        known = ", ".join(repr(each) for each in learner.labels if each is not None) or "none"
        raise UnknownLabelError(f"There is no class {label!r}. Known: {known}.")
    return row


def _check(learner: Learner) -> None:
    """InputError where samples are elsewhere than in the memory: they would not be found."""
    method = learner.method
    held = (part.samples_outside_memory(learner.context.budget) for part in learner.parts.values())
    if method.refit is not None or any(held):
        raise InputError(f"{method.name} keeps samples or a network outside the memory, and these cannot be corrected.")

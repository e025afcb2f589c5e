"""Classes one by one, from a journal: when each was met, how well it was known over time, and what was forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iblurry.experiment.journal import Evaluation, NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import class_accuracy


@dataclass(frozen=True)
class Classwise:
    """What a run knew of each class, in order of exposure; accuracies in percent."""

    classes: Sequence[str]
    met: Sequence[int]  # their first samples
    ends: Sequence[int]  # of the tasks
    at: Sequence[int]  # samples seen
    accuracy: NDArray[np.float64]  # (classes, times); not a number before a class was met
    lost: NDArray[np.float64]  # (classes,); not a number where there was nothing to lose


def classwise(records: Sequence[Record]) -> Classwise:
    """From a journal."""
    classes = [record for record in records if isinstance(record, NewClass)]
    known = answers(records)
    table = np.full((len(classes), len(known)), np.nan)
    for column, record in enumerate(known):
        total = np.array(record.total, dtype=np.float64)
        right = np.array(record.correct) / np.where(total > 0, total, np.nan)  # without test images nothing is known
        table[: len(total), column] = 100 * right
    return Classwise(
        classes=[record.label for record in classes],
        met=[record.at for record in classes],
        ends=next(record.ends for record in records if isinstance(record, Start)),
        at=[record.at for record in known],
        accuracy=table,
        lost=lost(records, len(classes)),
    )


def answers(records: Sequence[Record]) -> Sequence[Evaluation]:
    """The points of a curve; the ends of tasks where a method is not asked in between."""
    asked = [record for record in records if isinstance(record, Query)]
    return asked or [record for record in records if isinstance(record, TaskEnd)]


def lost(records: Sequence[Record], classes: int) -> NDArray[np.float64]:
    """Points of each class from its best earlier task end to the last one, as F_last counts them: its mean is F_last.

    Not a number for a class that was never right before the last task.
    """
    accuracy = 100 * class_accuracy(records)  # (task ends, classes)
    found = np.full(classes, np.nan)
    if len(accuracy) > 1:
        best = accuracy[:-1].max(axis=0)
        found[: accuracy.shape[1]] = np.where(best > 0, best - accuracy[-1], np.nan)
    return found


def first_tasks(met: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The task, from 0, that each class was met in.

    >>> first_tasks([1, 20, 21], ends=[20, 40])
    [0, 0, 1]
    """
    return [int(task) for task in np.searchsorted(ends, met)]

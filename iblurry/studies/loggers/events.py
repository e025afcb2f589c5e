"""What a journal says, as numbers and words at a count of samples: the same for whoever keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from iblurry.experiment.journal import Evaluation, NewClass, Record, TaskEnd

FINAL = {  # of summary.json
    "a_auc": "final/A_AUC",
    "a_avg": "final/A_avg",
    "a_last": "final/A_last",
    "f_last": "final/F_last",
    "seconds": "final/seconds",
    "samples_per_second": "final/samples_per_second",
}


@dataclass(frozen=True)
class Scalars:
    """Numbers that belong together."""

    step: int  # samples seen
    values: dict[str, float]


@dataclass(frozen=True)
class Text:
    """A word to remember."""

    step: int  # samples seen
    name: str
    text: str


Event = Scalars | Text


def events(record: Record, classes: list[str]) -> Iterator[Event]:
    """What a record says, where these `classes` were met before it; a new one is added to them."""
    if isinstance(record, NewClass):
        classes.append(record.label)
        yield Scalars(record.at, {"classes": float(len(classes))})
        yield Text(record.at, "new_class", record.label)
    elif isinstance(record, Evaluation):
        yield Scalars(record.at, _answers(record, classes))


def final(summary: Mapping[str, Any]) -> Scalars:
    """The numbers of a finished run; one that is not defined for it is left out."""
    values = {name: summary.get(key) for key, name in FINAL.items()}
    return Scalars(int(summary["samples"]), {name: float(value) for name, value in values.items() if value is not None})


def _answers(record: Evaluation, classes: list[str]) -> dict[str, float]:
    """The end of a task often comes with a query at the same step, so all of its numbers have names of their own."""
    values = {"accuracy": record.accuracy, "learning_rate": record.rate, "updates": float(record.updates)}
    for label, correct, total in zip(classes, record.correct, record.total, strict=True):
        if total:
            values[f"class_accuracy/{label}"] = correct / total
    return {f"task_end/{name}": value for name, value in values.items()} if isinstance(record, TaskEnd) else values

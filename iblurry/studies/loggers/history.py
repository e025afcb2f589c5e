"""What a run's folder holds for a logger: numbers and texts by samples seen, hyper-parameters, versions; only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iblurry.analysis.fields import Value, flatten_fields
from iblurry.errors import DataError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, Logged, NewClass, Record, Start, Stopped, TaskEnd, read
from iblurry.untrusted import MALFORMED, reason

FINAL = {  # of summary.json
    "a_auc": "final/A_AUC",
    "a_avg": "final/A_avg",
    "a_last": "final/A_last",
    "f_last": "final/F_last",
    "seconds": "final/seconds",
    "samples_per_second": "final/samples_per_second",
}
Event = tuple[int, dict[str, float | str]]  # samples seen; numbers and texts by name


@dataclass(frozen=True)
class RunHistory:
    """A run from its beginning to what its journal holds now."""

    name: str  # of its folder
    folder: Path
    parameters: dict[str, Value]  # fields of the experiment, by the paths that --set takes
    environment: dict[str, Value]  # versions, machine, device, threads
    events: list[Event]  # in order, one for each number of samples seen
    summary: dict[str, Any] | None  # None while the run is not finished


def read_history(path: Path | str) -> RunHistory | None:
    """The history of the run in a folder; None where it has not begun. Parts of one's own need no --import."""
    folder = RunFolder(path)
    about = folder.about()
    try:
        parameters = flatten_hyperparameters(about["experiment"])
    except MALFORMED as error:
        raise DataError(f"{folder.path / 'experiment.json'} is not a valid experiment: {reason(error)}.") from error
    summary = folder.summary()  # before the journal: of a finished run that is then complete
    records = read(folder.journal, partial=summary is None) if folder.journal.exists() else []
    if not records:
        return None
    name, environment = folder.path.resolve().name, folder.environment() or {}
    return RunHistory(name, folder.path, parameters, environment, log_events(records, summary), summary)


def log_events(records: list[Record], summary: Mapping[str, Any] | None) -> list[Event]:
    """What a journal's records, and the summary of a finished run, say at each step."""
    classes: list[str] = []  # met so far
    events: dict[int, dict[str, float | str]] = {}
    for record in records:
        if not isinstance(record, Start):
            events.setdefault(record.at, {}).update(_record_values(record, classes))
    if summary is not None:
        end = max(summary["samples"], summary.get("stopped", {}).get("at", 0))  # a stop may come after the last query
        final = {name: float(summary[key]) for key, name in FINAL.items() if summary.get(key) is not None}
        events.setdefault(end, {}).update(final)
    return [(step, values) for step, values in sorted(events.items()) if values]


def _record_values(record: Record, classes: list[str]) -> dict[str, float | str]:
    """What a record says, where these `classes` were met before it; a new one is added to them."""
    if isinstance(record, NewClass):
        classes.append(record.label)
        return {"classes": float(len(classes)), "new_class": record.label}
    if isinstance(record, Logged):
        return {f"own/{record.name}": record.value}
    if isinstance(record, Stopped):
        return {"stopped": record.reason}
    if isinstance(record, Evaluation):
        values = {"accuracy": record.accuracy, "learning_rate": record.rate, "updates": float(record.updates)}
        for label, correct, total in zip(classes, record.correct, record.total, strict=True):
            if total:
                values[f"class_accuracy/{label}"] = correct / total
        prefix = "task_end/" if isinstance(record, TaskEnd) else ""  # a query often comes at the same step
        return {prefix + name: value for name, value in values.items()}
    return {}


def flatten_hyperparameters(experiment: dict[str, Any]) -> dict[str, Value]:
    """The method's name, then every field of the experiment and of its method.

    >>> method = {"name": "mine", "schedule": {"Constant": {"initial_lr": 0.1}}}
    >>> flatten_hyperparameters({"memory": 20, "method": method})
    {'method': 'mine', 'memory': 20, 'schedule': 'Constant', 'schedule.initial_lr': 0.1}
    """
    method = dict(experiment["method"])
    settings = {name: value for name, value in experiment.items() if name != "method"}
    return {"method": method.pop("name")} | flatten_fields(settings) | flatten_fields(method)

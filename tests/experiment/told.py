"""Runs to log that nobody ran: journals of our choice, written as a run writes them; and a logger that remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from iblurry.experiment.callbacks import Logger
from iblurry.experiment.folder import FORMAT
from iblurry.experiment.journal import NewClass, Query, Start, TaskEnd, encode

RECORDS = [
    Start("0123456789ab", 40, (20, 40), 10),
    NewClass(1, "cat"),
    NewClass(3, "dog"),
    Query(10, 0, (3, 1), (4, 4), 0.1, 10),
    Query(20, 0, (4, 2), (4, 4), 0.05, 20),
    TaskEnd(20, 0, (4, 3), (4, 4), 0.05, 20),
    NewClass(22, "a/b c"),
    Query(30, 1, (0, 4, 0), (4, 4, 0), 0.1, 30),  # no test images of the third
    Query(40, 1, (1, 1, 0), (4, 4, 0), 0.1, 40),
    TaskEnd(40, 1, (1, 3, 0), (4, 4, 0), 0.1, 40),
]
LINES = [encode(record) for record in RECORDS]
SUMMARY = {
    "method": "mine",
    "a_auc": 0.5,
    "a_avg": 0.6875,
    "a_last": 0.5,
    "f_last": 0.375,
    "samples": 40,
    "seconds": 2.0,
}
EVENTS = [  # what the lines above amount to, by hand
    (1, {"classes": 1.0, "new_class": "cat"}),
    (3, {"classes": 2.0, "new_class": "dog"}),
    (10, {"accuracy": 0.5, "learning_rate": 0.1, "updates": 10.0}
     | {"class_accuracy/cat": 0.75, "class_accuracy/dog": 0.25}),
    (20, {"accuracy": 0.75, "learning_rate": 0.05, "updates": 20.0}
     | {"class_accuracy/cat": 1.0, "class_accuracy/dog": 0.5}
     | {"task_end/accuracy": 0.875, "task_end/learning_rate": 0.05, "task_end/updates": 20.0}
     | {"task_end/class_accuracy/cat": 1.0, "task_end/class_accuracy/dog": 0.75}),
    (22, {"classes": 3.0, "new_class": "a/b c"}),
    (30, {"accuracy": 0.5, "learning_rate": 0.1, "updates": 30.0}
     | {"class_accuracy/cat": 0.0, "class_accuracy/dog": 1.0}),
    (40, {"accuracy": 0.25, "learning_rate": 0.1, "updates": 40.0}
     | {"class_accuracy/cat": 0.25, "class_accuracy/dog": 0.25}
     | {"task_end/accuracy": 0.5, "task_end/learning_rate": 0.1, "task_end/updates": 40.0}
     | {"task_end/class_accuracy/cat": 0.25, "task_end/class_accuracy/dog": 0.75}),
]  # fmt: skip
FINAL = {"final/A_AUC": 0.5, "final/A_avg": 0.6875, "final/A_last": 0.5, "final/F_last": 0.375}
FINAL |= {"final/seconds": 2.0, "final/samples_per_second": 20.0}
FINISHED = [*EVENTS[:-1], (40, EVENTS[-1][1] | FINAL)]  # of a finished run
EXPERIMENT = {
    "method": {"name": "mine", "schedule": {"Constant": {"initial_lr": 0.1}}, "terms": [{"CrossEntropy": {}}]},
    "dataset": "pets",
    "memory": 20,
    "samples": None,
}
PARAMETERS = {
    "method": "mine",
    "dataset": "pets",
    "memory": 20,
    "samples": "none",
    "schedule": "Constant",
    "schedule.initial_lr": 0.1,
    "terms": "CrossEntropy",
}
ENVIRONMENT = {"torch": "2.13.0", "machine": "Linux x86_64, 2 cores", "threads": 1}


def begin(folder: Path, lines: list[bytes] | None = None) -> Path:
    """A folder with these lines in its journal; without lines, of a run that has not begun."""
    folder.mkdir(parents=True)
    (folder / "experiment.json").write_text(json.dumps({"format": FORMAT, "experiment": EXPERIMENT}))
    if lines is not None:
        (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
        write(folder, lines)
    return folder


def write(folder: Path, lines: list[bytes]) -> None:
    (folder / "journal.jsonl").write_bytes(b"".join(lines))


def finish(folder: Path) -> None:
    (folder / "summary.json").write_text(json.dumps(SUMMARY))


class Recorder(Logger):
    """A logger that keeps the rows it was given, by the name of the run."""

    extra, libraries = "none", ()
    runs: ClassVar[dict[str, list]] = {}
    closed: ClassVar[dict[str, bool]] = {}

    def open(self, run):
        self.name = self._name
        self.place, self.runs[self.name] = f"kept/{self.name}", []
        self.closed.pop(self.name, None)

    def write(self, step, row):
        self.runs[self.name].append((step, row))

    def close(self, *, finished):
        self.closed[self.name] = finished

    def errors(self):
        return (KeyError,)

"""What the callbacks for TensorBoard, Weights & Biases and MLflow share: a run as rows of numbers and texts."""

from __future__ import annotations

import re
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from iblurry.errors import InputError
from iblurry.experiment.callback import Callback
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, Logged, NewClass, Query, Record, Start, TaskEnd

if TYPE_CHECKING:
    from iblurry.experiment.run_state import RunState

Row = dict[str, float | str]
FINAL = {"a_auc": "final/A_AUC", "a_avg": "final/A_avg", "a_last": "final/A_last", "f_last": "final/F_last"}


class Logger(Callback):
    """Base class of callbacks that write a run to a tracking service; the run is the same with and without them.

    A subclass defines `open`, `write` and `close`. A row, which is what was measured at one number of samples seen, is
    written when it is complete: when the next one begins, or at the end of the run. When a run continues after an
    interruption, it is written from its beginning.
    """

    logs: ClassVar[tuple[str, ...]] = ()
    is_stored: ClassVar[bool] = False
    extra: ClassVar[str]  # of the package, which installs the library
    libraries: ClassVar[tuple[str, ...]]  # that must be there
    place = ""  # where the run can be looked at, once it is open

    @abstractmethod
    def open(self, run: RunState) -> None:
        """Begin a run, or find the one that was logged before; hyper-parameters and versions are written."""

    @abstractmethod
    def write(self, step: int, row: Row) -> None:
        """Write a complete row, of so many samples seen."""

    @abstractmethod
    def close(self, *, finished: bool) -> None:
        """End the run, which can be logged again."""

    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions by which the library refuses."""
        return ()

    def on_train_start(self, run: RunState) -> None:
        for library in self.libraries:
            found = find_spec(library)
            if found is None or found.origin is None:  # no origin: a folder of that name in the working folder
                needs = f"{type(self).__name__} needs {library}, which is not installed"
                raise InputError(f"{needs}; pip install 'iblurry[{self.extra}]'.")
        self._classes: list[str] = []  # met so far
        self._taken = 0  # records of the journal
        self._row: tuple[int, Row] = (0, {})
        with self._refusals(run):
            self.open(run)
        self._follow(run)

    def on_new_class(self, run: RunState, label: str) -> None:
        self._follow(run)

    def on_query(self, run: RunState, answer: Query) -> None:
        self._follow(run)

    def on_task_end(self, run: RunState, answer: TaskEnd | None) -> None:
        self._follow(run)

    def on_train_end(self, run: RunState) -> None:
        self._follow(run)
        numbers = {name: getattr(run.metrics, field) for field, name in FINAL.items()}
        row: Row = {name: value for name, value in numbers.items() if value is not None}
        row |= {"final/seconds": run.seconds, "final/samples_per_second": run.position / run.seconds}
        if run.stop_reason is not None:
            row["stopped"] = run.stop_reason
        with self._refusals(run):
            self._add(run.position, row)
            self.write(*self._row)
            self.close(finished=True)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def _follow(self, run: RunState) -> None:
        """Take in what the journal has got since the last call."""
        records = run.records[self._taken :]
        self._taken += len(records)
        with self._refusals(run):
            for record in records:
                if not isinstance(record, Start) and (row := self._row_of(record)):
                    self._add(record.at, row)

    def _add(self, step: int, row: Row) -> None:
        last, values = self._row
        if step > last and values:
            self.write(last, values)
            values = {}
        self._row = step, values | row

    def _row_of(self, record: Record) -> Row:
        if isinstance(record, NewClass):
            self._classes.append(record.label)
            return {"classes": float(len(self._classes)), "new_class": record.label}
        if isinstance(record, Logged):
            return {f"own/{record.name}": record.value}
        if not isinstance(record, Evaluation):
            return {}
        row = {"accuracy": record.accuracy, "learning_rate": record.rate, "updates": float(record.updates)}
        for label, correct, total in zip(self._classes, record.correct, record.total, strict=True):
            if total:
                row[f"class_accuracy/{label}"] = correct / total
        prefix = "task_end/" if isinstance(record, TaskEnd) else ""  # a query often comes at the same step
        return {prefix + name: value for name, value in row.items()}

    @contextmanager
    def _refusals(self, run: RunState) -> Iterator[None]:
        try:
            yield
        except self.errors() as error:
            name, reason = type(self).__name__, str(error).rstrip(".")
            raise InputError(f"{name} could not log {run.folder}: {reason}. The run is kept; log it again.") from error


def run_name(run: RunState) -> str:
    """The name of its folder."""
    return run.folder.resolve().name


def environment_of(run: RunState) -> dict[str, Any]:
    """Versions, machine, device and threads."""
    return RunFolder(run.folder).environment() or {}


def safe_name(name: str) -> str:
    """The name with letters, digits, - and _ alone; a checksum tells apart names that would become the same.

    >>> safe_name("clib-digits-1"), safe_name("cat/dog")
    ('clib-digits-1', 'cat-dog-6ef44cf1')
    """
    if re.fullmatch("[A-Za-z0-9_-]{1,120}", name):
        return name
    return re.sub("[^A-Za-z0-9_-]", "-", name[:100]) + f"-{zlib.crc32(name.encode()):08x}"

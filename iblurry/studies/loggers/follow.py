"""From a run's journal to an experiment logger, afterwards or while it is written; the run itself is only read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iblurry.errors import DataError, InputError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, NewClass, Record, Start, TaskEnd, decode
from iblurry.studies.loggers.logger import ExperimentLogger, describe_run

FINAL = {  # of summary.json
    "a_auc": "final/A_AUC",
    "a_avg": "final/A_avg",
    "a_last": "final/A_last",
    "f_last": "final/F_last",
    "seconds": "final/seconds",
    "samples_per_second": "final/samples_per_second",
}


@dataclass(frozen=True)
class ScalarEvent:
    """Numbers by name after `step` samples."""

    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class TextEvent:
    """A named text after `step` samples."""

    step: int
    name: str
    text: str


LogEvent = ScalarEvent | TextEvent


@dataclass(frozen=True)
class JournalUpdate:
    """What came since the last look at a run.

    Parameters
    ----------
    events : list
        ScalarEvent and TextEvent, in order.
    restarted : bool
        Whether these events are the first of a run, and what was logged of it before is void.
    summary : dict, optional
        Of a finished run.
    """

    events: list[LogEvent]
    restarted: bool = False
    summary: dict[str, Any] | None = None


class JournalFeed:
    """Passes one run on to a logger: `update` as often as one likes, then `close`.

    Parameters
    ----------
    folder : Path
        The run's folder.
    make : callable
        Makes the ExperimentLogger, once there is something to log.

    Attributes
    ----------
    place : str or None
        Where the run can be looked at, once it has begun.
    events : int
        Logged so far.
    summary : dict or None
        Of a finished run.
    """

    def __init__(self, folder: Path, make: Callable[[], ExperimentLogger]) -> None:
        self.follower = RunFollower(folder)
        self.place: str | None = None
        self.events = 0
        self.summary: dict[str, Any] | None = None
        self._make = make
        self._logger: ExperimentLogger | None = None

    def update(self) -> bool:
        """Log what is new; True once the run is finished and all of it is logged."""
        if self.summary is None:
            news = self.follower.poll()
            if news.restarted:
                self._logger, self.events = self._logger or self._make(), 0
            if self._logger is not None and (news.restarted or news.events or news.summary):
                with self._explain_errors(self._logger):
                    self._log(self._logger, news)
            self.summary = news.summary
        return self.summary is not None

    def close(self) -> None:
        """Finish the logging, at the end of the run or before it."""
        if self._logger is not None and self.place is not None:
            with self._explain_errors(self._logger):
                self._logger.finish(self.summary)
            self._logger = None

    def _log(self, logger: ExperimentLogger, news: JournalUpdate) -> None:
        if news.restarted:
            self.place = logger.start(describe_run(self.follower.folder))
        for event in news.events:
            if isinstance(event, ScalarEvent):
                logger.log_scalars(event.values, event.step)
            else:
                logger.log_text(event.name, event.text, event.step)
        logger.flush()
        self.events += len(news.events)

    @contextmanager
    def _explain_errors(self, logger: ExperimentLogger) -> Iterator[None]:
        try:
            yield
        except logger.errors as error:
            raise InputError(
                f"{type(logger).__name__} refused {self.follower.folder.path}: {str(error).rstrip('.')}. The run "
                "itself is untouched; the same command tries again."
            ) from error


class RunFollower:
    """Reads a run's journal while it grows; `poll` returns every event once, in order.

    A run that continues after an interruption cuts its journal back to the checkpoint and writes the same bytes again:
    there is nothing new until there are more of them than before. Where they are others (a run deleted and begun again,
    or continued on another machine), all of it is returned again, as `restarted`.

    Parameters
    ----------
    folder : Path or str
        The run's folder.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = RunFolder(folder)
        self._seen = b""  # whole lines of the journal
        self._classes: list[str] = []
        self._ended = False

    def poll(self) -> JournalUpdate:
        """What is new; nothing, while a run has not begun."""
        summary = self.folder.summary()  # before the journal: of a finished run that is then complete
        lines = _whole_lines(self.folder.journal)
        if lines == self._seen or (summary is None and self._seen.startswith(lines)):
            return self._add_final(JournalUpdate([]), summary)
        restarted = not self._seen or not lines.startswith(self._seen)
        if restarted:
            self._seen, self._classes, self._ended = b"", [], False
        records = self._decode_new(lines)
        self._seen = lines
        events = [event for record in records for event in record_events(record, self._classes)]
        return self._add_final(JournalUpdate(events, restarted), summary)

    def _add_final(self, news: JournalUpdate, summary: dict[str, Any] | None) -> JournalUpdate:
        """The final numbers of a finished run, once."""
        if summary is None or not self._seen:
            return news
        last: list[LogEvent] = [] if self._ended else [final_event(summary)]
        self._ended = True
        return JournalUpdate([*news.events, *last], news.restarted, summary)

    def _decode_new(self, lines: bytes) -> list[Record]:
        first = self._seen.count(b"\n") + 1
        records = []
        for number, line in enumerate(lines[len(self._seen) :].splitlines(), start=first):
            try:
                records.append(decode(line))
                if isinstance(records[-1], Start) != (number == 1):
                    raise ValueError("a journal has one start, on its first line")
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{self.folder.journal}, line {number} is damaged: {error}. Put back a good copy."
                ) from error
        return records


def record_events(record: Record, classes: list[str]) -> Iterator[LogEvent]:
    """What a record says, where these `classes` were met before it; a new one is added to them."""
    if isinstance(record, NewClass):
        classes.append(record.label)
        yield ScalarEvent(record.at, {"classes": float(len(classes))})
        yield TextEvent(record.at, "new_class", record.label)
    elif isinstance(record, Evaluation):
        yield ScalarEvent(record.at, _evaluation_values(record, classes))


def final_event(summary: Mapping[str, Any]) -> ScalarEvent:
    """The numbers of a finished run; one that is not defined for it is left out."""
    values = {name: summary.get(key) for key, name in FINAL.items()}
    known = {name: float(value) for name, value in values.items() if value is not None}
    return ScalarEvent(int(summary["samples"]), known)


def _evaluation_values(record: Evaluation, classes: list[str]) -> dict[str, float]:
    """The end of a task often comes with a query at the same step, so all of its numbers have names of their own."""
    values = {"accuracy": record.accuracy, "learning_rate": record.rate, "updates": float(record.updates)}
    for label, correct, total in zip(classes, record.correct, record.total, strict=True):
        if total:
            values[f"class_accuracy/{label}"] = correct / total
    return {f"task_end/{name}": value for name, value in values.items()} if isinstance(record, TaskEnd) else values


def _whole_lines(path: Path) -> bytes:
    """The journal without a line that is still being written; nothing, where there is none yet."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b""
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be unpacked: {error}. Put back a good copy.") from error
    return data[: data.rfind(b"\n") + 1]

"""From a run's journal to an experiment logger, afterwards or while it is written; the run itself is only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from iblurry.errors import InputError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, Logged, NewClass, Record, Stopped, TaskEnd, decode_lines, read_bytes
from iblurry.studies.loggers.logger import ExperimentLogger, describe_run

FINAL = {  # of summary.json
    "a_auc": "final/A_AUC",
    "a_avg": "final/A_avg",
    "a_last": "final/A_last",
    "f_last": "final/F_last",
    "seconds": "final/seconds",
    "samples_per_second": "final/samples_per_second",
}


class LogEvent(NamedTuple):
    """Numbers and texts by name after `step` samples."""

    step: int
    values: Mapping[str, float | str]


@dataclass(frozen=True)
class JournalUpdate:
    """What came since the last look at a run; `summary` is that of a finished run."""

    events: list[LogEvent]
    restarted: bool = False  # these are the first events of a run; what was logged of it before is void
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
    location : str or None
        Where the run can be looked at, once it has begun.
    events : int
        Logged so far.
    summary : dict or None
        Of a finished run.
    """

    def __init__(self, folder: Path, make: Callable[[], ExperimentLogger]) -> None:
        self.follower = RunFollower(folder)
        self.location: str | None = None
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
            if self._logger is not None and news != JournalUpdate([]):
                with self._explain_errors(self._logger):
                    self._log(self._logger, news)
            self.summary = news.summary
        return self.summary is not None

    def close(self) -> None:
        """Finish the logging, at the end of the run or before it."""
        if self._logger is not None and self.location is not None:
            with self._explain_errors(self._logger):
                self._logger.finish(self.summary)
            self._logger = None

    def _log(self, logger: ExperimentLogger, news: JournalUpdate) -> None:
        if news.restarted:
            self.location = logger.start(describe_run(self.follower.folder))
        for step, values in news.events:
            if numbers := {name: value for name, value in values.items() if not isinstance(value, str)}:
                logger.log_scalars(numbers, step)
            for name, value in values.items():
                if isinstance(value, str):
                    logger.log_text(name, value, step)
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
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = RunFolder(folder)
        self._seen = b""  # whole lines of the journal
        self._classes: list[str] = []
        self._ended = False

    def poll(self) -> JournalUpdate:
        """What is new; nothing, while a run has not begun."""
        summary = self.folder.summary()  # before the journal: of a finished run that is then complete
        path, data = self.folder.journal, b""
        with suppress(FileNotFoundError):  # not begun
            data = read_bytes(path)
        lines = data[: data.rfind(b"\n") + 1]  # without a line that is still being written
        news = JournalUpdate([])
        if lines != self._seen and (summary is not None or not self._seen.startswith(lines)):
            restarted = not self._seen or not lines.startswith(self._seen)
            if restarted:
                self._seen, self._classes, self._ended = b"", [], False
            new = lines[len(self._seen) :].splitlines()
            records = decode_lines(path, new, first=1 + self._seen.count(b"\n"))
            events = [event for record in records for event in record_events(record, self._classes)]
            self._seen, news = lines, JournalUpdate(events, restarted)
        if summary is None or not self._seen:
            return news
        final = [] if self._ended else [final_event(summary)]  # once
        self._ended = True
        return replace(news, events=news.events + final, summary=summary)


def record_events(record: Record, classes: list[str]) -> Iterator[LogEvent]:
    """What a record says, where these `classes` were met before it; a new one is added to them.

    The end of a task often comes with a query at the same step, so all of its numbers have names of their own.
    """
    if isinstance(record, NewClass):
        classes.append(record.label)
        yield LogEvent(record.at, {"classes": float(len(classes))})
        yield LogEvent(record.at, {"new_class": record.label})
    elif isinstance(record, Logged):
        yield LogEvent(record.at, {f"own/{record.name}": record.value})
    elif isinstance(record, Stopped):
        yield LogEvent(record.at, {"stopped": record.reason})
    elif isinstance(record, Evaluation):
        values = {"accuracy": record.accuracy, "learning_rate": record.rate, "updates": float(record.updates)}
        for label, correct, total in zip(classes, record.correct, record.total, strict=True):
            if total:
                values[f"class_accuracy/{label}"] = correct / total
        prefix = "task_end/" if isinstance(record, TaskEnd) else ""
        yield LogEvent(record.at, {prefix + name: value for name, value in values.items()})


def final_event(summary: Mapping[str, Any]) -> LogEvent:
    """The numbers of a finished run; one that is not defined for it is left out."""
    known = {name: float(summary[key]) for key, name in FINAL.items() if summary.get(key) is not None}
    end = max(summary["samples"], summary.get("stopped", {}).get("at", 0))  # a stop may come after the last query
    return LogEvent(int(end), known)

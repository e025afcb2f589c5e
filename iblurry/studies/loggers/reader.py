"""Follows a run's folder while it is written, or reads it afterwards; it writes nothing there."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iblurry.errors import DataError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Record, Start, decode
from iblurry.studies.loggers.events import Event, events, final
from iblurry.studies.loggers.facts import Facts, facts


@dataclass(frozen=True)
class News:
    """What came since the last look."""

    events: list[Event]
    anew: bool = False  # these events are the first of a run, and whatever was told of it before is void
    summary: dict[str, Any] | None = None  # of a finished run


class Reader:
    """Tells every event once, in order.

    A run that goes on after an interruption cuts its journal back to the checkpoint and writes the same bytes again:
    nothing is told until there are more of them than before. Where they are others (a run deleted and begun again, or
    continued on another machine), all of it is told anew.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = RunFolder(folder)
        self._told = b""  # whole lines of the journal
        self._classes: list[str] = []
        self._ended = False

    def facts(self) -> Facts:
        """What the folder says of the run."""
        return facts(self.folder)

    def news(self) -> News:
        """What is new; nothing, while a run has not begun."""
        summary = self.folder.summary()  # before the journal: of a finished run that is then complete
        lines = _whole_lines(self.folder.journal)
        if lines == self._told or (summary is None and self._told.startswith(lines)):
            return self._end(News([]), summary)
        anew = not self._told or not lines.startswith(self._told)
        if anew:
            self._told, self._classes, self._ended = b"", [], False
        records = self._decoded(lines)
        self._told = lines
        return self._end(News([event for record in records for event in events(record, self._classes)], anew), summary)

    def _end(self, news: News, summary: dict[str, Any] | None) -> News:
        """The last numbers, once."""
        if summary is None or not self._told:
            return news
        last: list[Event] = [] if self._ended else [final(summary)]
        self._ended = True
        return News([*news.events, *last], news.anew, summary)

    def _decoded(self, lines: bytes) -> list[Record]:
        first = self._told.count(b"\n") + 1
        records = []
        for number, line in enumerate(lines[len(self._told) :].splitlines(), start=first):
            try:
                records.append(decode(line))
                if isinstance(records[-1], Start) != (number == 1):
                    raise ValueError("a journal has one start, on its first line")
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{self.folder.journal}, line {number} is damaged: {error}. Put back a good copy."
                ) from error
        return records


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

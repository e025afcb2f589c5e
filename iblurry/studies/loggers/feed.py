"""One run on its way from its journal to a writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from iblurry.errors import InputError
from iblurry.studies.loggers.events import Scalars
from iblurry.studies.loggers.reader import News, Reader
from iblurry.studies.loggers.writer import Writer


class Feed:
    """`tell` passes on what is new, as often as one likes; `close` ends the writing."""

    def __init__(self, folder: Path, make: Callable[[], Writer]) -> None:
        self.reader = Reader(folder)
        self.place: str | None = None  # where the run can be looked at, once it has begun
        self.events = 0  # told so far
        self.summary: dict[str, Any] | None = None  # of a finished run
        self._make = make
        self._writer: Writer | None = None  # made when there is something to write

    def tell(self) -> bool:
        """Passes on what is new; True once the run is finished and all of it is told."""
        if self.summary is None:
            news = self.reader.news()
            if news.anew:
                self._writer, self.events = self._writer or self._make(), 0
            if self._writer is not None and (news.anew or news.events or news.summary):
                self._guarded(lambda writer: self._write(writer, news))
            self.summary = news.summary
        return self.summary is not None

    def close(self) -> None:
        """Ends the writing, at the end of the run or before it."""
        if self._writer is not None and self.place is not None:
            self._guarded(lambda writer: writer.end(self.summary))
            self._writer = None

    def _write(self, writer: Writer, news: News) -> None:
        if news.anew:
            self.place = writer.start(self.reader.facts())
        for event in news.events:
            if isinstance(event, Scalars):
                writer.scalars(event.values, event.step)
            else:
                writer.text(event.name, event.text, event.step)
        writer.flush()
        self.events += len(news.events)

    def _guarded(self, deed: Callable[[Writer], None]) -> None:
        writer = self._writer
        assert writer is not None
        try:
            deed(writer)
        except writer.errors as error:
            raise InputError(
                f"{type(writer).__name__} refused {self.reader.folder.path}: {str(error).rstrip('.')}. The run itself "
                "is untouched; the same command tries again."
            ) from error

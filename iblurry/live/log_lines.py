"""The lines that a service writes to standard error: with time and level, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error")


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z WARNING iblurry.live.process: A sentence.`, and a traceback in lines behind it."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        line = f"{_time(record)} {record.levelname} {record.name}: {record.message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object in one line: time, level, logger, message, and the traceback as `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        told["message"] = record.getMessage()
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


@contextmanager
def written(level: str, *, as_json: bool) -> Iterator[None]:
    """Meanwhile this package's records from `level` on, and others' from WARNING on, are written to standard error.

    Parameters
    ----------
    level : str
        One of LEVELS.
    as_json : bool
        JSON in place of text.
    """
    root, own = logging.getLogger(), logging.getLogger("iblurry")
    handler, before = logging.StreamHandler(sys.stderr), own.level
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root.addHandler(handler)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.setLevel(before)


def _time(record: logging.LogRecord) -> str:
    """ISO 8601, in UTC."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

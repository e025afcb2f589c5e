"""The lines that a service writes to standard error: with time and level, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LEVELS = ("debug", "info", "warning", "error")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"  # and a traceback in lines behind it


class _Formatter(logging.Formatter):
    """Times are ISO 8601, in UTC: 2026-01-31T12:00:00.123Z."""

    converter = staticmethod(time.gmtime)
    default_time_format, default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"


class _JsonFormatter(_Formatter):
    """One object in one line: time, level, logger, message, and the traceback as `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": self.formatTime(record), "level": record.levelname.lower(), "logger": record.name}
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
    handler.setFormatter(_JsonFormatter() if as_json else _Formatter(TEXT))
    root.addHandler(handler)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.setLevel(before)

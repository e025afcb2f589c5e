"""Ctrl-C as a question, not a blow: the run hears of it between two samples, saves, and stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether someone asked the run to stop."""

    asked = False


@contextmanager
def stopping_politely() -> Iterator[Stop]:
    """SIGINT and SIGTERM set `asked`; a second one ends the program at once, as if nobody had caught it."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        stop.asked = True
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

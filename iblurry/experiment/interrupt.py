"""Ctrl-C as a question, not a blow: the run hears of it between two samples, saves, and stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_current: Stop | None = None  # signals belong to the process, so there is one at a time


class Stop:
    """Whether someone asked to stop."""

    asked = False


@contextmanager
def stopping_politely(*, patient: bool = False) -> Iterator[Stop]:
    """SIGINT and SIGTERM set `asked`; a second one acts as if nobody had caught it, unless `patient`.

    Inside another `stopping_politely` it gives the same Stop: who asks a run to stop asks the next one, too.
    """
    global _current
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield Stop()
        return
    if _current is not None:
        yield _current
        return
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.asked = True
        if not patient:
            signal.signal(number, before[number])

    # What is ignored stays so: shells do that to SIGINT for programs in the background.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {int(number): signal.getsignal(number) or signal.SIG_DFL for number in numbers}
    for number in before:
        signal.signal(number, ask)
    _current = stop
    try:
        yield stop
    finally:
        _current = None
        for number, handler in before.items():
            signal.signal(number, handler)

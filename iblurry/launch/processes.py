"""How processes end: SIGINT and SIGTERM as requests, which runs notice between two updates, and the end of a parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether runs were asked to save and stop."""

    is_set = False


@contextmanager
def stop_on_signals(*, repeatedly: bool = False) -> Iterator[StopRequest]:
    """Inside, SIGINT and SIGTERM set the request; outside the main thread, which gets no signals, nothing does.

    Parameters
    ----------
    repeatedly : bool
        By default a second signal acts as if it was not caught (KeyboardInterrupt, the end of the process). True:
        it only sets the request again, for workers that get both the signal of the process group and the parent's.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        request.is_set = True
        if not repeatedly:
            signal.signal(number, before[number])

    # Ignored signals stay ignored: shells ignore SIGINT for programs in the background.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {int(number): signal.getsignal(number) or signal.SIG_DFL for number in numbers}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Ends this process at once when the one that started it does, also when that was killed.

    Nothing is finished first: for processes that lose nothing that way. Both must be Python's, by multiprocessing.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()

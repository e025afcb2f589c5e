"""Processes that this package starts."""

from __future__ import annotations

import multiprocessing
import os
import threading


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

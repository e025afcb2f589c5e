"""The child: the process that learns, seen from the server; started again when it is lost."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from iblurry.live.process import learn
from iblurry.live.settings import Settings

LOGGER = logging.getLogger(__name__)
GIVE_UP = 5  # losses in a row without a checkpoint between them
SLOWLY = (0.2, 1.0, 5.0, 15.0, 30.0)  # seconds before it is started again
FAREWELL = 60.0  # seconds to finish a sample and save


class Child:
    """A thread of the server reads what the child tells and hands it on, message by message; another one tells it."""

    def __init__(self, folder: Path, settings: Settings, hear: Callable[[tuple[Any, ...]], None]) -> None:
        self.folder, self.settings, self._hear = folder, settings, hear
        self.restarts = 0
        self.pid: int | None = None  # of the process that lives now
        self.closing = False
        self._process: Any = None
        self._pipe: Connection | None = None
        self._sending = threading.Lock()  # held while something is sent
        self._orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._waiting: set[str] = set()  # orders in there
        self._thread = threading.Thread(target=self._watch, name="child", daemon=True)
        self._teller = threading.Thread(target=self._tell, name="teller", daemon=True)
        self._wake = threading.Event()  # cuts a wait before a restart short

    def start(self) -> None:
        self._thread.start()
        self._teller.start()

    def tell(self, order: str) -> bool:
        """Does not wait, however busy the child is. False when nobody is there; who comes next looks at the log anyway.

        An order that has not left yet is not given twice.
        """
        if self._pipe is None:
            return False
        if order not in self._waiting:
            self._waiting.add(order)
            self._orders.put(order)
        return True

    def close(self) -> None:
        """Has it finish its sample and save."""
        self.closing = True
        self._wake.set()
        self.tell("stop")
        self._thread.join(FAREWELL)
        if self._thread.is_alive():
            LOGGER.warning("The process that learns did not stop within %s seconds and is killed.", FAREWELL)
            self._process.kill()
            self._thread.join()
        self._orders.put(None)
        self._teller.join()

    def _tell(self) -> None:
        """A pipe takes only so much, and whoever writes to a full one waits until the child reads."""
        while (order := self._orders.get()) is not None:
            self._waiting.discard(order)  # before it is sent: what is asked for from now on needs another one
            with self._sending:
                if self._pipe is not None:
                    with contextlib.suppress(OSError):  # it is gone; the other thread hears of that
                        self._pipe.send(order)

    def _watch(self) -> None:
        fruitless = 0
        while True:
            saved, end = self._live()
            if self.closing or end == "stalled":
                return
            fruitless = 0 if saved else fruitless + 1
            if fruitless >= GIVE_UP:
                self._hear(("stalled", f"The process that learns was lost {fruitless} times in a row; see its log."))
                return
            self.restarts += 1
            self._hear(("lost", f"The process that learns was lost ({end}) and is started again."))
            self._wake.wait(SLOWLY[min(fruitless, len(SLOWLY) - 1)])

    def _live(self) -> tuple[bool, str]:
        """One life: whether it saved something, and how it ended."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=learn, args=(theirs, self.folder, self.settings), name="learning", daemon=True)
        process.start()
        self._process, self.pid = process, process.pid
        theirs.close()
        self._pipe = ours
        if self.closing:  # it was asked to stop before it was there
            self.tell("stop")
        saved, end = False, ""
        try:
            while True:
                message = ours.recv()
                saved = saved or message[0] == "saved"
                if message[0] in ("stalled", "stopped"):
                    end = message[0]
                self._hear(message)
        except (EOFError, OSError):
            LOGGER.info("The process that learns has ended.")
        finally:
            with self._sending:
                self._pipe = None
                ours.close()
            self._bury(process)
        return saved, end or f"exit code {process.exitcode}"

    def _bury(self, process: Any) -> None:
        process.join(FAREWELL)
        if process.is_alive():
            LOGGER.warning("The process that learns did not end within %s seconds and is killed.", FAREWELL)
            process.kill()
            process.join()

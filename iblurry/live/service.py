"""The service: a log that accepts, a process that learns, a thread that answers, and what is known of all three."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import StoppedError
from iblurry.files import locked
from iblurry.live.answerer import Answerer
from iblurry.live.child import Child
from iblurry.live.exchange import Answers, Kept, Labelled, Receipt
from iblurry.live.limits import Limits
from iblurry.live.log import Log
from iblurry.live.refusal import Refusal
from iblurry.live.room import Room
from iblurry.live.settings import Settings
from iblurry.live.standing import Standing
from iblurry.live.writer import Writer

LOGGER = logging.getLogger(__name__)
LOCK = "service.lock"
EVENTS = 256  # that wait for one listener; a slow one loses its oldest
TICK = 1.0  # seconds between two looks at what has changed
ASKED = 10.0  # seconds to wait for what only the process that learns knows


class Service:
    """Everything is called from one asyncio loop."""

    def __init__(self, folder: Path, settings: Settings, limits: Limits | None = None) -> None:
        self.folder, self.settings, self.limits = folder, settings, limits or Limits()
        self.room = Room(settings, self.limits)
        self.standing = Standing(settings, self.limits)
        self._open = ExitStack()
        self._listeners: set[asyncio.Queue[tuple[str, dict[str, Any]]]] = set()
        self._asked: asyncio.Future[list[Kept]] | None = None  # the memory, by whoever wants to see it now

    async def start(self) -> None:
        """Ready when it returns: what was saved answers, and samples are accepted; the rest is replayed meanwhile.

        A new service has nothing to answer with, and does not wait for its learner.
        """
        self._loop = asyncio.get_running_loop()
        self._up = asyncio.Event()
        try:
            self._open.enter_context(locked(self.folder / LOCK, timeout=3.0, remedy="choose another --data-dir"))
            self.settings = Settings.of(self.folder, **_plain(self.settings))
            log = Log(self.folder, max_classes=self.settings.max_classes, most_bytes=self.room.log_bytes)
            self.standing.begin(log)
            self._writer = Writer(log, allow=self._allow, tell=self._met)
            self._answerer = Answerer(self.settings)
            self._child = Child(self.folder, self.settings, self._hear)
            for helper in (self._writer, self._answerer, self._child):
                helper.start()
                self._open.callback(helper.close)
            await asyncio.wrap_future(self._answerer.up)
            if log.accepted or any(self.folder.glob("checkpoint-*")):  # nobody is to hear that nothing was learnt
                await self._up.wait()
            if self.standing.stalled:
                raise StoppedError(self.standing.stalled)
            if Settings.kept(self.folder) != self.settings:
                self.settings.keep(self.folder)  # nothing was accepted before
        except BaseException:
            await asyncio.to_thread(self._open.close)
            raise
        self._ticking = asyncio.create_task(self._tick())

    async def learn(self, samples: Sequence[Labelled], *, key: str | None = None) -> Receipt:
        """On the disk when it returns; Refusal otherwise, and then nothing of it is."""
        self._check_open()
        receipt = await asyncio.wrap_future(self._writer.write(samples, key))
        self._child.tell("wake")
        return receipt

    async def predict(self, pixels: NDArray[np.uint8]) -> Answers:
        """(B, C, H, W); from the latest snapshot, whatever is being learnt."""
        if not self.standing.model:
            raise Refusal(409, "nothing_learnt", "Nothing was learnt yet, so there is no answer; send a sample first.")
        return await asyncio.wrap_future(self._answerer.ask(pixels))

    async def memory(self) -> list[Kept]:
        """What is kept, as it is between two samples."""
        self._check_open()
        if not self.standing.learnt:  # nor has a new one to wait for its learner
            return []
        if self._asked is None:
            if not self._child.tell("memory"):
                raise Refusal(503, "recovering", "The process that learns is being started; ask again.", retry_after=2)
            self._asked = self._loop.create_future()
        asked = self._asked
        try:
            return await asyncio.wait_for(asyncio.shield(asked), ASKED)
        except TimeoutError as error:
            if self._asked is asked:
                self._asked = None
            slow = f"The process that learns has not answered for {ASKED:.0f} seconds; ask again."
            raise Refusal(503, "recovering", slow, retry_after=2) from error

    def status(self) -> dict[str, Any]:
        return self.standing.status() | {"restarts": self._child.restarts} | self.room.used(self.folder, self.standing)

    def classes(self) -> list[dict[str, Any]]:
        return self.standing.classes

    def history(self) -> list[dict[str, Any]]:
        return self.standing.history

    def ready(self) -> str | None:
        """None, or why not."""
        return self.standing.unready

    @contextmanager
    def subscribe(self) -> Iterator[asyncio.Queue[tuple[str, dict[str, Any]]]]:
        """(event, data) as it happens; ("end", {}) is the last one."""
        listener: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(EVENTS)
        listener.put_nowait(("status", self.status()))
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """Finishes the sample under way and saves; what waits is in the log, and learnt after the next start."""
        if self.standing.stopping:
            return
        self.standing.stopping = True
        self._ticking.cancel()
        self._emit("end", {})
        await asyncio.to_thread(self._open.close)

    # ------------------------------------------------------------------------------------------------ within

    def _check_open(self) -> None:
        if self.standing.stopping:
            raise Refusal(
                503, "stopping", "The service is being stopped; send it again when it is back.", retry_after=5
            )

    def _allow(self, count: int) -> None:
        """In the writer's thread."""
        self.room.check(count, log=self._writer.log, standing=self.standing)

    def _met(self, labels: list[str]) -> None:
        """In the writer's thread: samples of it are on the disk."""
        for label in labels:
            self._loop.call_soon_threadsafe(self._emit, "class", {"label": label})

    def _hear(self, message: tuple[Any, ...]) -> None:
        """In the child's thread."""
        if message[0] == "snapshot" and message[1]:
            self._answerer.put(message[2])
        self._loop.call_soon_threadsafe(self._heard, message)

    def _heard(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("memory", kept):
                if self._asked is not None:
                    self._asked.set_result(kept)
                    self._asked = None
                return
            case ("report", _, points):
                for point in points:
                    self._emit("point", point)
            case ("saved", _, dispensable):
                if dispensable:
                    self._writer.drop(dispensable)
        self.standing.hear(message)
        if message[0] in ("report", "stalled"):
            self._up.set()

    def _emit(self, event: str, data: dict[str, Any]) -> None:
        for listener in self._listeners:
            if listener.full():
                listener.get_nowait()
            listener.put_nowait((event, data))

    async def _tick(self) -> None:
        last: dict[str, Any] | None = None
        while True:
            now = self.standing.status()
            if {k: v for k, v in now.items() if not k.endswith("_seconds")} != last:
                last = {k: v for k, v in now.items() if not k.endswith("_seconds")}
                try:
                    self._emit("status", self.status())
                except OSError as error:  # of the disk that it looks at; listeners hear the next one
                    LOGGER.warning("The status could not be told: %s", error)
            await asyncio.sleep(TICK)


def _plain(settings: Settings) -> dict[str, Any]:
    return settings.to_json() | {"image": settings.image}

"""The service: a log that accepts samples, a process that learns them, a thread that answers, and their status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import StoppedError
from iblurry.files import locked, make_private
from iblurry.live.exporter import ModelExporter, ModelFile
from iblurry.live.log import LogWriter, SampleLog, WriteRequest
from iblurry.live.messages import (
    Acceptance,
    CheckpointSaved,
    Command,
    IncomingSample,
    LearnerReport,
    MemoryContents,
    MemorySample,
    Message,
    Predictions,
    Snapshot,
    Stalled,
)
from iblurry.live.predictor import Predictor
from iblurry.live.process import LearnerProcess
from iblurry.live.quota import Limits, Quota, Refusal
from iblurry.live.settings import Settings
from iblurry.live.status import ServiceStatus

LOGGER = logging.getLogger(__name__)
LOCK = "service.lock"
EVENTS = 256  # queued for one listener; a slow one loses its oldest
STATUS_SECONDS = 1.0  # between two looks at what has changed
SAVE_SECONDS = 10.0  # to wait for a checkpoint
MEMORY_SECONDS = 10.0  # to wait for what only the learner process knows


class Service:
    """A learner that accepts samples durably, learns them in order, and answers meanwhile.

    All methods are called from one asyncio event loop, between `start` and `close`.

    Parameters
    ----------
    folder : Path
        Where samples, checkpoints and settings are kept; made by `start` unless it exists.
    settings : Settings
        What it learns with; `start` refuses others than those an existing folder was begun with.
    limits : Limits, optional
        How much requests may ask of it.
    """

    def __init__(self, folder: Path, settings: Settings, limits: Limits | None = None) -> None:
        self.folder, self.settings, self.limits = folder, settings, limits or Limits()
        self.quota = Quota(settings, self.limits)
        self._status = ServiceStatus(settings, self.limits)
        self._resources = ExitStack()
        self._listeners: set[asyncio.Queue[tuple[str, dict[str, Any]]]] = set()
        self._memory: asyncio.Future[list[MemorySample]] | None = None  # asked for and not here yet

    async def start(self) -> None:
        """Return when samples are accepted and saved states answer; samples behind them are replayed meanwhile.

        A new service has nothing to answer with, and does not wait for its learner. Settings that cannot be used are
        an InputError, before anything is written.
        """
        if Settings.load(self.folder) is None:
            self.settings.check()
        self._loop = asyncio.get_running_loop()
        self._reported = asyncio.Event()
        try:
            self._resources.enter_context(locked(self.folder / LOCK, timeout=3.0, remedy="choose another --data-dir"))
            for sentence in make_private(self.folder):
                LOGGER.warning(sentence)
            self.settings = Settings.of(self.folder, **self.settings.to_json() | {"image": self.settings.image})
            log = SampleLog(self.folder, max_classes=self.settings.max_classes, max_bytes=self.quota.log_bytes)
            self._status.start(log)
            check = partial(self.quota.check, status=self._status)
            self._writer = LogWriter(log, check=check, on_new_labels=self._on_new_labels)
            self._predictor = Predictor(self.settings)
            self._process = LearnerProcess(self.folder, self.settings, self._receive)
            self._exporter = ModelExporter(self.folder, self.settings)
            self._resources.callback(self._exporter.close)
            for worker in (self._writer, self._predictor, self._process):
                worker.start()
                self._resources.callback(worker.close)
            # Otherwise it would answer for a moment that nothing was learnt.
            if log.accepted or any(self.folder.glob("checkpoint-*")):
                await self._reported.wait()
            if self._status.stalled:
                raise StoppedError(self._status.stalled)
            if Settings.load(self.folder) != self.settings:
                self.settings.save(self.folder)  # nothing was accepted before
        except BaseException:
            await asyncio.to_thread(self._resources.close)
            raise
        self._ticking = asyncio.create_task(self._emit_status())
        LOGGER.info("%s has started; accepted: %s, learnt: %s.", self.folder, log.accepted, self._status.learnt)

    async def learn(self, samples: Sequence[IncomingSample], *, key: str | None = None) -> Acceptance:
        """Accept samples: they are on the disk when it returns, and nothing of them is where it raises a Refusal.

        Parameters
        ----------
        samples : sequence of IncomingSample
            Labels and pixels of the service's shape.
        key : str, optional
            Idempotency key: the same samples under the same key are accepted once.
        """
        self._check_open()
        acceptance = await asyncio.wrap_future(self._writer.submit(WriteRequest(samples, key)))
        assert acceptance is not None
        self._process.send(Command.WAKE)
        return acceptance

    async def predict(self, pixels: NDArray[np.uint8]) -> Predictions:
        """Predict images (B, C, H, W) from the newest snapshot, whatever is being learnt."""
        if not self._status.model:
            raise Refusal(409, "nothing_learnt", "Nothing was learnt yet, so there is no answer; send a sample first.")
        return await asyncio.wrap_future(self._predictor.submit(pixels))

    async def memory(self) -> list[MemorySample]:
        """The memory's samples, as they are between two updates."""
        self._check_open()
        if not self._status.learnt:  # without waiting for the learner of a new service
            return []
        if self._memory is None:
            if not self._process.send(Command.SEND_MEMORY):
                raise Refusal(503, "recovering", "The process that learns is being started; ask again.", retry_after=2)
            self._memory = self._loop.create_future()
        memory = self._memory
        try:
            return await asyncio.wait_for(asyncio.shield(memory), MEMORY_SECONDS)
        except TimeoutError as error:
            if self._memory is memory:
                self._memory = None
            message = f"The process that learns has not answered for {MEMORY_SECONDS:.0f} seconds; ask again."
            raise Refusal(503, "recovering", message, retry_after=2) from error

    async def model(self, kind: str, *, known: int | None = None) -> ModelFile | None:
        """The current model as a file of this format (see `exporter.FORMATS`); None if it has learnt `known` samples.

        The state is saved first; that of a service which learns no more is the last one saved.
        """
        self._check_open()
        at = self._status.learnt
        if not at:
            raise Refusal(409, "nothing_learnt", "Nothing was learnt yet, so there is no model; send a sample first.")
        if self._status.stalled is not None:
            at = self._status.report.checkpoint
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                while self._status.report.checkpoint < at:
                    self._process.send(Command.SAVE)
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            message = f"The model could not be saved for {SAVE_SECONDS:.0f} seconds: {self._status.sentence} Ask again."
            raise Refusal(503, "recovering", message, retry_after=2) from error
        return None if known is not None and known >= at else await self._exporter.export(kind, at)

    def status(self) -> dict[str, Any]:
        """The JSON of /v1/status."""
        disk = self.quota.disk_usage(self.folder, self._status)
        return self._status.to_json() | {"restarts": self._process.restarts} | disk

    def classes(self) -> list[dict[str, Any]]:
        """The rows of /v1/classes."""
        return self._status.report.classes

    def history(self) -> list[dict[str, Any]]:
        """The points of /v1/history."""
        return self._status.report.history

    def not_ready(self) -> str | None:
        """Why no requests should be sent, or None."""
        return self._status.not_ready

    @contextmanager
    def subscribe(self) -> Iterator[asyncio.Queue[tuple[str, dict[str, Any]]]]:
        """A queue of (event, data); ("end", {}) is the last one."""
        listener: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(EVENTS)
        listener.put_nowait(("status", self.status()))
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """Finish the sample being learnt and save; samples that wait are in the log, for the next start."""
        if self._status.stopping:
            return
        self._status.stopping = True
        self._ticking.cancel()
        self._emit("end", {})
        await asyncio.to_thread(self._resources.close)
        LOGGER.info("%s was closed; learnt: %s.", self.folder, self._status.learnt)

    def _check_open(self) -> None:
        if self._status.stopping:
            message = "The service is being stopped; send it again when it is back."
            raise Refusal(503, "stopping", message, retry_after=5)

    def _on_new_labels(self, labels: list[str]) -> None:
        """In the writer's thread."""
        for label in labels:
            self._loop.call_soon_threadsafe(self._emit, "class", {"label": label})

    def _receive(self, message: Message) -> None:
        """In the supervisor's thread."""
        if isinstance(message, Snapshot) and message.at:
            self._predictor.update(message)
        self._loop.call_soon_threadsafe(self._handle, message)

    def _handle(self, message: Message) -> None:
        """In the event loop."""
        match message:
            case MemoryContents(samples):
                if self._memory is not None:
                    self._memory.set_result(samples)
                    self._memory = None
            case LearnerReport(new_points=points):
                for point in points:
                    self._emit("point", point)
            case CheckpointSaved(droppable=droppable):
                if droppable:
                    self._writer.submit(droppable)
        self._status.update(message)
        if isinstance(message, LearnerReport | Stalled):
            self._reported.set()

    def _emit(self, event: str, data: dict[str, Any]) -> None:
        for listener in self._listeners:
            if listener.full():
                listener.get_nowait()
            listener.put_nowait((event, data))

    async def _emit_status(self) -> None:
        """About once a second while something changes."""
        last: dict[str, Any] | None = None
        while True:
            now = {key: value for key, value in self._status.to_json().items() if not key.endswith("_seconds")}
            if now != last:
                last = now
                try:
                    self._emit("status", self.status())
                except OSError as error:  # of the disk usage; listeners get the next one
                    LOGGER.warning("The status could not be sent to listeners: %s", error)
            await asyncio.sleep(STATUS_SECONDS)

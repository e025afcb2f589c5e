"""The service: a log that accepts operations, a process that applies them, a thread that answers, and their status."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import StoppedError
from iblurry.live.exporter import ModelExporter, ModelFile
from iblurry.live.log import DropRequest, LogWriter, RehearseRequest, SampleLog, WriteRequest
from iblurry.live.messages import (
    Acceptance,
    CaughtUp,
    CheckpointSaved,
    Command,
    IncomingSample,
    LearnerReport,
    MemoryContents,
    MemorySample,
    Message,
    Operation,
    Predictions,
    Snapshot,
    Stalled,
)
from iblurry.live.predictor import Predictor
from iblurry.live.process import LearnerProcess
from iblurry.live.questions import QuestionStore
from iblurry.live.quota import Limits, Refusal
from iblurry.live.settings import FILE as SETTINGS
from iblurry.live.settings import Settings
from iblurry.live.status import ServiceStatus
from iblurry.storage.files import locked, make_private
from iblurry.storage.untrusted import named

LOGGER = logging.getLogger(__name__)
LOCK = "service.lock"
EVENTS = 256  # queued for one listener; a slow one loses its oldest
STATUS_SECONDS = 1.0  # between two looks at what has changed
LEARN_SECONDS = 10.0  # to wait until what was accepted is learnt, before a model is exported
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
    idle_updates : int
        Updates from the memory that it takes after the last sample or correction, while nothing else is to be done.
    unknown_rate : float
        Share of samples of known classes that may be called unknown by mistake; 0: none is.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        limits: Limits | None = None,
        *,
        idle_updates: int = 0,
        unknown_rate: float = 0.05,
    ) -> None:
        self.folder, self.settings, self.limits, self.idle_updates = folder, settings, limits or Limits(), idle_updates
        self.unknown_rate = unknown_rate
        self._questions = QuestionStore(settings.image, self.limits)
        self._status = ServiceStatus(settings, self.limits, idle_updates=idle_updates)
        self._resources = ExitStack()
        self._asking = 0  # requests that wait for an answer
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
        self._reported, self._changed = asyncio.Event(), asyncio.Event()
        try:
            self._resources.enter_context(locked(self.folder / LOCK, timeout=3.0, remedy="choose another --data-dir"))
            for sentence in make_private(self.folder):
                LOGGER.warning(sentence)
            self.settings = Settings.of(self.folder, **self.settings.to_json() | {"image": self.settings.image})
            with named(self.folder / SETTINGS):
                self.trains = self.settings.build_method().pace.updates_per_sample > 0  # weights; closed forms do not
            log = SampleLog(self.folder, max_classes=self.settings.max_classes, max_bytes=self._status.log_bytes)
            self._status.start(log)
            self._writer = LogWriter(log, check=self._status.check_room, on_new_labels=self._on_new_labels)
            with named(self.folder / SETTINGS):
                self._predictor = Predictor(self.settings, self.unknown_rate)
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
        return await self._write(WriteRequest(samples, key))

    async def hold_out(self, samples: Sequence[IncomingSample], *, key: str | None = None) -> Acceptance:
        """Accept samples that are never learnt, as durably as those that are; the model is asked about them.

        Parameters
        ----------
        samples : sequence of IncomingSample
            As in `learn`; a label that no learnt sample has makes no class.
        key : str, optional
            As in `learn`.
        """
        held = [Operation("hold", label=label, pixels=pixels.tobytes()) for label, pixels in samples]
        return await self._write(WriteRequest(held, key))

    async def correct(self, corrections: Sequence[Operation], *, key: str | None = None) -> Acceptance:
        """Accept corrections of samples and classes, all of them or none, as durably as samples.

        Parameters
        ----------
        corrections : sequence of Operation
            In the order in which they are applied.
        key : str, optional
            As in `learn`.
        """
        return await self._write(WriteRequest(corrections, key))

    async def label(self, labels: Sequence[tuple[str, str]], *, key: str | None = None) -> Acceptance:
        """Accept labels of images that were predicted before, as samples; a Refusal where one is not there any more.

        Parameters
        ----------
        labels : sequence of (str, str)
            Ids of predictions, and labels.
        key : str, optional
            As in `learn`; a repeated request is answered also when the images are gone.
        """
        taken: dict[str, NDArray[np.uint8]] = {}

        def find() -> list[IncomingSample]:
            for question, _ in labels:
                taken[question] = self._questions.take(question)
            return [IncomingSample(label, taken[question]) for question, label in labels]

        digest = hashlib.sha256(repr(("label", list(labels))).encode()).digest()
        try:
            return await self._write(WriteRequest((), key, digest, find))
        except Refusal:
            for question, pixels in taken.items():
                self._questions.put_back(question, pixels)
            raise

    async def predict(self, pixels: NDArray[np.uint8]) -> Predictions:
        """Predict images (B, C, H, W) from the newest snapshot, whatever is being learnt."""
        if not self._status.model:
            raise Refusal(409, "nothing_learnt", "The service has not learnt any sample yet; send a sample first.")
        self._asking += 1
        try:
            await asyncio.sleep(0)  # whoever has asked meanwhile is counted, too: several are answered together
            predictions = self._predictor.try_now(pixels) if self._asking == 1 else None
            if predictions is None:
                predictions = await asyncio.wrap_future(self._predictor.submit(pixels))
        finally:
            self._asking -= 1
        return predictions._replace(ids=tuple(self._questions.add(pixels)))

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
        """The current model as a file of this format (see `exporter.FORMATS`); None if `known` is its last operation.

        What was accepted before is learnt first, within LEARN_SECONDS, and the state is saved; that of a service which
        learns no more is the last one saved.
        """
        self._check_open()
        accepted, wanted = self._status.log.accepted, self._status.log.operations
        until = self._loop.time() + LEARN_SECONDS
        while self._status.report.applied < wanted and self._status.stalled is None and self._loop.time() < until:
            await asyncio.sleep(0.05)
        at = min(wanted, self._status.report.applied)
        if not self._status.learnt:
            raise Refusal(409, "nothing_learnt", "The service has no model yet; send a sample first.")
        if self._status.stalled is not None:
            at = self._status.report.checkpoint_operation
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                while self._status.report.checkpoint_operation < at:
                    self._process.send(Command.SAVE)
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            message = f"The model could not be saved for {SAVE_SECONDS:.0f} seconds: {self._status.sentence} Ask again."
            raise Refusal(503, "recovering", message, retry_after=2) from error
        if known is not None and known >= at:
            return None
        return await self._exporter.export(kind, at, accepted)

    def status(self) -> dict[str, Any]:
        """The JSON of /v1/status."""
        disk = self._status.disk_usage(self.folder)
        return self._status.to_json() | {"restarts": self._process.restarts} | disk

    def classes(self) -> list[dict[str, Any]]:
        """The rows of /v1/classes."""
        return self._status.report.classes

    def history(self) -> list[dict[str, Any]]:
        """The points of /v1/history."""
        return self._status.report.history

    def confusion(self) -> list[dict[str, Any]]:
        """The entries of /v1/confusion."""
        return self._status.report.confusion

    def not_ready(self) -> str | None:
        """Why no requests should be sent, or None."""
        return self._status.not_ready

    @property
    def listeners(self) -> int:
        """How many clients listen to events."""
        return len(self._listeners)

    def end_events(self) -> None:
        """Let all listeners go, since the service stops."""
        self._emit("end", {})

    @contextmanager
    def subscribe(self) -> Iterator[asyncio.Queue[tuple[str, dict[str, Any]]]]:
        """A queue of (event, data); ("end", {}) is the last one."""
        self._check_open()
        if self.listeners >= self.limits.listeners:
            message = f"{self.limits.listeners} listeners are connected already; close one, or try again later."
            raise Refusal(429, "too_many_listeners", message, retry_after=10)
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
        self.end_events()
        await asyncio.to_thread(self._resources.close)
        LOGGER.info("%s was closed; learnt: %s.", self.folder, self._status.learnt)

    async def _write(self, request: WriteRequest) -> Acceptance:
        self._check_open()
        acceptance = await asyncio.wrap_future(self._writer.submit(request))
        assert acceptance is not None
        self._process.send(Command.WAKE)
        return acceptance

    def _rehearse(self, after: int, updates: int) -> None:
        """Write one step of rehearsal to the log, unless enough were taken or something else is to be done."""
        log = self._status.log
        updates = min(updates, self.idle_updates - log.rehearsed)
        if updates > 0 and after == log.operations and not self._status.stopping:
            step = self._writer.submit(RehearseRequest(after, updates))
            step.add_done_callback(self._on_step)

    def _on_step(self, step: Future[Acceptance | None]) -> None:
        """Handles a step in the writer's thread; one that was not written is not waited for."""
        if not step.cancelled() and step.exception() is None and step.result() is not None:
            self._process.send(Command.WAKE)

    def _check_open(self) -> None:
        if self._status.stopping:
            message = "The service is being stopped; send it again when it is back."
            raise Refusal(503, "stopping", message, retry_after=5)

    def _on_new_labels(self, labels: list[str]) -> None:
        """Handles new labels in the writer's thread."""
        for label in labels:
            self._loop.call_soon_threadsafe(self._emit, "class", {"label": label})

    def _receive(self, message: Message) -> None:
        """Receives a message in the supervisor's thread."""
        if isinstance(message, Snapshot) and message.at:
            self._predictor.update(message)
        self._loop.call_soon_threadsafe(self._handle, message)

    def _handle(self, message: Message) -> None:
        """Handles a message in the event loop."""
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
                    self._writer.submit(DropRequest(droppable))
            case CaughtUp(at, updates):
                self._rehearse(at, updates)
        self._status.update(message)
        if isinstance(message, LearnerReport | Stalled):
            self._reported.set()
            self._changed.set()

    def _emit(self, event: str, data: dict[str, Any]) -> None:
        for listener in self._listeners:
            if listener.full():
                listener.get_nowait()
            listener.put_nowait((event, data))

    async def _emit_status(self) -> None:
        """Emits the status at once when something changes, and then about once a second while it does."""
        last: dict[str, Any] | None = None
        while True:
            self._changed.clear()
            now = {key: value for key, value in self._status.to_json().items() if not key.endswith("_seconds")}
            if now != last:
                last = now
                try:
                    self._emit("status", self.status())
                except OSError as error:  # of the disk usage; listeners get the next one
                    LOGGER.warning("The status could not be sent to listeners: %s", error)
                await asyncio.sleep(STATUS_SECONDS)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), STATUS_SECONDS)

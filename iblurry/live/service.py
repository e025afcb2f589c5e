"""The service: a log that accepts operations, a process that applies them, a thread that answers, and their status."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import StoppedError, counted
from iblurry.live.exporter import ModelExporter, ModelFile
from iblurry.live.log import LogWriter, SampleLog, WriteRequest
from iblurry.live.messages import (
    Acceptance,
    CaughtUp,
    CheckpointSaved,
    Command,
    IncomingSample,
    Kind,
    LearnerReport,
    MemoryContents,
    MemorySample,
    Message,
    Operation,
    Predictions,
    ProcessLost,
    Snapshot,
    Stalled,
    Warned,
)
from iblurry.live.predictor import Predictor
from iblurry.live.process import LearnerProcess
from iblurry.live.questions import QuestionStore
from iblurry.live.quota import WAL, Limits, Refusal, max_log_bytes, max_log_operations
from iblurry.live.settings import FILE as SETTINGS, Settings
from iblurry.storage.files import locked, make_private
from iblurry.storage.untrusted import named
from iblurry.version import __version__

LOGGER = logging.getLogger(__name__)
LOCK = "service.lock"
EVENTS = 256  # queued for one listener; a slow one loses its oldest
STATUS_SECONDS = 1.0  # between two looks at what has changed
LEARN_SECONDS = 10.0  # to wait until what was accepted is learnt, before a model is exported
SAVE_SECONDS = 10.0  # to wait for a checkpoint
MEMORY_SECONDS = 10.0  # to wait for what only the learner process knows
CHECKPOINTS = 3  # the newest, the one before it, and one that is being written
MIN_RETRY, MAX_RETRY = 2.0, 60.0  # seconds: Retry-After while the learning rate is unknown, and the longest
SETTINGS_IN_STATUS = ("method", "network", "freeze", "pretrained", "max_classes", "device", "threads")
NOT_IN_STATUS = (  # fields of a report
    *("classes", "history", "confusion", "new_points", "checkpoint_most"),
    *("checkpoint_written", "checkpoint_operation"),
)


class Service:
    """A learner that accepts samples durably, learns them in order, and answers meanwhile.

    All methods are called from one asyncio event loop, between `start` and `close`; other threads only read single
    numbers. `report` is the learner's latest.

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
        self.report = LearnerReport()
        self.stalled: str | None = None  # why nothing is learnt any more
        self._model = self._model_operation = 0  # samples learnt by the snapshot that answers, and its last operation
        self._started_at = self._model_at = time.monotonic()
        self._most_operations = max_log_operations(self.limits)
        size, classes = math.prod(settings.image), settings.max_classes
        self._log_bytes = max_log_bytes(size, kept=self._most_operations, classes=classes)
        self._has_reported = self._is_stopping = False
        self._lost: str | None = None  # how the learner process was lost
        self._warning: str | None = None
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
            log = SampleLog(self.folder, max_classes=self.settings.max_classes, max_bytes=self._log_bytes)
            self.log, self._replayed = log, log.operations  # these are applied, or applied again, before anything new
            self._writer = LogWriter(log, check=self.check_room, on_new_labels=self._on_new_labels)
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
            if self.stalled:
                raise StoppedError(self.stalled)
            if Settings.load(self.folder) != self.settings:
                self.settings.save(self.folder)  # nothing was accepted before
        except BaseException:
            await asyncio.to_thread(self._resources.close)
            raise
        self._ticking = asyncio.create_task(self._emit_status())
        LOGGER.info("%s has started; accepted: %s, learnt: %s.", self.folder, log.accepted, self.report.learnt)

    async def learn(self, samples: Sequence[IncomingSample], *, key: str | None = None) -> Acceptance:
        """Accept samples: they are on the disk when it returns, and nothing of them is where it raises a Refusal.

        Parameters
        ----------
        samples : sequence of IncomingSample
            Labels and pixels of the service's shape.
        key : str, optional
            Idempotency key: the same samples under the same key are accepted once.
        """
        return await self._write(WriteRequest(_operations("sample", samples), key))

    async def hold_out(self, samples: Sequence[IncomingSample], *, key: str | None = None) -> Acceptance:
        """Accept samples that are never learnt, as durably as those that are; the model is asked about them.

        Parameters
        ----------
        samples : sequence of IncomingSample
            As in `learn`; a label that no learnt sample has makes no class.
        key : str, optional
            As in `learn`.
        """
        return await self._write(WriteRequest(_operations("hold", samples), key))

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

        def find() -> list[Operation]:
            for question, _ in labels:
                taken[question] = self._questions.take(question)
            return _operations("sample", [IncomingSample(label, taken[question]) for question, label in labels])

        digest = hashlib.sha256(repr(("label", list(labels))).encode()).digest()
        try:
            return await self._write(WriteRequest(find, key, digest))
        except Refusal:
            for question, pixels in taken.items():
                self._questions.put_back(question, pixels)
            raise

    async def predict(self, pixels: NDArray[np.uint8]) -> Predictions:
        """Predict images (B, C, H, W) from the newest snapshot, whatever is being learnt."""
        if not self._model:
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
        if not self.report.learnt:  # without waiting for the learner of a new service
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
        """The current model as a file of this format (pt2, onnx or safetensors); None if `known` is its last operation.

        What was accepted before is learnt first, within LEARN_SECONDS, and the state is saved; that of a service which
        learns no more is the last one saved.
        """
        self._check_open()
        accepted, wanted = self.log.accepted, self.log.operations
        until = self._loop.time() + LEARN_SECONDS
        while self.report.applied < wanted and self.stalled is None and self._loop.time() < until:
            await asyncio.sleep(0.05)
        at = min(wanted, self.report.applied)
        if not self.report.learnt:
            raise Refusal(409, "nothing_learnt", "The service has no model yet; send a sample first.")
        if self.stalled is not None:
            at = self.report.checkpoint_operation
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                while self.report.checkpoint_operation < at:
                    self._process.send(Command.SAVE)
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            message = f"The model could not be saved for {SAVE_SECONDS:.0f} seconds: {self.sentence} Ask again."
            raise Refusal(503, "recovering", message, retry_after=2) from error
        if known is not None and known >= at:
            return None
        return await self._exporter.export(kind, at, accepted)

    def status(self) -> dict[str, Any]:
        """The JSON of /v1/status."""
        now, settings, report = time.monotonic(), self.settings, self.report
        saved = report.checkpoint_written
        try:
            disk = sum(map(_size, self.folder.iterdir()))
        except OSError:
            disk = None
        return {
            "iblurry": __version__,
            **{name: getattr(settings, name) for name in SETTINGS_IN_STATUS},
            **{name: value for name, value in vars(report).items() if name not in NOT_IN_STATUS},
            "image": list(settings.image),
            "capacity": settings.memory,
            "state": self.state,
            "sentence": self.sentence,
            "accepted": self.log.accepted,
            "queue": self.log.accepted - report.learnt,
            "queue_limit": self.limits.queue,
            "classes": len(self.log.labels),
            "operations": self.log.operations,
            "model": self._model,
            "model_operation": self._model_operation,
            "rehearsed": self.log.rehearsed,
            "idle_updates": self.idle_updates,
            "samples_per_second": self._samples_per_second,
            "model_age_seconds": now - self._model_at,
            "checkpoint_age_seconds": None if saved is None else max(0.0, time.time() - saved),
            "disk_bytes": disk,
            "disk_most": self._log_bytes + 2 * WAL + CHECKPOINTS * report.checkpoint_most + 2**20,
            "restarts": self._process.restarts,
            "uptime_seconds": now - self._started_at,
        }

    @property
    def state(self) -> str:
        if self.stalled is not None:
            return "stalled"
        if self._is_stopping:
            return "stopping"
        if not self._has_reported and self._lost is None:
            return "starting"
        if self._lost is not None or self.report.applied < self._replayed:
            return "recovering"
        return "learning" if self.report.learnt < self.log.accepted else "idle"

    @property
    def sentence(self) -> str:
        """The state in words."""
        if self.log.lost:
            return f"{self.log.lost} Answers come from what was learnt before; nothing is accepted."
        if self.stalled is not None:
            return f"{self.stalled} Answers come from what was learnt before; samples are kept, not learnt."
        if self._warning is not None:
            return self._warning
        left = self.log.accepted - self.report.learnt
        rehearsed = self.log.rehearsed
        before = f"{counted(left, 'sample')} from before the last start {'is' if left == 1 else 'are'} being learnt."
        idle = "Everything that was sent is learnt"
        if rehearsed:
            idle += f", and {rehearsed:,} of {self.idle_updates:,} updates on the memory were made since"
        return {
            "stopping": "The service is being stopped; waiting samples are learnt after the next start.",
            "starting": "The process that learns is being started.",
            "recovering": self._lost or (before if left else "Updates from before the last start are repeated."),
            "learning": f"{counted(left, 'sample')} {'waits' if left == 1 else 'wait'} to be learnt.",
            "idle": f"{idle}.",
        }[self.state]

    def not_ready(self) -> str | None:
        """Why no requests should be sent, or None."""
        return self.sentence if self.stalled is not None or self._is_stopping or self.log.lost else None

    @property
    def _samples_per_second(self) -> float:
        """Recent speed of learning; 0 while there is nothing to learn."""
        return self.report.samples_per_second if self.report.learnt < self.log.accepted else 0.0

    def check_room(self, count: int) -> None:
        """Raise a Refusal where `count` more samples are too many."""
        queue = self.limits.queue
        if count > queue:
            raise Refusal(413, "too_many", f"{count} samples are more than the queue can hold ({queue}); send fewer.")
        waiting = self.log.accepted - self.report.learnt
        if waiting + count > queue:
            wait, these = "waits" if waiting == 1 else "wait", "this one" if count == 1 else f"these {count}"
            message = f"{counted(waiting, 'sample')} {wait} to be learnt, of at most {queue}; send {these} again later."
            rate = self._samples_per_second  # 0 right after a start
            seconds = min(MAX_RETRY, (waiting + count - queue) / rate) if rate else MIN_RETRY
            retry_after = seconds if self.stalled is None else MAX_RETRY
            raise Refusal(429, "queue_full", message, retry_after=retry_after)
        if self.log.kept + count > self._most_operations:
            verb = "is" if self.log.kept == 1 else "are"
            why = f"because none could be written: {self.sentence}"
            message = f"{counted(self.log.kept, 'sample')} {verb} in no checkpoint yet, {why}"
            raise Refusal(507, "not_saved", message, retry_after=30)

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
        if self._is_stopping:
            return
        self._is_stopping = True
        self._ticking.cancel()
        self.end_events()
        await asyncio.to_thread(self._resources.close)
        LOGGER.info("%s was closed; learnt: %s.", self.folder, self.report.learnt)

    async def _write(self, request: WriteRequest) -> Acceptance:
        self._check_open()
        acceptance = await asyncio.wrap_future(self._writer.submit(request))
        self._process.send(Command.WAKE)
        return acceptance

    def _rehearse(self, after: int, updates: int) -> None:
        """Write one step of rehearsal to the log, unless enough were taken or something else is to be done."""
        updates = min(updates, self.idle_updates - self.log.rehearsed)
        if updates > 0 and after == self.log.operations and not self._is_stopping:

            def on_step(step: Future[Acceptance]) -> None:  # in the writer's thread
                if not step.cancelled() and step.exception() is None and step.result().operation > after:
                    self._process.send(Command.WAKE)

            self._writer.rehearse(after, updates).add_done_callback(on_step)

    def _check_open(self) -> None:
        if self._is_stopping:
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
            case Snapshot(at=at, operation=operation):
                self._model, self._model_operation, self._model_at = at, operation, time.monotonic()
            case MemoryContents(samples):
                if self._memory is not None:
                    self._memory.set_result(samples)
                    self._memory = None
            case LearnerReport(new_points=points):
                self.report, self._lost, self._has_reported = message, None, True
                for point in points:
                    self._emit("point", point)
            case CheckpointSaved(at=at, operation=operation, droppable=droppable):
                self._warning = None
                self.report = dataclasses.replace(
                    self.report, checkpoint=at, checkpoint_operation=operation, checkpoint_written=time.time()
                )
                if droppable:
                    self._writer.drop(droppable)
            case CaughtUp(at, updates):
                self._rehearse(at, updates)
            case Warned(sentence):
                self._warning = sentence
            case ProcessLost(sentence):
                self._lost = sentence
            case Stalled(sentence):
                self.stalled = sentence
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
            status = self.status()
            now = {name: value for name, value in status.items() if not name.endswith(("_seconds", "disk_bytes"))}
            if now != last:
                last = now
                self._emit("status", status)
                await asyncio.sleep(STATUS_SECONDS)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), STATUS_SECONDS)


def _operations(kind: Kind, samples: Sequence[IncomingSample]) -> list[Operation]:
    return [Operation(kind, label=label, pixels=pixels.tobytes()) for label, pixels in samples]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # checkpoints come and go meanwhile
        return 0

"""The loop of one run: learns the stream sample by sample, with queries, records and checkpoints where they are due."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from iblurry.compute import PURPOSES, ComputeCounter
from iblurry.data.dataset import Dataset
from iblurry.engine.devices import make_engine
from iblurry.engine.eager import AsyncRead
from iblurry.errors import DivergedError, FolderError, InputError
from iblurry.experiment.callback import Callback
from iblurry.experiment.checkpointer import Checkpointer, CheckpointPolicy
from iblurry.experiment.environment import Hardware, describe_changes, environment
from iblurry.experiment.evaluator import DeferredQueries, Evaluator, device_images
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder, describe_callbacks
from iblurry.experiment.journal import (
    Held,
    Journal,
    NewClass,
    Pending,
    Query,
    Record,
    Spent,
    Stopped,
    TaskEnd,
    read,
)
from iblurry.experiment.metrics import NO_BOUNDARIES, has_boundaries, logged, metrics, stopped
from iblurry.experiment.run_callbacks import RunCallbacks
from iblurry.experiment.run_state import RunState
from iblurry.learner.cost import bytes_held
from iblurry.network.flops import BACKWARD, feature_flops, flops
from iblurry.streams.iterator import StreamItem, StreamIterator

HELD_EVERY = 10  # queries between two records of what the memory holds
PROGRESS_EVERY = 20  # samples between two checks of the loss and calls of on_progress; at most a second


def check_finished(
    folder: RunFolder,
    experiment: Experiment,
    fingerprint: Callable[[str], str | None],
    callbacks: Sequence[Callback] = (),
) -> None:
    """FolderError if a finished run is another experiment's, or had other data or callbacks than there are now."""
    folder.claim(experiment)
    folder.check_callbacks(callbacks)
    if (now := fingerprint(experiment.dataset)) is not None:
        folder.check_data(experiment.dataset, now)


def fingerprints(load: Callable[[str], Dataset]) -> Callable[[str], str | None]:
    """The fingerprint of each data set, once for all runs; None where the data are gone: nothing can be mixed up."""

    @functools.cache
    def fingerprint(dataset: str) -> str | None:
        with suppress(InputError):
            return load(dataset).fingerprint()
        return None

    return fingerprint


class RunLoop:
    """One run: its folder is locked from here to `close`, which leaves it with its last checkpoint.

    Parameters
    ----------
    experiment : Experiment
        What to run; its folder is `out`/`experiment.name`.
    out : Path
        Folder of the run folders.
    load : callable
        Loads the data set of this name.
    tell : callable
        Called with the name of a method of the callbacks that watch the run, and its arguments.
    callbacks : sequence of Callback
        Take part in it.
    checkpoints : CheckpointPolicy
        How often the run is saved.
    hardware : Hardware
        Device, precision and threads.
    should_stop : callable
        Whether the run is to be saved and left.
    decoders : int, optional
        Processes that decode pictures ahead; None: the usual number.
    timeout : float, optional
        Seconds to wait for another process to leave the folder; None: the usual number.
    pack : int
        Runs side by side in this process, for the record.
    """

    def __init__(
        self,
        experiment: Experiment,
        out: Path,
        *,
        load: Callable[[str], Dataset],
        tell: Callable[..., None],
        callbacks: Sequence[Callback] = (),
        checkpoints: CheckpointPolicy,
        hardware: Hardware,
        should_stop: Callable[[], bool],
        decoders: int | None = None,
        timeout: float | None = None,
        pack: int = 1,
    ) -> None:
        self.experiment, self.folder = experiment, RunFolder(out / experiment.name)
        self.tell, self.should_stop = tell, should_stop
        self.given, self.checkpoints, self.pack = callbacks, checkpoints, pack
        self.is_finished = self.folder.summary() is not None
        if not self.is_finished:
            # Before anything is written, so that a missing device leaves no folder; a finished run needs no device.
            self.engine = make_engine(hardware.device, hardware.precision)
        with ExitStack() as opening:
            opening.enter_context(self.folder.locked(timeout))
            if self.is_finished or self.folder.summary() is not None:
                self.is_finished = True
                check_finished(self.folder, experiment, fingerprints(load), callbacks)
            else:
                self.folder.claim(experiment)
                self.folder.check_callbacks(callbacks)
                self.dataset = load(experiment.dataset)
                self.stream = StreamIterator(self.dataset, experiment.order(self.dataset), workers=decoders)
                self.old_environment = self.folder.environment() or {}
                self.threads: int = self.old_environment.get("threads", hardware.threads or torch.get_num_threads())
                self.recorded: dict[type[Record], int] = {Query: 0, Spent: 0}  # samples seen at the last of each kind
                self._steps = opening.enter_context(closing(self._run()))
            self._resources = opening.pop_all()

    def advance(self, samples: int) -> bool:
        """Learn up to so many samples, with the run's own threads and CUDA stream; False when it has ended."""
        if self.is_finished:
            return False
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        with self.engine.cuda_stream():
            return all(next(self._steps, None) is not None for _ in range(samples))

    def close(self) -> None:
        """Leave the folder; a run that has not ended keeps its last checkpoint, as if it had been killed."""
        self._resources.close()

    @property
    def has_remote_tensors(self) -> bool:
        """Whether reading a tensor makes the host wait for the device, so that it is done rarely."""
        return self.engine.device.type != "cpu"

    def _run(self) -> Generator[int, None, None]:
        """Yield the position after each sample; end with the stream, or saved once `should_stop()` is true."""
        with closing(self.stream):
            self._build()
            with Journal(self.folder.journal) as self.journal:
                self._build_callbacks()
                self.checkpointer = Checkpointer(self.callbacks, self.stream, self.journal, self.checkpoints)
                self.checkpointer.resume(functools.partial(self.tell, "on_message"))
                self._read_recorded()
                title = f"{self.experiment.method.name} seed {self.experiment.seed}"
                self.tell("on_run_start", title, self.stream.position, len(self.stream))
                if self.engine.compiles:
                    self.tell("on_stage", "compiling")
                self.callbacks.start()
                try:
                    is_complete = yield from self._learn_stream()
                    self._save()
                except _StoppedInRefit:
                    is_complete = False
                except DivergedError as error:
                    raise DivergedError(f"{error} {self.checkpointer.describe_last()}") from None
            if is_complete:
                self._write_summary()
                self.is_finished = True

    def _build(self) -> None:
        device = self.engine.device
        self.learner = self.experiment.learner(self.dataset, self.engine, on_refit=self._on_refit_update)
        questions = self.experiment.questions(self.dataset)
        self.evaluator = Evaluator(questions, device, decoders=self.stream.decoders, learner=self.learner)
        self.images = device_images(self.dataset, device) if self.has_remote_tensors else None  # None: the stream's
        self.environment = environment(self.stream, threads=self.threads, engine=self.engine, pack=self.pack)
        self._check_same_data()
        if described := describe_callbacks(self.given):
            self.environment["callbacks"] = described
        self.earlier_seconds, self.start_time = float(self.old_environment.get("seconds", 0.0)), time.monotonic()
        self.folder.write("environment.json", self.environment | {"seconds": self.earlier_seconds})

    def _build_callbacks(self) -> None:
        run = RunState(self.experiment, self.dataset, self.learner, self.stream, self.journal, self._seconds)
        self.callbacks = RunCallbacks(self.given, run)
        asks = self.callbacks.has("on_query") or self.callbacks.has("on_task_end")  # and wants the answer at once
        self.deferred = None if asks else DeferredQueries(self.learner, self.evaluator, self._on_stack_update)
        if self.callbacks.has("on_update"):
            self.learner.trainer.on_update = functools.partial(self.callbacks.call, "on_update")

    def _check_same_data(self) -> None:
        self.folder.check_data(self.experiment.dataset, self.environment["data"])
        if self.old_environment.get("order", self.environment["order"]) != self.environment["order"]:
            raise FolderError(
                f"The order of the samples of {self.experiment.dataset!r} has changed since {self.folder.path} was "
                "started; put the old files back, or choose another --out."
            )
        if (text := describe_changes(self.old_environment, self.environment)) is not None:
            self.tell("on_message", text)

    def _read_recorded(self) -> None:
        records = read(self.folder.journal)
        if self.callbacks:
            self.journal.kept = records
        for record in records:
            if isinstance(record, Query | Spent):
                self.recorded[type(record)] = record.at

    def _learn_stream(self) -> Generator[int, None, bool]:
        """Sample by sample; False if a stop was requested before the end."""
        self.reported_at = self.checked_at = time.monotonic()
        if self.stream.position:
            self._evaluate(self.stream.last)  # a checkpoint inside a refit comes before the query it is for
        if self.callbacks.has_ended:
            return True
        for sample in self.stream:
            self._observe(sample)
            self._evaluate(sample)
            position, now = self.stream.position, time.monotonic()
            is_last = self.callbacks.has_ended
            if position % PROGRESS_EVERY == 0 or is_last or now - self.reported_at > 1:
                self._report_progress(now, is_last=is_last)
            yield position
            if is_last or self.should_stop():
                return is_last
            waits = self.deferred is not None and self.deferred.waiting  # a checkpoint would train what waits
            if (self.checkpointer.is_due(now) and not waits) or self.checkpointer.is_due_at(position):
                self._save()
        return True  # nothing was left

    def _observe(self, sample: StreamItem) -> None:
        self.callbacks.call("on_sample_start", sample)
        known = len(self.learner.labels)
        image = sample.image if self.images is None else self.images[sample.index]
        self.learner.observe(image, sample.label)
        if len(self.learner.labels) > known:
            self.journal.put(NewClass(self.stream.position, sample.label))
            self.callbacks.call("on_new_class", sample.label)
        self.callbacks.call("on_sample", sample)

    def _evaluate(self, sample: StreamItem) -> None:
        """Queries and records due after a sample, in the journal's order; those recorded already are left out."""
        learner, position = self.learner, self.stream.position
        only_at_end = learner.method.readout.only_at_end
        if position % self.experiment.query_every == 0 and self.recorded[Query] < position and not only_at_end:
            self._query(Query, sample.task)
            if position % (HELD_EVERY * self.experiment.query_every) == 0 and not sample.last_of_task:
                self.journal.put(self._held())
            self._call_with_answer("on_query", Query)
        if sample.last_of_task and self.recorded[Spent] < position:
            if learner.context.tasks == sample.task:
                learner.end_task()
            if not only_at_end or position == len(self.stream):
                self._query(TaskEnd, sample.task)
            self._put_spent()
            self._call_with_answer("on_task_end", TaskEnd)
        if not self.callbacks.has_ended and (
            position == len(self.stream) or self.callbacks.run.stop_reason is not None
        ):
            self._end()

    def _end(self) -> None:
        """After the last sample: the stream's, or that at which a callback stopped the run."""
        self.callbacks.call("on_train_end")
        self.callbacks.has_ended = True
        position, reason = self.stream.position, self.callbacks.run.stop_reason
        if position < len(self.stream) and reason is not None:
            if self.recorded[Spent] < position:
                self._put_spent()
            self.journal.put(Stopped(position, reason))
            self.tell("on_message", f"stopped early after {position:,} of {len(self.stream):,} samples: {reason}")

    def _put_spent(self) -> None:
        self.journal.put(self._held())
        self.journal.put(self._spent())
        self.recorded[Spent] = self.stream.position

    def _held(self) -> Pending:
        """Rows of each class in the memory, counted on the device."""
        memory, classes = self.learner.context.memory, len(self.learner.labels)
        counts = torch.zeros(classes + 1, dtype=torch.int64, device=memory.device)
        counts.index_add_(0, memory.labels[:-1] + 1, torch.ones_like(memory.labels[:-1]))  # first: empty ones
        at, rows = self.learner.context.seen, AsyncRead(counts[1:])
        return Pending(lambda: Held(at, tuple(rows.tolist())), rows.ready)

    def _spent(self) -> Spent:
        """All that was computed so far; nothing is waited for."""
        network, shape, context = self.experiment.network, self.dataset.shape, self.learner.context
        # Of an image's forward pass: the head alone where a frozen body's features are stored.
        per_image = flops(network, shape, len(self.dataset.classes), freeze=self.experiment.freeze)
        per_feature = feature_flops(network, shape)
        asked = context.queries.forward["features"]  # counted as the queries'
        total = ComputeCounter()
        total.include(context.spent)
        total.include(context.queries)
        forward, backward = total.forward, total.backward
        work = {purpose: per_image * (forward[purpose] + BACKWARD * backward[purpose]) for purpose in PURPOSES}
        work["features"] = per_feature * (forward["features"] - asked)
        work["queries"] += per_feature * asked
        return Spent(context.seen, total.updates, forward, backward, work, bytes_held(self.learner))

    def _call_with_answer(self, hook: str, kind: type[Query | TaskEnd]) -> None:
        """Wait for the answer only where a callback wants it."""
        if self.callbacks.has(hook):
            records = reversed(self.callbacks.run.records)
            found = next((record for record in records if isinstance(record, kind)), None)
            self.callbacks.call(hook, found if found is not None and found.at == self.stream.position else None)

    def _query(self, kind: type[Query | TaskEnd], task: int) -> None:
        if not self.has_remote_tensors:
            self.learner.check()  # a diverged network's answers are not recorded; PendingAnswer checks on a GPU
        asked = self.evaluator.ask(self.learner) if self.deferred is None else self.deferred.ask()
        position = self.stream.position
        lr = float(self.learner.method.schedule.lr)
        updates = self.learner.context.updates
        self.recorded[kind] = position
        self.journal.put(
            Pending(lambda: kind(position, task, *asked.counts(), lr, updates), asked.is_ready, asked.is_deferred)
        )

    def _report_progress(self, now: float, *, is_last: bool) -> None:
        self._check_loss(now)
        self.journal.write()
        if is_last:
            self.journal.flush()  # so that the callback gets the last accuracy
        self.tell("on_progress", self.stream.position, self.journal.accuracy, self.learner.trainer.lr)
        self.reported_at = now

    def _on_refit_update(self, done: int, total: int) -> None:
        """Between two updates of a refit: report, save or stop; not where a callback asked, to which it belongs."""
        if self.callbacks.is_calling:
            return
        now = time.monotonic()
        if (should_stop := self.should_stop()) or self.checkpointer.is_due(now):
            self._save()
            if should_stop:
                raise _StoppedInRefit
        if now - self.reported_at > 0.2 or done == total:
            self._check_loss(now)
            self.tell("on_refit_progress", done, total)
            self.reported_at = now

    def _on_stack_update(self, done: int, total: int) -> None:
        """Between two updates of stacked refits, which are not saved: a stop leaves the last checkpoint."""
        if self.should_stop():
            raise _StoppedInRefit
        if (now := time.monotonic()) - self.reported_at > 0.2 or done == total:
            self.tell("on_refit_progress", done, total)
            self.reported_at = now

    def _check_loss(self, now: float) -> None:
        """Raise DivergedError if the loss is not finite; on a GPU, where reading it waits, once a second."""
        if not self.has_remote_tensors or now - self.checked_at > 1:
            self.journal.flush(deferred=False)  # waits anyway, and an answer that diverged earlier is reported first
            self.learner.check()
            self.checked_at = now

    def _save(self) -> None:
        self.checkpointer.save()
        self.folder.write("environment.json", self.environment | {"seconds": self._seconds()})

    def _write_summary(self) -> None:
        seconds = self._seconds()
        records = read(self.folder.journal)
        numbers = asdict(metrics(records))
        compute = asdict(next(record for record in reversed(records) if isinstance(record, Spent)))
        del compute["at"]
        speed = {"seconds": seconds, "samples_per_second": self.stream.position / seconds}
        about = {
            "method": self.experiment.method.name,
            "dataset": self.experiment.dataset,
            "seed": self.experiment.seed,
        }
        own: dict[str, Any] = {"pretrained": True} if self.experiment.pretrained else {}
        if last := {name: values[-1][1] for name, values in logged(records).items()}:
            own["logged"] = last
        if not has_boundaries(records):
            own["undefined"] = f"{NO_BOUNDARIES}."
        if (stop := stopped(records)) is not None:
            own["stopped"] = asdict(stop)
        self.folder.write("summary.json", about | numbers | own | speed | {"compute": compute})

    def _seconds(self) -> float:
        """Spent on this run, including earlier calls and the turns of other runs in the pack."""
        return self.earlier_seconds + time.monotonic() - self.start_time


class _StoppedInRefit(Exception):  # noqa: N818  no error: a stop was requested, and all is saved
    """Leaves a refit that will be continued."""

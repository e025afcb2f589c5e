"""Runs an experiment: stream, learner, queries, journal, checkpoints; the same call continues what was interrupted."""

from __future__ import annotations

import hashlib
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.data.stream import Sample, Stream
from iblurry.engine.choose import engine
from iblurry.engine.eager import Eager
from iblurry.errors import DivergedError, FolderError, InputError
from iblurry.experiment import checkpoint
from iblurry.experiment.environment import Where, environment, moved, thread_count
from iblurry.experiment.examiner import Examiner
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.interrupt import stopping_politely
from iblurry.experiment.journal import Journal, NewClass, Query, Record, Start, TaskEnd, read
from iblurry.experiment.metrics import Metrics, metrics
from iblurry.experiment.progress import Silent, Watcher

Moment = tuple[int, int, int]  # samples met, bytes of the journal, updates of the refit under way
GLANCE = 20  # samples between two looks at the loss and the progress bar; a second at most


@dataclass(frozen=True, kw_only=True)
class Often:
    """How often a run is saved; whichever comes first."""

    seconds: float = 30
    samples: int | None = None

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise InputError(f"Often(seconds={self.seconds}): give the seconds between two checkpoints, from 0.")
        if self.samples is not None and self.samples < 1:
            raise InputError(f"Often(samples={self.samples}): give the samples between two checkpoints, from 1.")


@dataclass(frozen=True)
class Result:
    """A run's folder and what it amounts to so far."""

    folder: Path
    experiment: Experiment
    records: list[Record]
    metrics: Metrics
    summary: dict[str, Any] | None  # None: not finished


def run(
    experiment: Experiment,
    out: Path | str = "runs",
    *,
    dataset: Dataset | None = None,
    data_home: Path | None = None,
    watcher: Watcher | None = None,
    save: Often = Often(),  # noqa: B008  frozen
    where: Where = Where(),  # noqa: B008  frozen
) -> Result:
    """Runs or continues `experiment` in its own folder under `out`; a finished one is only read.

    `where` is the machine's part: device, precision, threads.
    """
    folder = RunFolder(Path(out) / experiment.name)
    # First of all: a device that is not there is refused before anything is written. What is finished needs none.
    chosen = engine(where.device, where.precision) if folder.summary() is None else None
    with folder.held():
        folder.claim(experiment)
        if chosen is not None and folder.summary() is None:
            data = dataset or load(experiment.dataset, data_home)
            _Run(experiment, folder, data, watcher or Silent(), save).go(chosen, where.threads)
        return result(folder, experiment)


def result(folder: RunFolder, experiment: Experiment | None = None) -> Result:
    """What a folder holds, from its files alone; a run that was not begun yet has no records."""
    summary = folder.summary()
    begun = summary is not None or folder.journal.exists()
    records = read(folder.journal, partial=summary is None) if begun else []
    return Result(folder.path, experiment or folder.experiment(), records, metrics(records), summary)


class _Run:
    """One run on its way through the stream."""

    def __init__(
        self, experiment: Experiment, folder: RunFolder, dataset: Dataset, watcher: Watcher, often: Often
    ) -> None:
        self.experiment, self.folder, self.dataset, self.watcher = experiment, folder, dataset, watcher
        self.often = often
        self.stream = Stream(dataset, experiment.order(dataset))
        self.saved: Moment = (0, 0, 0)  # of the last checkpoint
        self.asked = {Query: 0, TaskEnd: 0}  # the sample after which each was answered last
        self.accuracy: float | None = None

    def go(self, engine: Eager, threads: int | None) -> None:
        before = self.folder.environment() or {}
        threads = before.get("threads", threads or torch.get_num_threads())
        with thread_count(threads), stopping_politely() as stop, closing(self.stream):
            self.stop = stop
            self.learner = self.experiment.learner(self.dataset, engine)
            self.learner.on_refit = self._refitting
            self.examiner = Examiner(self.dataset, engine.device, decoders=self.stream.decoders)
            self.about = environment(self.stream, threads=threads, engine=engine)
            self._check_same(before)
            self.seconds, self.clock = float(before.get("seconds", 0.0)), time.monotonic()
            self.folder.write("environment.json", self.about | {"seconds": self.seconds})
            with Journal(self.folder.journal) as self.journal:
                self._resume()
                self.watcher.begin(self._title(), self.stream.position, len(self.stream))
                try:
                    finished = self._walk()
                    self._save()
                except _StoppedInRefit:
                    finished = False
                except DivergedError as error:
                    raise DivergedError(f"{error} {self._kept()}") from None
            if finished:
                self._finish()

    def _check_same(self, before: dict[str, Any]) -> None:
        for name, what in (("data", "data set"), ("order", "order of the samples")):
            if before.get(name, self.about[name]) != self.about[name]:
                raise FolderError(
                    f"The {what} of {self.experiment.dataset!r} is not what {self.folder.path} was begun with; "
                    "put the old files back, or choose another --out."
                )
        if (sentence := moved(before, self.about)) is not None:
            self.watcher.say(sentence)

    def _resume(self) -> None:
        """Back to the last checkpoint that can be trusted, or to the beginning."""
        written = self.folder.journal.read_bytes()

        def fits(state: dict[str, Any]) -> str | None:
            if state["experiment"] != self.experiment.digest:
                return "it belongs to another experiment"
            if state["journal"]["bytes"] > len(written):
                return "the journal is shorter than it remembers"
            same = state["journal"] == _seal(written[: state["journal"]["bytes"]])
            return None if same else "the journal is not what it remembers"

        loaded = checkpoint.load_latest(self.folder.path, accept=fits)
        if loaded is None:
            self.journal.truncate(0)
            ends = tuple(self.stream.order.ends)
            self.journal.append(Start(self.experiment.digest, len(self.stream), ends, self.experiment.query_every))
            return
        for sentence in loaded.skipped:
            self.watcher.say(sentence)
        self.learner.load_state_dict(loaded.state["learner"])
        self.journal.truncate(loaded.state["journal"]["bytes"])
        self.stream.seek(loaded.at)
        for record in read(self.folder.journal):
            if isinstance(record, Query | TaskEnd):
                self.asked[type(record)] = record.at
        self.saved = self._moment()

    def _walk(self) -> bool:
        """Sample by sample; False where someone asked to stop before the end."""
        self.looked = self.saved_when = time.monotonic()
        if self.stream.position:
            self._answer(self.stream.last)  # a checkpoint inside a refit lies before the answers it is made for
        for sample in self.stream:
            self._meet(sample)
            self._answer(sample)
            at, now = self.stream.position, time.monotonic()
            if at % GLANCE == 0 or at == len(self.stream) or now - self.looked > 1:
                self.learner.check()
                self.watcher.move(at, self.accuracy, self.learner.method.schedule.now)
                self.looked = now
            if self.stop.asked:
                return at == len(self.stream)
            if now - self.saved_when > self.often.seconds or (self.often.samples and at % self.often.samples == 0):
                self._save()
        return True

    def _meet(self, sample: Sample) -> None:
        known = len(self.learner.labels)
        self.learner.observe(sample.image, sample.label)
        if len(self.learner.labels) > known:
            self.journal.append(NewClass(self.stream.position, sample.label))

    def _answer(self, sample: Sample) -> None:
        """Everything that follows a sample, in the order the journal has it; what was done already is not repeated."""
        learner, at = self.learner, self.stream.position
        waits = learner.method.readout.waits
        if at % self.experiment.query_every == 0 and self.asked[Query] < at and not waits:
            self._query(Query, sample.task)
        if sample.last_of_task and self.asked[TaskEnd] < at:
            if learner.tasks == sample.task:
                learner.end_task()
            if not waits or at == len(self.stream):
                self._query(TaskEnd, sample.task)

    def _refitting(self, done: int, updates: int) -> None:
        """Between two updates of a refit: time to look, to save, or to stop."""
        now = time.monotonic()
        if self.stop.asked or now - self.saved_when > self.often.seconds:
            self._save()
            if self.stop.asked:
                raise _StoppedInRefit
        if now - self.looked > 0.2 or done == updates:
            self.learner.check()
            self.watcher.refit(done, updates)
            self.looked = now

    def _query(self, kind: type[Query | TaskEnd], task: int) -> None:
        self.learner.check()  # a broken network's answers are not worth a line
        correct, total = self.examiner.ask(self.learner)
        rate = float(self.learner.method.schedule.now)
        record = kind(self.stream.position, task, correct, total, rate, self.learner.bench.updates)
        self.accuracy, self.asked[kind] = record.accuracy, record.at
        self.journal.append(record)

    def _save(self) -> None:
        self._check_sound()
        if (moment := self._moment()) != self.saved:
            self.journal.sync()
            seal = _seal(self.folder.journal.read_bytes())
            state = {"experiment": self.experiment.digest, "learner": self.learner.state_dict(), "journal": seal}
            checkpoint.save(self.folder.path, state, at=self.stream.position)
            self.saved = moment
        self.folder.write("environment.json", self.about | {"seconds": self._seconds()})
        self.saved_when = time.monotonic()

    def _moment(self) -> Moment:
        """How far everything is that a checkpoint holds."""
        refit = self.learner.refitter.trainer
        return self.stream.position, self.folder.journal.stat().st_size, refit.bench.updates if refit else 0

    def _check_sound(self) -> None:
        """The loss is that of the last update before its step, so a good loss alone does not mean a good network."""
        self.learner.check()
        for name, values in self.learner.bench.network.state_dict().items():
            if not values.isfinite().all():
                raise DivergedError(
                    f"The network ({name}) holds no numbers any more at sample {self.stream.position}; a lower "
                    f"learning rate (schedule.rate, now {self.learner.method.schedule.now:.3g}) usually helps."
                )

    def _kept(self) -> str:
        if not self.saved[0]:
            return f"Nothing had been saved in {self.folder.path} yet."
        return f"The last good checkpoint, at sample {self.saved[0]}, is kept in {self.folder.path}."

    def _finish(self) -> None:
        seconds = self._seconds()
        numbers = asdict(metrics(read(self.folder.journal)))
        pace = {"seconds": seconds, "samples_per_second": numbers["samples"] / seconds}
        about = {
            "method": self.experiment.method.name,
            "dataset": self.experiment.dataset,
            "seed": self.experiment.seed,
        }
        self.folder.write("summary.json", about | numbers | pace)

    def _seconds(self) -> float:
        """Spent on this run, earlier sittings included."""
        return self.seconds + time.monotonic() - self.clock

    def _title(self) -> str:
        return f"{self.experiment.method.name} seed {self.experiment.seed}"


class _StoppedInRefit(Exception):  # noqa: N818  no error: someone asked, and all is saved
    """Unwinds a refit that is to be continued another time."""


def _seal(journal: bytes) -> dict[str, Any]:
    """What a checkpoint remembers of the journal."""
    return {"bytes": len(journal), "sha256": hashlib.sha256(journal).hexdigest()}

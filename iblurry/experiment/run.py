"""Runs an experiment: stream, learner, queries, journal, checkpoints; the same call continues what was interrupted."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.data.stream import Sample, Stream
from iblurry.errors import DivergedError, FolderError
from iblurry.experiment import checkpoint
from iblurry.experiment.environment import environment, thread_count
from iblurry.experiment.examiner import Examiner
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.interrupt import Stop, stopping_politely
from iblurry.experiment.journal import Journal, NewClass, Query, Record, Start, TaskEnd, read
from iblurry.experiment.metrics import Metrics, metrics
from iblurry.experiment.progress import Silent, Watcher

GLANCE = 20  # samples between two looks at the clock, the loss and the progress bar


@dataclass(frozen=True, kw_only=True)
class Often:
    """How often a run is saved; whichever comes first."""

    seconds: float = 30
    samples: int | None = None


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
    threads: int | None = None,
) -> Result:
    """Runs or continues `experiment` in its own folder under `out`; a finished one is only read.

    `threads` is torch's; a resumed run keeps the number it began with, because it changes the last bits.
    """
    folder = RunFolder(Path(out) / experiment.name)
    with folder.held():
        folder.claim(experiment)
        if folder.summary() is None:
            _Run(experiment, folder, dataset or load(experiment.dataset, data_home), watcher or Silent(), save).go(
                threads
            )
        return result(folder)


def result(folder: RunFolder) -> Result:
    """What a folder holds, from its files alone."""
    summary = folder.summary()
    records = read(folder.journal, partial=summary is None)
    return Result(folder.path, folder.experiment(), records, metrics(records), summary)


class _Run:
    """One run on its way through the stream."""

    def __init__(
        self, experiment: Experiment, folder: RunFolder, dataset: Dataset, watcher: Watcher, save: Often
    ) -> None:
        self.experiment, self.folder, self.dataset, self.watcher, self.often = (
            experiment,
            folder,
            dataset,
            watcher,
            save,
        )
        self.stream = Stream(dataset, experiment.order(dataset))
        self.saved_at = 0  # the sample of the last checkpoint
        self.accuracy: float | None = None

    def go(self, threads: int | None) -> None:
        about = self.folder.environment() or {}
        fingerprint = self.dataset.fingerprint()
        if about.get("data", fingerprint) != fingerprint:
            raise FolderError(
                f"The data set {self.experiment.dataset!r} is not what {self.folder.path} was begun with; "
                "put the old data back, or choose another --out."
            )
        threads = about.get("threads", threads or torch.get_num_threads())
        self.seconds = float(about.get("seconds", 0.0))
        with thread_count(threads), stopping_politely() as stop, Journal(self.folder.journal) as self.journal:
            self.learner = self.experiment.learner(self.dataset)
            device = self.learner.engine.device
            self.about = environment(threads=threads, device=device, fingerprint=fingerprint)
            self.examiner = Examiner(self.dataset, device)
            self.clock = time.monotonic()
            self.folder.write("environment.json", self.about | {"seconds": self.seconds})
            self._resume()
            self.watcher.begin(self._title(), self.stream.position, len(self.stream))
            try:
                finished = self._walk(stop)
            except DivergedError as error:
                where = f"the last good checkpoint, at sample {self.saved_at}, is kept in {self.folder.path}"
                raise DivergedError(f"{error} {where[0].upper()}{where[1:]}.") from None
            self._save()
            if finished:
                self._finish()

    def _resume(self) -> None:
        """Back to the last checkpoint that can be trusted, or to the beginning."""
        length = self.journal.sync()

        def fits(state: dict[str, Any]) -> str | None:
            return None if state["journal"] <= length else "the journal is shorter than it remembers"

        loaded = checkpoint.load_latest(self.folder.path, accept=fits)
        if loaded is None:
            self.journal.truncate(0)
            ends = tuple(self.stream.order.ends)
            self.journal.append(Start(self.experiment.digest, len(self.stream), ends, self.experiment.query_every))
            return
        for sentence in loaded.skipped:
            self.watcher.say(sentence)
        self.learner.load_state_dict(loaded.state["learner"])
        self.journal.truncate(loaded.state["journal"])
        self.stream.seek(loaded.at)
        self.saved_at = loaded.at

    def _walk(self, stop: Stop) -> bool:
        """Sample by sample; False where someone asked to stop before the end."""
        saved = time.monotonic()
        for sample in self.stream:
            self._meet(sample)
            at = self.stream.position
            if at % GLANCE == 0 or at == len(self.stream):
                self.learner.check()
                self.watcher.move(at, self.accuracy, self.learner.method.schedule.now)
            if stop.asked:
                return at == len(self.stream)
            due = self.often.samples is not None and at % self.often.samples == 0
            if due or (at % GLANCE == 0 and time.monotonic() - saved > self.often.seconds):
                self._save()
                saved = time.monotonic()
        return True

    def _meet(self, sample: Sample) -> None:
        """Everything that happens because of one sample, in the order the journal has it."""
        learner, at = self.learner, self.stream.position
        known = len(learner.labels)
        learner.observe(sample.image, sample.label)
        if len(learner.labels) > known:
            self.journal.append(NewClass(at, sample.label))
        if at % self.experiment.query_every == 0:
            self._query(Query, sample.task)
        if sample.last_of_task:
            learner.end_task()
            self._query(TaskEnd, sample.task)

    def _query(self, kind: type[Query | TaskEnd], task: int) -> None:
        self.learner.check()  # a broken network's answers are not worth a line
        correct, total = self.examiner.ask(self.learner)
        rate = float(self.learner.method.schedule.now)
        record = kind(self.stream.position, task, correct, total, rate, self.learner.bench.updates)
        self.accuracy = record.accuracy
        self.journal.append(record)

    def _save(self) -> None:
        self.learner.check()
        at = self.stream.position
        if at > self.saved_at:
            state = {"learner": self.learner.state_dict(), "journal": self.journal.sync()}
            checkpoint.save(self.folder.path, state, at=at)
            self.saved_at = at
        self.folder.write("environment.json", self.about | {"seconds": self._seconds()})

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

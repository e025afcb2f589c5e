"""One run on its way: sample by sample through the stream, with queries, records and checkpoints where they are due."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import torch

from iblurry.data.dataset import Dataset
from iblurry.engine.devices import make_engine
from iblurry.engine.eager import Eager
from iblurry.errors import DivergedError, FolderError
from iblurry.experiment.budget import Holding, spent
from iblurry.experiment.callback import Callback
from iblurry.experiment.checkpointer import Checkpointer, CheckpointPolicy
from iblurry.experiment.environment import Hardware, describe_changes, environment
from iblurry.experiment.evaluator import Evaluator
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Journal, NewClass, Query, Record, Spent, Start, TaskEnd, read
from iblurry.experiment.journal_writer import JournalWriter, PendingQuery
from iblurry.experiment.metrics import metrics
from iblurry.experiment.resident import resident
from iblurry.network.flops import flops
from iblurry.streams.stream import Stream, StreamItem

HELD = 10  # queries between two looks at what the memory holds
GLANCE = 20  # samples between two looks at the loss and the progress bar; a second at most


@contextmanager
def open_run(
    experiment: Experiment,
    out: Path,
    *,
    data: Callable[[], Dataset],
    watcher: Callback,
    often: CheckpointPolicy,
    where: Hardware,
    decoders: int | None = None,
    patience: float | None = None,
) -> Iterator[RunLoop | None]:
    """The run in its folder, which is nobody else's meanwhile; None where it is finished and needs no `data`.

    `decoders` is how many processes decode pictures ahead; None: the usual number. `patience`: seconds to wait for
    another process to leave the folder; None: the usual.
    """
    folder = RunFolder(out / experiment.name)
    # First of all: a device that is not there is refused before anything is written. What is finished needs none.
    chosen = make_engine(where.device, where.precision) if folder.summary() is None else None
    with folder.held(patience):
        folder.claim(experiment)
        if chosen is None or folder.summary() is not None:
            yield None
        else:
            yield RunLoop(experiment, folder, data(), watcher, often, chosen, where.threads, decoders)


class RunLoop:
    """`steps` is the way; all of it wants this run's threads, and its engine's lane around it."""

    def __init__(
        self,
        experiment: Experiment,
        folder: RunFolder,
        dataset: Dataset,
        watcher: Callback,
        often: CheckpointPolicy,
        engine: Eager,
        threads: int | None,
        decoders: int | None,
    ) -> None:
        self.experiment, self.folder, self.dataset, self.watcher = experiment, folder, dataset, watcher
        self.often, self.engine = often, engine
        self.stream = Stream(dataset, experiment.order(dataset), workers=decoders)
        self.before = folder.environment() or {}
        self.threads: int = self.before.get("threads", threads or torch.get_num_threads())
        self.done: dict[type[Record], int] = {Query: 0, Spent: 0}  # the sample after which each was put down last

    @property
    def remote(self) -> bool:
        """Whether the host has to wait to see a tensor's value, so that it looks as seldom as it can."""
        return self.engine.device.type != "cpu"

    def steps(self, stops: Callable[[], bool]) -> Generator[int, None, None]:
        """Gives way after each sample, of which it yields the number; ends with the stream, or saved once `stops()`.

        Closed in between it ends as if it had been killed there: with its last checkpoint.
        """
        self.stops = stops
        with closing(self.stream):
            self._set_out()
            with Journal(self.folder.journal) as journal:
                self.outbox = JournalWriter(journal)
                self.saving = self._saving()
                self.saving.resume(self.watcher.say)
                self._recall()
                self.watcher.begin(self._title(), self.stream.position, len(self.stream))
                try:
                    finished = yield from self._walk()
                    self._save()
                except _StoppedInRefit:
                    finished = False
                except DivergedError as error:
                    raise DivergedError(f"{error} {self.saving.kept()}") from None
            if finished:
                self._finish()

    def _set_out(self) -> None:
        self.learner = self.experiment.learner(self.dataset, self.engine)
        self.learner.on_refit = self._refitting
        self.evaluator = Evaluator(self.dataset, self.engine.device, decoders=self.stream.decoders)
        self.images = resident(self.dataset, self.engine.device) if self.remote else None  # None: those of the stream
        self.about = environment(self.stream, threads=self.threads, engine=self.engine)
        self._check_same()
        self.seconds, self.clock = float(self.before.get("seconds", 0.0)), time.monotonic()
        self.folder.write("environment.json", self.about | {"seconds": self.seconds})

    def _check_same(self) -> None:
        for name, what in (("data", "data set"), ("order", "order of the samples")):
            if self.before.get(name, self.about[name]) != self.about[name]:
                raise FolderError(
                    f"The {what} of {self.experiment.dataset!r} is not what {self.folder.path} was begun with; "
                    "put the old files back, or choose another --out."
                )
        if (sentence := describe_changes(self.before, self.about)) is not None:
            self.watcher.say(sentence)

    def _saving(self) -> Checkpointer:
        ends = tuple(self.stream.order.ends)
        start = Start(self.experiment.digest, len(self.stream), ends, self.experiment.query_every)
        return Checkpointer(start, self.folder, self.stream, self.learner, self.outbox, self.often)

    def _recall(self) -> None:
        for record in read(self.folder.journal):
            if isinstance(record, Query | Spent):
                self.done[type(record)] = record.at

    def _walk(self) -> Generator[int, None, bool]:
        """StreamItem by sample; False where someone asked to stop before the end."""
        self.looked = self.checked = time.monotonic()
        if self.stream.position:
            self._answer(self.stream.last)  # a checkpoint inside a refit lies before the answers it is made for
        for sample in self.stream:
            self._meet(sample)
            self._answer(sample)
            at, now = self.stream.position, time.monotonic()
            if at % GLANCE == 0 or at == len(self.stream) or now - self.looked > 1:
                self._look(at, now)
            yield at
            if self.stops():
                return at == len(self.stream)
            if self.saving.is_due(now) or self.saving.is_due_at(at):
                self._save()
        return True

    def _meet(self, sample: StreamItem) -> None:
        known = len(self.learner.labels)
        image = sample.image if self.images is None else self.images[sample.index]
        self.learner.observe(image, sample.label)
        if len(self.learner.labels) > known:
            self.outbox.put(NewClass(self.stream.position, sample.label))

    def _answer(self, sample: StreamItem) -> None:
        """Everything that follows a sample, in the order the journal has it; what was done already is not repeated."""
        learner, at = self.learner, self.stream.position
        waits = learner.method.readout.only_at_end
        if at % self.experiment.query_every == 0 and self.done[Query] < at and not waits:
            self._query(Query, sample.task)
            if at % (HELD * self.experiment.query_every) == 0 and not sample.last_of_task:
                self.outbox.put(Holding(learner))
        if sample.last_of_task and self.done[Spent] < at:
            if learner.context.tasks == sample.task:
                learner.end_task()
            if not waits or at == len(self.stream):
                self._query(TaskEnd, sample.task)
            self._account()

    def _account(self) -> None:
        """The last lines of a task."""
        image = flops(self.experiment.network, self.dataset.shape, len(self.dataset.classes))
        self.outbox.put(Holding(self.learner))
        self.outbox.put(spent(self.learner, image))
        self.done[Spent] = self.stream.position

    def _query(self, kind: type[Query | TaskEnd], task: int) -> None:
        if not self.remote:
            self.learner.check()  # a broken network's answers are not worth a line; they say so themselves elsewhere
        at, answer = self.stream.position, self.evaluator.ask(self.learner)
        rate = float(self.learner.method.schedule.lr)
        self.done[kind] = at
        self.outbox.put(PendingQuery(kind, at, task, answer, rate, self.learner.context.updates))

    def _look(self, at: int, now: float) -> None:
        self._check(now)
        self.outbox.write()
        if at == len(self.stream):
            self.outbox.flush()  # whoever watches is told the last accuracy
        self.watcher.move(at, self.outbox.accuracy, self.learner.trainer.lr)
        self.looked = now

    def _refitting(self, done: int, updates: int) -> None:
        """Between two updates of a refit: time to look, to save, or to stop."""
        now = time.monotonic()
        if (stops := self.stops()) or self.saving.is_due(now):
            self._save()
            if stops:
                raise _StoppedInRefit
        if now - self.looked > 0.2 or done == updates:
            self._check(now)
            self.watcher.refit(done, updates)
            self.looked = now

    def _check(self, now: float) -> None:
        """Whether the loss is a number; where that has to be waited for, once a second will do."""
        if not self.remote or now - self.checked > 1:
            self.outbox.flush()  # in the same wait; what went wrong first is said
            self.learner.check()
            self.checked = now

    def _save(self) -> None:
        self.saving.save()
        self.folder.write("environment.json", self.about | {"seconds": self._seconds()})

    def _finish(self) -> None:
        seconds = self._seconds()
        records = read(self.folder.journal)
        numbers = asdict(metrics(records))
        compute = asdict(next(record for record in reversed(records) if isinstance(record, Spent)))
        del compute["at"]
        pace = {"seconds": seconds, "samples_per_second": numbers["samples"] / seconds}
        about = {
            "method": self.experiment.method.name,
            "dataset": self.experiment.dataset,
            "seed": self.experiment.seed,
        }
        self.folder.write("summary.json", about | numbers | pace | {"compute": compute})

    def _seconds(self) -> float:
        """Spent on this run, earlier sittings and the turns of runs beside it included."""
        return self.seconds + time.monotonic() - self.clock

    def _title(self) -> str:
        return f"{self.experiment.method.name} seed {self.experiment.seed}"


class _StoppedInRefit(Exception):  # noqa: N818  no error: someone asked, and all is saved
    """Unwinds a refit that is to be continued another time."""

"""The job queue: which runs wait, which worker has which, and what happens to a run whose worker is lost."""

from __future__ import annotations

import pickle
import time
from collections import Counter, deque
from collections.abc import Hashable
from typing import Any

from iblurry.components import objects
from iblurry.errors import IblurryError, InputError, StoppedError
from iblurry.experiment.callback import Callback, Callbacks, as_list
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.launch.messages import (
    Job,
    JobBusy,
    JobEnded,
    JobFailed,
    JobFinished,
    JobMessage,
    JobStopped,
    NoJob,
    RefitProgress,
    RunProgress,
    RunRemark,
    RunStage,
    RunStarted,
)

TRIES = 4  # of a run whose workers are lost, and of workers lost before they had a run
RETRY_BUSY = 1.0  # seconds until a run in another program's hands is tried again


class JobQueue:
    """Hands out jobs to workers, which may be any keys, and passes on what they report to the callbacks.

    Parameters
    ----------
    tolerant : bool
        False: the first failure or lost worker ends all. True: the other runs go on; a run whose worker is lost is
        handed out again, up to `TRIES` times, and one in another program's hands until it is free or finished.
    """

    def __init__(self, *, tolerant: bool = False) -> None:
        self.tolerant, self.is_closed = tolerant, False
        self.jobs: list[Job] = []
        self.callbacks: list[Callback] = []
        self.waiting: deque[int] = deque()  # numbers of jobs
        self.busy: list[tuple[float, int]] = []  # when to try again, and which
        self.running: dict[Hashable, set[int]] = {}  # by worker
        self.losses: Counter[int | None] = Counter()  # of workers by job; None: it had none
        self.failures: dict[str, IblurryError] = {}  # of a tolerant queue, by the experiment's name
        self.error: IblurryError | None = None  # what ends all

    def add(self, experiment: Experiment, hardware: Hardware, callback: Callbacks = None) -> None:
        """Append a job."""
        callbacks = as_list(callback)
        self.waiting.append(len(self.jobs))
        self.jobs.append(Job(len(self.jobs), experiment, hardware, callbacks.taking_part()))
        self.callbacks.append(callbacks)

    def objects(self) -> dict[str, Any]:
        """What the program brought for the jobs: every worker needs it."""
        return objects.select(set().union(*(job.experiment.object_keys() for job in self.jobs)))

    def check_travel(self) -> None:
        """InputError if a callback cannot be sent to worker processes."""
        for callback in {id(one): one for job in self.jobs for one in job.callbacks}.values():
            try:
                pickle.dumps(callback)
            except Exception as error:  # whatever the user's own objects raise
                raise InputError(
                    f"The callback {type(callback).__name__} cannot be sent to worker processes: {error}. Define it at "
                    "the top of a module, with plain settings; or run with jobs=1."
                ) from error

    def close(self) -> None:
        """Hand out nothing more."""
        self.is_closed = True

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to hand out, now or later."""
        may_return = self.tolerant and (self.busy or any(self.running.values()))
        return self.is_closed or not (self.waiting or may_return)

    def ready(self) -> int:
        """How many jobs could be handed out now."""
        now = time.monotonic()
        self.waiting.extend(job for when, job in self.busy if when <= now)
        self.busy = [(when, job) for when, job in self.busy if when > now]
        return 0 if self.is_closed else len(self.waiting)

    def take(self, worker: Hashable = None) -> Job | NoJob:
        """The next job for this worker."""
        if not self.ready():
            return NoJob(self.is_over)
        job = self.jobs[self.waiting.popleft()]
        self.running.setdefault(worker, set()).add(job.number)
        return job

    def report(self, message: JobMessage, worker: Hashable = None) -> None:
        """Take in what this worker says about a job."""
        callback = self.callbacks[message.job]
        if isinstance(message, JobEnded):
            self.running[worker].discard(message.job)
        match message:
            case RunStarted(_, name, position, samples):
                callback.on_run_start(name, position, samples)
            case RunStage(_, text):
                callback.on_stage(text)
            case RunProgress(_, position, accuracy, lr):
                callback.on_progress(position, accuracy, lr)
            case RefitProgress(_, done, total):
                callback.on_refit_progress(done, total)
            case RunRemark(_, text):
                callback.on_message(text)
            case JobFinished():
                callback.on_run_end()
            case JobFailed(job, error):
                self._fail(job, error)
            case JobBusy(job):
                self.busy.append((time.monotonic() + RETRY_BUSY, job))
            case JobStopped(job) if self.tolerant and not self.is_closed:  # someone else told the worker to stop
                self._lose(job, "was told to stop")

    def lose(self, worker: Hashable, how: str) -> None:
        """A worker has ended; `how` is empty if it ended by itself, as all do once the queue is closed."""
        jobs: list[int | None] = [*sorted(self.running.pop(worker, ()))]
        if how and not self.is_closed:
            for job in jobs or [None]:
                self._lose(job, how)

    def _lose(self, job: int | None, how: str) -> None:
        self.losses[job] += 1
        if not self.tolerant or self.losses[job] >= TRIES:
            what = "A worker" if job is None else f"The worker of {self.jobs[job].experiment.name}"
            times = f", the {TRIES}th one" if self.tolerant else ""
            kept = "What was saved is kept, and the same command continues."
            self._fail(job, StoppedError(f"{what} {how}{times}. {kept}"))
        elif job is not None:
            self.callbacks[job].on_message(f"its worker {how}; another one continues from its last checkpoint")
            self.waiting.appendleft(job)

    def _fail(self, job: int | None, error: IblurryError) -> None:
        if self.tolerant and job is not None:
            self.failures[self.jobs[job].experiment.name] = error
            self.callbacks[job].on_message(f"failed: {error}")
        else:
            self.error = self.error or error

"""The job queue: which runs wait, which worker has which, and what happens to a run whose worker is lost."""

from __future__ import annotations

import pickle
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

from iblurry.components import objects
from iblurry.errors import IblurryError, InputError, StoppedError
from iblurry.experiment.callback import Callback, Callbacks, as_callbacks
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment

TRIES = 4  # of a run whose workers are lost, and of workers lost before they had a run
RETRY_BUSY = 1.0  # seconds until a run in another program's hands is tried again


@dataclass(frozen=True)
class JobRequest:
    """A worker wants a job; the answer is a Job or NoJob."""


@dataclass(frozen=True)
class Job:
    """One run to do or to continue; messages name it by its number in the queue."""

    number: int
    experiment: Experiment
    hardware: Hardware
    callbacks: tuple[Callback, ...] = ()  # that take part in the run


@dataclass(frozen=True)
class NoJob:
    """There is no job now, and unless `is_final` there may be one later."""

    is_final: bool


@dataclass(frozen=True)
class CallbackCall:
    """What a worker says of a job: this method of the callbacks that watch the run is to be called."""

    job: int
    hook: str
    given: tuple[Any, ...]


@dataclass(frozen=True)
class JobEnded:
    """What a worker says last of a job, when it has left the run's folder.

    The run is finished; or saved, because the worker was asked to stop; or it cannot go on; or another program is
    running in its folder.
    """

    job: int
    how: Literal["finished", "stopped", "failed", "busy"]
    error: IblurryError | None = None  # of one that failed


JobMessage = CallbackCall | JobEnded


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
        self.callbacks: list[tuple[Callback, ...]] = []  # of each job
        self.waiting: deque[int] = deque()  # numbers of jobs
        self.busy: list[tuple[float, int]] = []  # when to try again, and which
        self.running: dict[Hashable, set[int]] = {}  # by worker
        self.losses: Counter[int | None] = Counter()  # of workers by job; None: it had none
        self.failures: dict[str, IblurryError] = {}  # of a tolerant queue, by the experiment's name
        self.error: IblurryError | None = None  # what ends all

    def add(self, experiment: Experiment, hardware: Hardware, callbacks: Callbacks = None) -> None:
        """Append a job."""
        several = as_callbacks(callbacks)
        taking_part = tuple(callback for callback in several if callback.run_hooks())
        self.waiting.append(len(self.jobs))
        self.jobs.append(Job(len(self.jobs), experiment, hardware, taking_part))
        self.callbacks.append(several)

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
        job = message.job
        if isinstance(message, CallbackCall):
            self._tell(job, message.hook, *message.given)
            return
        self.running[worker].discard(job)
        if message.how == "finished":
            self._tell(job, "on_run_end")
        elif message.how == "busy":
            self.busy.append((time.monotonic() + RETRY_BUSY, job))
        elif message.error is not None:
            self._fail(job, message.error)
        elif self.tolerant and not self.is_closed:  # someone else told the worker to stop
            self._lose(job, "was told to stop")

    def lose(self, worker: Hashable, how: str) -> None:
        """A worker has ended; `how` is empty if it ended by itself, as all do once the queue is closed."""
        jobs: list[int | None] = [*sorted(self.running.pop(worker, ()))]
        if how and not self.is_closed:
            for job in jobs or [None]:
                self._lose(job, how)

    def _tell(self, job: int, hook: str, *given: Any) -> None:
        for callback in self.callbacks[job]:
            getattr(callback, hook)(*given)

    def _lose(self, job: int | None, how: str) -> None:
        self.losses[job] += 1
        if not self.tolerant or self.losses[job] >= TRIES:
            what = "A worker" if job is None else f"The worker of {self.jobs[job].experiment.name}"
            times = f", the {TRIES}th one" if self.tolerant else ""
            kept = "What was saved is kept, and the same command continues."
            self._fail(job, StoppedError(f"{what} {how}{times}. {kept}"))
        elif job is not None:
            self._tell(job, "on_message", f"its worker {how}; another one continues from its last checkpoint")
            self.waiting.appendleft(job)

    def _fail(self, job: int | None, error: IblurryError) -> None:
        if self.tolerant and job is not None:
            self.failures[self.jobs[job].experiment.name] = error
            self._tell(job, "on_message", f"failed: {error}")
        else:
            self.error = self.error or error


class QueueClient:
    """A worker's connection to the job queue of its parent; without the parent, the worker ends.

    Parameters
    ----------
    send, receive : callable
        Send a message to the parent; wait for its answer. They raise ConnectionError or EOFError if it is gone.
    tolerant : bool
        That of the queue.
    """

    def __init__(self, send: Callable[[Any], None], receive: Callable[[], Any], *, tolerant: bool) -> None:
        self.send, self.receive, self.tolerant = send, receive, tolerant

    def ask(self, request: Any) -> Any:
        """Send what the parent answers, and wait for that."""
        try:
            self.send(request)
            return self.receive()
        except (EOFError, ConnectionError) as error:
            raise SystemExit(1) from error

    def take(self) -> Job | NoJob:
        """The next job."""
        job: Job | NoJob = self.ask(JobRequest())
        return job

    def report(self, message: JobMessage) -> None:
        """Send what is said of a job."""
        try:
            self.send(message)
        except ConnectionError as error:
            raise SystemExit(1) from error

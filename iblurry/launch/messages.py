"""What workers and the job queue tell each other about jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iblurry.errors import IblurryError
from iblurry.experiment.callback import Callback
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment


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
class JobMessage:
    """What a worker tells about a job (abstract)."""

    job: int


@dataclass(frozen=True)
class RunStarted(JobMessage):
    """A call of Callback.on_run_start."""

    name: str
    position: int
    samples: int


@dataclass(frozen=True)
class RunStage(JobMessage):
    """A call of Callback.on_stage."""

    text: str


@dataclass(frozen=True)
class RunProgress(JobMessage):
    """A call of Callback.on_progress."""

    position: int
    accuracy: float | None
    lr: float


@dataclass(frozen=True)
class RefitProgress(JobMessage):
    """A call of Callback.on_refit_progress."""

    done: int
    total: int


@dataclass(frozen=True)
class RunRemark(JobMessage):
    """A call of Callback.on_message."""

    text: str


@dataclass(frozen=True)
class JobEnded(JobMessage):
    """The worker has left the run's folder (abstract)."""


@dataclass(frozen=True)
class JobFinished(JobEnded):
    """The run has its summary."""


@dataclass(frozen=True)
class JobStopped(JobEnded):
    """The worker was asked to stop, and has saved the run."""


@dataclass(frozen=True)
class JobFailed(JobEnded):
    """The run cannot go on."""

    error: IblurryError


@dataclass(frozen=True)
class JobBusy(JobEnded):
    """Another program is running in the run's folder."""


class ReportingCallback(Callback):
    """Turns the calls of a run into messages."""

    def __init__(self, job: int, report: Callable[[JobMessage], None]) -> None:
        self.job, self.report = job, report

    def on_run_start(self, name: str, position: int, samples: int) -> None:
        self.report(RunStarted(self.job, name, position, samples))

    def on_stage(self, text: str) -> None:
        self.report(RunStage(self.job, text))

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        self.report(RunProgress(self.job, position, accuracy, lr))

    def on_refit_progress(self, done: int, total: int) -> None:
        self.report(RefitProgress(self.job, done, total))

    def on_message(self, text: str) -> None:
        self.report(RunRemark(self.job, text))

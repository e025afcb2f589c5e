"""The job queue: who gets which job, and what happens to jobs that fail, are busy or lose their workers."""

from __future__ import annotations

import pickle
import time

import pytest

from iblurry.errors import BusyError, DivergedError, RunFailedError, StoppedError
from iblurry.experiment.environment import Hardware
from iblurry.launch import job_queue
from iblurry.launch.config import LaunchConfig
from iblurry.launch.job_queue import TRIES, JobQueue
from iblurry.launch.messages import (
    Job,
    JobBusy,
    JobFailed,
    JobFinished,
    JobStopped,
    NoJob,
    RefitProgress,
    ReportingCallback,
    RunProgress,
    RunRemark,
    RunStage,
    RunStarted,
)
from iblurry.launch.pack import FAILURE, Pack
from iblurry.launch.stop import StopRequest
from tests.experiment.small import Recorder, small

SOME = [small("er"), small("clib"), small("er", seed=2)]


def queue_of(count, **options):
    queue = JobQueue(**options)
    for experiment in SOME[:count]:
        queue.add(experiment, Hardware(), Recorder())
    return queue


def test_a_busy_run_is_tried_again(monkeypatch):
    monkeypatch.setattr(job_queue, "RETRY_BUSY", 0.05)
    queue = queue_of(1, tolerant=True)
    assert queue.take("a") == Job(0, SOME[0], Hardware())
    assert queue.take("b") == NoJob(is_final=False)  # its worker may be lost
    queue.report(JobBusy(0), "a")
    assert queue.take("a") == NoJob(is_final=False)
    time.sleep(0.06)
    assert queue.take("b").number == 0
    queue.report(JobFinished(0), "b")
    assert queue.take("a") == NoJob(is_final=True)
    assert queue.is_over


def test_the_first_failure_ends_a_queue_that_is_not_tolerant():
    queue = queue_of(2)
    assert [queue.take("a").number, queue.take("b").number, queue.take("b")] == [0, 1, NoJob(is_final=True)]
    queue.report(JobFailed(0, DivergedError("first")), "a")
    queue.report(JobFailed(1, DivergedError("second")), "b")
    assert str(queue.error) == "first"
    assert not queue.failures


def test_a_stopped_run_is_handed_out_again_unless_the_queue_is_closed():
    queue = queue_of(2, tolerant=True)
    queue.take("a"), queue.take("b")
    queue.report(JobStopped(0), "a")
    assert queue.take("c").number == 0
    queue.close()
    queue.report(JobStopped(1), "b")
    assert queue.take("c") == NoJob(is_final=True)


def test_workers_lost_before_they_had_a_job():
    queue = queue_of(1, tolerant=True)
    for _ in range(TRIES):
        assert queue.error is None
        queue.lose("a", "ended with code 1")
    assert isinstance(queue.error, StoppedError)
    assert not queue.failures


def test_a_callback_hears_what_is_reported():
    queue, messages = queue_of(1), []
    callback = ReportingCallback(0, lambda message: messages.append(pickle.loads(pickle.dumps(message))))
    callback.on_run_start("er", 3, 80)
    callback.on_stage("compiling")
    callback.on_progress(20, None, 0.1)
    callback.on_refit_progress(1, 2)
    callback.on_message("text")
    assert messages == [
        RunStarted(0, "er", 3, 80), RunStage(0, "compiling"), RunProgress(0, 20, None, 0.1), RefitProgress(0, 1, 2),
        RunRemark(0, "text"),
    ]  # fmt: skip
    for message in messages:
        queue.report(message)
    ((recorder,),) = (several.callbacks for several in queue.callbacks)
    assert (recorder.starts, recorder.position, recorder.refits, recorder.messages) == ([3], 20, (1, 2), ["text"])
    assert recorder.stages == ["compiling"]


@pytest.mark.parametrize("tolerant", [True, False])
def test_what_a_pack_reports_of_failures(tolerant, tmp_path, monkeypatch):
    errors = [BusyError("in use"), DivergedError("nan"), KeyError("unexpected")]

    def fail(self, job, pack):
        raise errors[job.number]

    monkeypatch.setattr("iblurry.launch.pack._OpenRun.__init__", fail)
    jobs, reports = [Job(n, one, Hardware()) for n, one in enumerate(SOME)], []
    (tmp_path / SOME[2].name).mkdir()

    def take():
        return jobs.pop(0) if jobs else NoJob(is_final=True)

    for _ in range(3):
        pack = Pack(LaunchConfig(out=tmp_path), take, reports.append, StopRequest(), tolerant=tolerant)
        if tolerant:
            pack.run()
        else:
            with pytest.raises((BusyError, DivergedError, RunFailedError)):
                pack.run()
    told = [
        (type(report), report.job, *([type(report.error)] if hasattr(report, "error") else [])) for report in reports
    ]
    first = (JobBusy, 0) if tolerant else (JobFailed, 0, BusyError)
    assert told == [first, (JobFailed, 1, DivergedError), (JobFailed, 2, RunFailedError)]
    assert "KeyError: 'unexpected'" in (tmp_path / SOME[2].name / FAILURE).read_text()

"""The job queue: who gets which job, and what happens to jobs that fail, are busy or lose their workers."""

from __future__ import annotations

import pickle
import time

import pytest

from iblurry.errors import DivergedError, StoppedError
from iblurry.experiment.environment import Hardware
from iblurry.launch import job_queue
from iblurry.launch.job_queue import TRIES, CallbackCall, Job, JobEnded, JobQueue, NoJob
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
    queue.report(JobEnded(0, "busy"), "a")
    assert queue.take("a") == NoJob(is_final=False)
    time.sleep(0.06)
    assert queue.take("b").number == 0
    queue.report(JobEnded(0, "finished"), "b")
    assert queue.take("a") == NoJob(is_final=True)
    assert queue.is_over


def test_the_first_failure_ends_a_queue_that_is_not_tolerant():
    queue = queue_of(2)
    assert [queue.take("a").number, queue.take("b").number, queue.take("b")] == [0, 1, NoJob(is_final=True)]
    queue.report(JobEnded(0, "failed", DivergedError("first")), "a")
    queue.report(JobEnded(1, "failed", DivergedError("second")), "b")
    assert str(queue.error) == "first"
    assert not queue.failures


def test_a_stopped_run_is_handed_out_again_unless_the_queue_is_closed():
    queue = queue_of(2, tolerant=True)
    queue.take("a"), queue.take("b")
    queue.report(JobEnded(0, "stopped"), "a")
    assert queue.take("c").number == 0
    queue.close()
    queue.report(JobEnded(1, "stopped"), "b")
    assert queue.take("c") == NoJob(is_final=True)


@pytest.mark.parametrize("has_job", [True, False])
def test_workers_that_are_lost_again_and_again(has_job):
    """A run that loses all its workers is given up; where none lives to take a run, all are."""
    queue = queue_of(2, tolerant=True)
    for _ in range(TRIES):
        assert (queue.failures, queue.error) == ({}, None)
        assert not has_job or queue.take("a").number == 0
        queue.lose("a", "ended with code 1")
    assert [type(error) for error in queue.failures.values()] == [StoppedError] * has_job
    assert isinstance(queue.error, type(None) if has_job else StoppedError)
    assert queue.take("a").number == has_job


def test_a_callback_hears_what_is_reported():
    queue = queue_of(1)
    for hook, *given in (("on_run_start", "er", 3, 80), ("on_progress", 20, None, 0.1), ("on_message", "text")):
        queue.report(pickle.loads(pickle.dumps(CallbackCall(0, hook, tuple(given)))))
    ((recorder,),) = queue.callbacks
    assert (recorder.starts, recorder.position, recorder.messages) == ([3], 20, ["text"])

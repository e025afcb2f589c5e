"""The pack: runs side by side in one process, one sample each in turn; a single run is a pack of one."""

from __future__ import annotations

import gc
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

import torch

from iblurry.data.dataset import Dataset
from iblurry.data.images import default_workers
from iblurry.data.load import load
from iblurry.errors import BusyError, IblurryError, RunFailedError
from iblurry.experiment.run_loop import RunLoop
from iblurry.launch.config import LaunchConfig
from iblurry.launch.job_queue import CallbackCall, Job, JobEnded, JobQueue, QueueClient
from iblurry.launch.processes import StopRequest
from iblurry.storage.files import write_file

ASK_AGAIN = 0.5  # seconds after the queue had no job
PAUSE = 0.1  # seconds between two looks for a job while no run is open
TURN = 50  # samples at a time of a run that is alone, so that it does not enter its CUDA stream for each
FAILURE = "failure.txt"  # in a run's folder: the traceback of an error that is no IblurryError
NOT_USERS = (Path(__file__).parents[1], Path(torch.__file__).parent)  # code of iblurry and torch


class Pack:
    """Up to `config.pack` runs at a time; when one ends, the next job takes its place.

    Each run gives the same bits as alone. On a GPU each has its own CUDA stream, so that the device computes for one
    while the host prepares another. A refit (gdumb, rm, joint) belongs to a single sample: the other runs wait for it.

    Parameters
    ----------
    config : LaunchConfig
        Folders, checkpoints and size of the pack.
    queue : JobQueue or QueueClient
        Gives the jobs, and is told what happens to them. If it is tolerant, a run that fails or is busy is reported,
        and the others go on; otherwise it stops the others as a signal would, so that they are saved, and its error is
        raised.
    stop : StopRequest
        Once it is set, runs are saved and nothing more is begun.
    dataset : Dataset, optional
        Used for all jobs; None: what each experiment names is loaded.
    """

    def __init__(
        self,
        config: LaunchConfig,
        queue: JobQueue | QueueClient,
        stop: StopRequest,
        *,
        dataset: Dataset | None = None,
    ) -> None:
        self.config, self.queue, self.stop, self.dataset = config, queue, stop, dataset
        self.decoders = default_workers(runs=config.pack)
        self.runs: list[tuple[Job, RunLoop]] = []
        self.error: IblurryError | None = None
        self._asks_at, self._has_more, self._has_garbage = 0.0, True, False
        self._datasets: WeakValueDictionary[str, Dataset] = WeakValueDictionary()  # of open runs, and the last loaded

    def run(self) -> None:
        """Run jobs until there are none, or until all is saved after a stop request or an error."""
        threads = torch.get_num_threads()
        try:
            self._open_runs()
            while self.runs or (self._has_more and not self.is_stopping()):
                if not self.runs:
                    time.sleep(PAUSE)
                self.runs = [(job, run) for job, run in self.runs if self._advance(job, run)]
                self._open_runs()
        finally:
            for _, run in self.runs:  # only a second signal finds any still open: they keep their last checkpoints
                run.close()
            torch.set_num_threads(threads)
        if self.error is not None:
            raise self.error

    def is_stopping(self) -> bool:
        return self.stop.is_set or self.error is not None

    def load(self, spec: str) -> Dataset:
        """The data set, loaded once for runs side by side or in a row."""
        if self.dataset is not None:
            return self.dataset
        if (dataset := self._datasets.get(spec)) is None:
            dataset = self._datasets[spec] = self._last_loaded = load(spec, self.config.data_home)
        return dataset

    def _open_runs(self) -> None:
        while len(self.runs) < self.config.pack and not self.is_stopping() and (job := self._next_job()):
            if self._has_garbage:
                gc.collect()  # learners are in reference cycles: an ended one would keep its part of the GPU's memory
                self._has_garbage = False
            try:
                self.runs.append((job, self._open(job)))
            except Exception as error:
                self._fail(job, error)

    def _open(self, job: Job) -> RunLoop:
        checkpoints = self.config.checkpoints
        return RunLoop(
            job.experiment,
            self.config.out,
            load=self.load,
            tell=lambda hook, *given: self.queue.report(CallbackCall(job.number, hook, given)),
            callbacks=job.callbacks,
            checkpoints=replace(checkpoints, share=checkpoints.share / self.config.pack),
            hardware=job.hardware,
            should_stop=self.is_stopping,
            decoders=self.decoders,
            timeout=0.0 if self.queue.tolerant else None,
            pack=self.config.pack,
        )

    def _next_job(self) -> Job | None:
        if not self._has_more or time.monotonic() < self._asks_at:
            return None
        job = self.queue.take()
        if isinstance(job, Job):
            return job
        self._has_more, self._asks_at = not job.is_final, time.monotonic() + ASK_AGAIN
        return None

    def _advance(self, job: Job, run: RunLoop) -> bool:
        """One turn of a run; whether it goes on."""
        try:
            if run.advance(TURN if self.config.pack == 1 else 1):
                return True
        except Exception as error:
            run.close()
            self._fail(job, error)
        else:
            run.close()
            self.queue.report(JobEnded(job.number, "finished" if run.is_finished else "stopped"))
        self._has_garbage = True
        return False

    def _fail(self, job: Job, error: Exception) -> None:
        known = error if isinstance(error, IblurryError) else self._unexpected(job, error)
        is_busy = self.queue.tolerant and isinstance(known, BusyError)
        self.queue.report(JobEnded(job.number, "busy") if is_busy else JobEnded(job.number, "failed", known))
        if not self.queue.tolerant:
            self.error = self.error or known

    def _unexpected(self, job: Job, error: Exception) -> RunFailedError:
        """The error in a sentence, its traceback in the run's folder."""
        folder = self.config.out / job.experiment.name
        with suppress(OSError, IblurryError):  # it may be the disk that fails
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / FAILURE, "".join(traceback.format_exception(error)).encode())
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(place) for place in NOT_USERS)]
        where = (own or frames)[-1]
        failed = RunFailedError(
            f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno}; see "
            f"{folder.name}/{FAILURE}). Its last checkpoint is kept.",
            is_system=isinstance(error, OSError | MemoryError),
        )
        failed.__cause__ = error
        return failed

"""Several runs at a time on one machine: worker processes that take the next experiment when they are done."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from iblurry.data.load import load
from iblurry.errors import IblurryError, StoppedError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.interrupt import stopping_politely
from iblurry.experiment.progress import Silent, Watcher
from iblurry.experiment.run import Often, Result, result, run

HEAVY = "resnet"  # networks of this name gain from several threads; the small ones only lose


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How experiments are run, the same for all of them."""

    out: Path
    data_home: Path | None = None
    save: Often = Often()
    jobs: int | None = None  # runs at a time; None: as many as there are cores
    threads: int | None = None  # torch threads of each; None: its share of the cores, or 1 for a small network

    def jobs_for(self, experiments: Sequence[Experiment]) -> int:
        return max(1, min(self.jobs or cores(), len(experiments)))

    def threads_for(self, experiment: Experiment, jobs: int) -> int:
        return self.threads or (max(1, cores() // jobs) if experiment.network.startswith(HEAVY) else 1)


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(experiments: Sequence[Experiment], plan: Plan, watchers: Sequence[Watcher] | None = None) -> list[Result]:
    """Runs or continues them all; the results come in the order given, unfinished where someone asked to stop.

    A run that fails stops the others politely: what they have done is saved, and the same call goes on.
    """
    watchers = watchers or [Silent() for _ in experiments]
    jobs = plan.jobs_for(experiments)
    if jobs > 1:
        _Pool(experiments, plan, watchers, jobs).go()
        return [result(RunFolder(plan.out / experiment.name)) for experiment in experiments]
    results = []
    for experiment, watcher in zip(experiments, watchers, strict=True):
        data, threads = load(experiment.dataset, plan.data_home), plan.threads_for(experiment, jobs)
        results.append(run(experiment, plan.out, dataset=data, watcher=watcher, save=plan.save, threads=threads))
        if results[-1].summary is None:
            break
    return results


class _Pool:
    """The parent's side: hands out numbers of experiments, shows what the workers report, waits for them to leave."""

    def __init__(self, experiments: Sequence[Experiment], plan: Plan, watchers: Sequence[Watcher], jobs: int) -> None:
        context = multiprocessing.get_context("spawn")  # torch and fork do not go together
        self.watchers = watchers
        self.todo: Any = context.Queue()
        self.reports: Any = context.Queue()
        for number, experiment in enumerate(experiments):
            self.todo.put((number, experiment.to_json()))
        for _ in range(jobs):
            self.todo.put(None)
        self.threads = max(plan.threads_for(experiment, jobs) for experiment in experiments)
        work = (self.todo, self.reports, plan, jobs, os.getpid())
        self.workers: list[BaseProcess] = [context.Process(target=_work, args=work, daemon=True) for _ in range(jobs)]

    def go(self) -> None:
        failed: IblurryError | None = None
        with stopping_politely() as stop:
            with _environment(OMP_NUM_THREADS=str(self.threads)):
                for worker in self.workers:
                    worker.start()
            told = False
            while any(worker.is_alive() for worker in self.workers) or not self.reports.empty():
                failed = failed or self._listen()
                if (stop.asked or failed) and not told:
                    told = True
                    for worker in self.workers:
                        if worker.is_alive() and worker.pid:
                            os.kill(worker.pid, signal.SIGTERM)
        lost = [worker.exitcode for worker in self.workers if worker.exitcode]
        if failed:
            raise failed
        if lost and not stop.asked:
            raise StoppedError(
                f"A worker ended with code {lost[0]} (minus a signal's number: 9 is a kill, often for lack of memory); "
                "what it saved is kept, and the same command continues."
            )

    def _listen(self) -> IblurryError | None:
        try:
            number, verb, words = self.reports.get(timeout=0.1)
        except queue.Empty:
            return None
        if verb == "fail":
            error: IblurryError = words[0]
            return error
        getattr(self.watchers[number], verb)(*words)
        return None


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """What workers find when they start: idle threads of the maths libraries would otherwise spin on their cores."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class _Reporter:
    """A worker's watcher: tells the parent."""

    def __init__(self, reports: Any, number: int) -> None:
        self.reports, self.number = reports, number

    def begin(self, name: str, at: int, samples: int) -> None:
        self.reports.put((self.number, "begin", (name, at, samples)))

    def move(self, at: int, accuracy: float | None, rate: float) -> None:
        self.reports.put((self.number, "move", (at, accuracy, rate)))

    def say(self, sentence: str) -> None:
        self.reports.put((self.number, "say", (sentence,)))


def _work(todo: Any, reports: Any, plan: Plan, jobs: int, parent: int) -> None:
    """A worker's whole life: the next experiment until there is none, someone asks to stop, or the parent is gone."""
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    with stopping_politely() as stop:  # also between two runs
        while (task := todo.get()) is not None and not stop.asked:
            number, spec = task
            try:
                experiment = Experiment.from_json(spec)
                threads = plan.threads_for(experiment, jobs)
                watcher = _Reporter(reports, number)
                done = run(
                    experiment, plan.out, data_home=plan.data_home, watcher=watcher, save=plan.save, threads=threads
                )
            except IblurryError as error:
                reports.put((number, "fail", (error,)))
                return
            if done.summary is None:
                return


def _leave_with(parent: int) -> None:
    """Nobody is left to report to once the parent was killed; checkpoints make this as safe as any end."""
    while os.getppid() == parent:
        time.sleep(0.3)
    os._exit(1)

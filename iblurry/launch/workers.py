"""Several experiments on one machine: how many at a time, how many threads for each, and what is left to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iblurry.data.prefetch import usable_cores
from iblurry.engine.devices import default_device, visible_gpus
from iblurry.engine.eager import Precision
from iblurry.errors import IblurryError, InputError, UnknownNameError
from iblurry.experiment.callback import Callback, Silent
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.interrupt import Stop, stopping_politely
from iblurry.experiment.run import CheckpointPolicy, Result, result
from iblurry.launch.cluster import Cluster
from iblurry.launch.job_queue import TRIES
from iblurry.launch.pack import Pack
from iblurry.launch.pool import Pool
from iblurry.launch.task import Listed, Runner, Task

PLACES = ("local", "ray")
HEAVY = "resnet"  # networks of this name gain from several threads; the small ones only lose


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How experiments are run, the same for all of them."""

    out: Path
    data_home: Path | None = None
    save: CheckpointPolicy = CheckpointPolicy()
    jobs: int | None = None  # runs at a time, each in a process of its own; None: as many as there are cores or GPUs
    pack: int = 1  # runs at a time, side by side in one process; more than one: then there is one job
    threads: int | None = None  # torch threads of each; None: its share of the cores, or 1 for a small network
    on: str = "local"  # or ray: a cluster's workers; then jobs is how many of them, None: as many as it has room for
    device: str = "cpu"  # or cuda; auto is a GPU for a heavy network where there is one
    precision: Precision | None = None  # None: the device's usual one

    def __post_init__(self) -> None:
        for name, value in (("jobs", self.jobs), ("pack", self.pack), ("threads", self.threads)):
            if value is not None and value < 1:
                raise InputError(f"{name}={value} is too small; the least is 1.")
        if self.on not in PLACES:
            raise UnknownNameError("place to run on", self.on, PLACES)
        if self.pack > 1 and (self.jobs or 1) > 1 and self.on == "local":
            raise InputError(
                f"jobs={self.jobs} and pack={self.pack} cannot go together: a pack is one process. Choose one of them, "
                "jobs for the cores of a CPU, pack for a GPU."
            )

    def jobs_for(self, experiments: Sequence[Experiment]) -> int:
        if self.on != "local":
            return usable_cores()  # one thread each: who knows what else the others do
        if self.pack > 1:
            return 1
        on_gpu = any(self.device_for(one) != "cpu" for one in experiments)  # where processes only take turns
        return max(1, min(self.jobs or (1 if on_gpu else usable_cores()), len(experiments)))

    def where(self, experiment: Experiment, jobs: int) -> Hardware:
        threads = self.threads or (max(1, usable_cores() // jobs) if _is_heavy(experiment) else 1)
        return Hardware(threads=threads, device=self.device_for(experiment), precision=self.precision)

    def device_for(self, experiment: Experiment) -> str:
        if self.device != "auto":
            return self.device
        return default_device(heavy=_is_heavy(experiment))


def _is_heavy(experiment: Experiment) -> bool:
    return experiment.network.startswith(HEAVY)


def run_all(
    experiments: Sequence[Experiment],
    plan: Plan,
    watchers: Sequence[Callback] | None = None,
    *,
    failures: dict[str, IblurryError] | None = None,
) -> list[Result]:
    """Runs or continues them all; the results come in the order given, unfinished where someone asked to stop.

    A run that fails stops the others politely: what they have done is saved, and the same call goes on. With a
    dictionary for `failures` it does not: its error is put there, by the experiment's name. Lost workers are replaced
    then, and runs that another program has in hand are waited for.
    """
    watchers = watchers or [Silent() for _ in experiments]
    folders = [RunFolder(plan.out / experiment.name) for experiment in experiments]
    _check_different(folders)
    jobs = plan.jobs_for(experiments)  # of all, finished or not: threads depend on it, and last bits on threads
    todo = []
    for experiment, folder, watcher in zip(experiments, folders, watchers, strict=True):
        if folder.summary() is None:
            todo.append(Task(experiment, plan.where(experiment, jobs), watcher))
        else:
            folder.claim(experiment)
    runner = Runner(plan.out, plan.data_home, plan.save, patience=None if failures is None else 0.0)
    with stopping_politely() as stop:
        if failures is not None:
            _sweep(todo, runner, plan, jobs, failures, stop)
        elif plan.pack > 1:
            Pack(Listed(todo), runner, max(1, min(plan.pack, len(todo)))).go()
        elif min(jobs, len(todo)) > 1:
            Pool(todo, runner, min(jobs, len(todo))).go()
        else:
            for task in todo:
                if not stop.asked:
                    runner.run(task)
    return [result(folder, experiment) for folder, experiment in zip(folders, experiments, strict=True)]


def _sweep(
    todo: Sequence[Task], runner: Runner, plan: Plan, jobs: int, failures: dict[str, IblurryError], stop: Stop
) -> None:
    """In workers, until each is finished or has failed: one that was told to leave by someone else is followed up."""
    on_gpu = any(task.where.device != "cpu" for task in todo)
    gpus = visible_gpus() if on_gpu and plan.on == "local" else []
    for _ in range(TRIES):
        if not todo or stop.asked:
            return
        size, places = min(plan.pack, len(todo)), min(plan.jobs or len(gpus) or jobs, len(todo))
        workers: Pool | Cluster
        if plan.on == "ray":
            workers = Cluster(todo, runner, plan.jobs, size=size)
        else:
            workers = Pool(todo, runner, places, size=size, gpus=gpus, tolerant=True)
        workers.go()
        failures |= {todo[number].experiment.name: error for number, error in workers.desk.failures.items()}
        todo = [task for task in todo if not _is_settled(task, runner, failures)]


def _is_settled(task: Task, runner: Runner, failures: dict[str, IblurryError]) -> bool:
    return task.experiment.name in failures or RunFolder(runner.out / task.experiment.name).summary() is not None


def _check_different(folders: Sequence[RunFolder]) -> None:
    names = [folder.path.name for folder in folders]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(f"The experiment {name} is there twice; it is one run, so name it once.")

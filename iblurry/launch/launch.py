"""Runs experiments: one or several, in this process or in workers; the same call continues what was interrupted."""

from __future__ import annotations

import dataclasses
import multiprocessing
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from iblurry.components.code_hash import IMPORTING
from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.engine.devices import visible_gpus
from iblurry.engine.threads import default_threads
from iblurry.errors import IblurryError, InputError, RunFailedError, check_type
from iblurry.experiment.callback import Callback, Callbacks, as_callbacks
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.result import Result, read_result
from iblurry.experiment.run_loop import check_finished, fingerprints
from iblurry.launch.config import LaunchConfig
from iblurry.launch.job_queue import JobQueue
from iblurry.launch.pack import Pack
from iblurry.launch.processes import StopRequest, stop_on_signals
from iblurry.launch.progress import ProgressDisplay
from iblurry.launch.ray import RayWorkers
from iblurry.launch.workers import LocalWorkers
from iblurry.methods.method import Method


def run(
    experiment: Experiment | Method | str,
    out: Path | str = "runs",
    *,
    dataset: Dataset | None = None,
    data_home: Path | None = None,
    callback: Callbacks = None,
    checkpoints: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008  frozen
    hardware: Hardware = Hardware(),  # noqa: B008  frozen
    again: bool = False,
    progress: bool | None = None,
) -> Result:
    """Run or continue an experiment in this process; a finished one is only read, if its data are the same.

    Parameters
    ----------
    experiment : Experiment, Method or str
        What to run; its folder is `out`/`experiment.name`. A method or its name, such as "er", stands for
        `Experiment.of(method, dataset)`; without a dataset, on digits.
    out : Path or str
        Folder of the run folders.
    dataset : Dataset, optional
        The data, if they are loaded already; None: `experiment.dataset` is loaded.
    data_home : Path, optional
        Folder of imported data sets; None: the usual one.
    callback : Callback or sequence of Callback, optional
        Follow the run, log metrics of their own, stop it early.
    checkpoints : CheckpointPolicy
        How often the run is saved.
    hardware : Hardware
        Device, precision and threads; a GPU is used if there is one, except by "mlp" and "convnet".
    again : bool
        Whether to delete what was run before and start anew, for example on data that have changed.
    progress : bool, optional
        Whether to show a bar, or a line a minute where there is no terminal. None: on a terminal and in a notebook.

    Returns
    -------
    Result
        Not finished (`summary` is None) if SIGINT or SIGTERM came: the run was saved, and the same call continues.
    """
    _refuse_while_importing()
    check_type("dataset", dataset, Dataset | None)
    experiment = _as_experiment(experiment, "digits" if dataset is None else dataset)
    check_type("hardware", hardware, Hardware)
    check_type("progress", progress, bool | None)
    place = Path(out) if isinstance(out, str) else out
    config = LaunchConfig(out=place, data_home=data_home, checkpoints=checkpoints, device=hardware.device)
    queue = JobQueue()
    device, threads = config.device_for(experiment), hardware.threads or default_threads(experiment.network)
    callbacks, display = [*as_callbacks(callback)], None if progress is False else ProgressDisplay()
    if display is not None and (progress or display.is_watched):
        callbacks.append(display.callback(f"{experiment.method.name} seed {experiment.seed}"))
    queue.add(experiment, dataclasses.replace(hardware, device=device, threads=threads), callbacks)
    if again:
        RunFolder(config.out / experiment.name).clear()
    failure: BaseException | None = None
    with stop_on_signals() as stop, display or nullcontext():
        try:
            Pack(config, queue, stop, dataset=dataset).run()
        except RunFailedError as error:  # in this process the error itself can be raised
            failure = error.__cause__
    if failure is not None:
        raise failure
    return read_result(RunFolder(config.out / experiment.name), experiment)


def run_all(
    experiments: Sequence[Experiment | Method | str],
    config: LaunchConfig = LaunchConfig(),  # noqa: B008  frozen
    callbacks: Callback | Sequence[Callbacks] | None = None,
    *,
    failures: dict[str, IblurryError] | None = None,
) -> list[Result]:
    """Run or continue experiments; finished ones are only read.

    Parameters
    ----------
    experiments : sequence of Experiment, Method or str
        All different; methods and their names as in `run`.
    config : LaunchConfig
        Where and how they are run.
    callbacks : Callback or sequence, optional
        One for all experiments; or for each a callback, a sequence of them, or None.
    failures : dict, optional
        None: a run that fails stops the others, which are saved, and its error is raised (RunFailedError where it is
        none of iblurry's, such as one of a part of your own). A dict: the others go on,
        and errors are put there by the experiment's name; runs are in worker processes, lost workers are replaced,
        and runs that another program has in hand are waited for.

    Returns
    -------
    list of Result
        In the order given; not finished (`summary` is None) where a run failed or SIGINT or SIGTERM came.
    """
    _refuse_while_importing()
    if isinstance(experiments, str | Method | Experiment) or not isinstance(experiments, Iterable):
        raise InputError(f"run_all takes a list of experiments, not {experiments!r:.80}; write run_all([...]).")
    check_type("config", config, LaunchConfig)
    chosen = [_as_experiment(experiment) for experiment in experiments]
    if callbacks is None or isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        callbacks = [callbacks] * len(chosen)
    several = [as_callbacks(one) for one in callbacks]
    if len(several) != len(chosen):
        raise InputError(f"There are {len(chosen)} experiments and {len(several)} callbacks; give one for each.")
    folders = [RunFolder(config.out / experiment.name) for experiment in chosen]
    _check_different(chosen)
    if config.again:
        for folder in folders:
            folder.clear()
    fingerprint = fingerprints(lambda spec: load(spec, config.data_home))
    workers = config.worker_count(chosen)  # finished ones too: threads depend on it, and last bits on threads
    queue = JobQueue(tolerant=failures is not None or config.on == "ray")
    for experiment, folder, given in zip(chosen, folders, several, strict=True):
        if folder.summary() is None:
            queue.add(experiment, config.hardware_for(experiment, workers), given)
        else:
            check_finished(folder, experiment, fingerprint, [one for one in given if one.run_hooks()])
    if queue.jobs:
        with stop_on_signals() as stop:
            _run_queue(queue, config, workers, stop)
    if failures is not None:
        failures |= queue.failures
    elif queue.failures:
        raise next(iter(queue.failures.values()))
    return [read_result(folder, experiment) for folder, experiment in zip(folders, chosen, strict=True)]


def _run_queue(queue: JobQueue, config: LaunchConfig, workers: int, stop: StopRequest) -> None:
    if config.on == "ray":
        RayWorkers(queue, replace(config, pack=min(config.pack, len(queue.jobs))), stop).run()
        return
    gpus = visible_gpus() if queue.tolerant and any(job.hardware.device != "cpu" for job in queue.jobs) else []
    places = min((config.jobs or len(gpus) or workers) if queue.tolerant else workers, len(queue.jobs))
    config = replace(config, pack=min(config.pack, ceil(len(queue.jobs) / places)))  # none idle beside a full pack
    if queue.tolerant or places > 1:
        LocalWorkers(queue, config, stop, places=places, gpus=gpus).run()
    else:
        Pack(config, queue, stop).run()


def _as_experiment(given: Any, dataset: str | Dataset = "digits") -> Experiment:
    if isinstance(given, str | Method):
        return Experiment.of(given, dataset)
    if not isinstance(given, Experiment):
        raise InputError(f"{given!r:.80} is not an experiment; give an Experiment, a Method or its name, such as 'er'.")
    return given


def _refuse_while_importing() -> None:
    """A script that is imported for its classes, by --import or by a worker process, must not run its runs again."""
    script = IMPORTING.get()
    if script is None and getattr(multiprocessing.current_process(), "_inheriting", False):
        script = getattr(sys.modules.get("__mp_main__"), "__file__", "the script")
    if script is not None:
        raise InputError(
            f"{script} runs experiments while it is imported for its classes; put the call under "
            'if __name__ == "__main__": so that it runs only when the script itself is started.'
        )


def _check_different(experiments: Sequence[Experiment]) -> None:
    names = [experiment.name for experiment in experiments]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The experiment {name} is given twice; give it once.")

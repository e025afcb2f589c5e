"""Runs an experiment, alone, in this process; the same call continues what was interrupted."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.experiment.callback import Callback, Silent
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware, thread_count
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.interrupt import stopping_politely
from iblurry.experiment.journal import Record, read
from iblurry.experiment.metrics import Metrics, metrics
from iblurry.experiment.run_loop import RunLoop, open_run

__all__ = ["CheckpointPolicy", "Result", "result", "run"]


@dataclass(frozen=True)
class Result:
    """A run's folder and what it amounts to so far."""

    folder: Path
    experiment: Experiment
    records: list[Record]
    metrics: Metrics
    summary: dict[str, Any] | None  # None: not finished


def run(
    experiment: Experiment,
    out: Path | str = "runs",
    *,
    dataset: Dataset | None = None,
    data_home: Path | None = None,
    watcher: Callback | None = None,
    save: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008  frozen
    where: Hardware = Hardware(),  # noqa: B008  frozen
) -> Result:
    """Runs or continues `experiment` in its own folder under `out`; a finished one is only read.

    `where` is the machine's part: device, precision, threads.
    """
    with open_run(
        experiment,
        Path(out),
        data=lambda: dataset or load(experiment.dataset, data_home),
        watcher=watcher or Silent(),
        often=save,
        where=where,
    ) as walk:
        if walk is not None:
            _go(walk)
        return result(RunFolder(Path(out) / experiment.name), experiment)


def _go(walk: RunLoop) -> None:
    with (
        thread_count(walk.threads),
        stopping_politely() as stop,
        walk.engine.cuda_stream(),
        closing(walk.steps(lambda: stop.asked)) as steps,
    ):
        for _ in steps:
            pass


def result(folder: RunFolder, experiment: Experiment | None = None) -> Result:
    """What a folder holds, from its files alone; a run that was not begun yet has no records."""
    summary = folder.summary()
    begun = summary is not None or folder.journal.exists()
    records = read(folder.journal, partial=summary is None) if begun else []
    return Result(folder.path, experiment or folder.experiment(), records, metrics(records), summary)

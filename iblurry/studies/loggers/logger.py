"""What an experiment logger is: one protocol, and the three that are known by name."""

from __future__ import annotations

import re
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from iblurry.errors import InputError, UnknownNameError
from iblurry.studies.loggers.history import RunHistory

LOGGERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "mlflow": "MLflow"}


class ExperimentLogger(Protocol):
    """Keeps runs. To write a run that is there already leaves it there once."""

    errors: tuple[type[Exception], ...]  # that its library raises where it refuses

    def write(self, run: RunHistory) -> str:
        """Write all of a run, finished or not yet; returns where it can be looked at."""


def log_run(run: RunHistory, logger: ExperimentLogger) -> str:
    """Write a run to a logger; returns where it can be looked at. InputError where the logger's library refuses."""
    try:
        return logger.write(run)
    except logger.errors as error:
        raise InputError(
            f"{type(logger).__name__} could not log {run.folder}: {str(error).rstrip('.')}. The run is not "
            "changed; run the same command to try again."
        ) from error


def make_logger(name: str, *, out: Path | None = None, project: str | None = None) -> ExperimentLogger:
    """A logger of LOGGERS; it keeps its files in `out`, and runs in W&B's `project` or the MLflow experiment so called.

    InputError where its library is not installed.
    """
    from iblurry.studies.loggers.mlflow import MLflow
    from iblurry.studies.loggers.tensorboard import TensorBoard
    from iblurry.studies.loggers.wandb import WeightsAndBiases

    if name not in LOGGERS:
        raise UnknownNameError("logger", name, LOGGERS)
    if name == "tensorboard" and project is not None:
        raise InputError(f"--project {project}: TensorBoard has folders and no projects; give --out instead.")
    require_library(name, name)
    if name == "tensorboard":
        return TensorBoard(out)
    return WeightsAndBiases(out, project) if name == "wandb" else MLflow(out, project)


def require_library(library: str, extra: str) -> None:
    """Raise InputError unless a library that comes with an extra is installed."""
    found = find_spec(library)
    if found is None or found.origin is None:  # no origin: a folder of that name in the working folder, and no more
        raise InputError(f"{LOGGERS[extra]} needs {library}, which is not installed; pip install 'iblurry[{extra}]'.")


def safe_name(name: str) -> str:
    """The name with letters, digits, - and _ alone; a checksum tells apart names that would become the same.

    >>> safe_name("clib-digits-1"), safe_name("cat/dog")
    ('clib-digits-1', 'cat-dog-6ef44cf1')
    """
    if re.fullmatch("[A-Za-z0-9_-]{1,120}", name):
        return name
    return re.sub("[^A-Za-z0-9_-]", "-", name[:100]) + f"-{zlib.crc32(name.encode()):08x}"

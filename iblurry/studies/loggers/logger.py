"""What an experiment logger is: one protocol, the three that are known by name, and what they are told of a run."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from iblurry.errors import DataError, InputError, UnknownNameError
from iblurry.experiment.folder import RunFolder
from iblurry.studies.fields import Value, flatten_fields

LOGGERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "mlflow": "MLflow"}


@dataclass(frozen=True)
class RunDescription:
    """What is known of a run before its first query."""

    name: str  # of its folder
    folder: Path
    parameters: dict[str, Value]  # fields of the experiment, by the paths that --set takes
    environment: dict[str, Value]  # versions, machine, device, threads


class ExperimentLogger(Protocol):
    """Keeps the numbers of one run. To log a run that is there already leaves it there once.

    Attributes
    ----------
    errors : tuple of exception classes
        What the library raises where it refuses.
    """

    errors: tuple[type[Exception], ...]

    def start(self, run: RunDescription) -> str:
        """Called first, and again where all that was logged is void; returns where the run can be looked at."""

    def log_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Numbers by name after `step` samples; steps never go down."""

    def log_text(self, name: str, text: str, step: int) -> None:
        """A named text after `step` samples."""

    def flush(self) -> None:
        """Make what was logged so far visible."""

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """Called last, with the run's summary; None where the run is not finished."""


def make_logger_factory(
    name: str, *, out: Path | None = None, project: str | None = None
) -> Callable[[], ExperimentLogger]:
    """A function that makes a logger for one more run.

    Parameters
    ----------
    name : str
        A name of LOGGERS; InputError where its library is not installed.
    out : Path, optional
        Where it keeps its files on this machine.
    project : str, optional
        W&B's project or MLflow's experiment.
    """
    from iblurry.studies.loggers.mlflow import MLflow
    from iblurry.studies.loggers.tensorboard import TensorBoard
    from iblurry.studies.loggers.wandb import WeightsAndBiases

    if name not in LOGGERS:
        raise UnknownNameError("logger", name, LOGGERS)
    if name == "tensorboard" and project is not None:
        raise InputError(f"--project {project}: TensorBoard has folders and no projects; give --out instead.")
    require_library(name, name)
    classes = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}
    return partial(classes[name], out, project)


def require_library(library: str, extra: str) -> None:
    """Raise InputError unless a library that comes with an extra is installed."""
    found = find_spec(library)
    if found is None or found.origin is None:  # no origin: a folder of that name in the working folder, and no more
        raise InputError(f"{LOGGERS[extra]} needs {library}, which is not installed; pip install 'iblurry[{extra}]'.")


def describe_run(folder: RunFolder) -> RunDescription:
    """From experiment.json and environment.json alone: parts of one's own need no --import."""
    about = folder.about()
    try:
        parameters = flatten_hyperparameters(about["experiment"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{folder.path / 'experiment.json'} holds no experiment that can be read: {error!r}. Put back a good copy."
        ) from error
    return RunDescription(folder.path.resolve().name, folder.path, parameters, folder.environment() or {})


def flatten_hyperparameters(experiment: dict[str, Any]) -> dict[str, Value]:
    """The method's name, then every field of the experiment and of its method.

    >>> method = {"name": "mine", "schedule": {"Constant": {"initial_lr": 0.1}}}
    >>> flatten_hyperparameters({"memory": 20, "method": method})
    {'method': 'mine', 'memory': 20, 'schedule': 'Constant', 'schedule.initial_lr': 0.1}
    """
    method = dict(experiment["method"])
    settings = {name: value for name, value in experiment.items() if name != "method"}
    return {"method": method.pop("name")} | flatten_fields(settings) | flatten_fields(method)


def safe_name(name: str) -> str:
    """The name with letters, digits, - and _ alone; a checksum tells apart names that would become the same.

    >>> safe_name("clib-digits-1"), safe_name("cat/dog")
    ('clib-digits-1', 'cat-dog-6ef44cf1')
    """
    if re.fullmatch("[A-Za-z0-9_-]{1,120}", name):
        return name
    return re.sub("[^A-Za-z0-9_-]", "-", name[:100]) + f"-{zlib.crc32(name.encode()):08x}"

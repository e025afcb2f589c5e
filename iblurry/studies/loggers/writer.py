"""Who keeps a run's numbers: one protocol, and the three that are known by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from iblurry.errors import InputError, UnknownNameError
from iblurry.studies.loggers.facts import Facts

WRITERS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "mlflow": "MLflow"}


class Writer(Protocol):
    """Keeps one run. To write a run again that is there already leaves it there once."""

    errors: tuple[type[Exception], ...]  # what the library raises where it refuses

    def start(self, run: Facts) -> str:
        """First of all, and again where all that was told is void; says where the run can be looked at."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Numbers after so many samples; steps never go down."""

    def text(self, name: str, text: str, step: int) -> None:
        """A word after so many samples."""

    def flush(self) -> None:
        """Whoever looks now should see what was told so far."""

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Last of all; None where the run is not finished."""


def maker(name: str, *, out: Path | None = None, project: str | None = None) -> Callable[[], Writer]:
    """Makes writers of this name, one for each run; raises at once where its library is not installed."""
    if name not in WRITERS:
        raise UnknownNameError("logger", name, WRITERS)
    make: Callable[[Path | None, str | None], Callable[[], Writer]]
    make = import_module(f"iblurry.studies.loggers.{name}").maker
    return make(out, project)


def library(name: str, extra: str) -> None:
    """Raises InputError unless a library that comes with an extra is installed."""
    found = find_spec(name)
    if found is None or found.origin is None:  # no origin: a folder of that name in the working folder, and no more
        raise InputError(f"{WRITERS[extra]} needs {name}, which is not installed; pip install 'iblurry[{extra}]'.")

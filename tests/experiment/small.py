"""Small experiments, and callbacks that record what they are told or act at a chosen sample."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iblurry.experiment.callback import Callback
from iblurry.experiment.experiment import Experiment
from iblurry.methods import Hyperparameters, method
from iblurry.parts import Adaptive

DATA = "shapes:classes=4,train=20,test=10,size=8,channels=1"
METHODS = ("er", "clib", "clib-stream")


def small(name: str = "er", dataset: str = DATA, **changes: Any) -> Experiment:
    """Eighty samples in two tasks; quick to adapt, so that a short stream shows all of a method's rules."""
    chosen = method(name, Hyperparameters(batch=8))
    if isinstance(chosen.schedule, Adaptive):
        chosen = dataclasses.replace(chosen, schedule=Adaptive(trial=2, ignore=2, history=3))
    if chosen.refit is not None:
        chosen = dataclasses.replace(chosen, readout=dataclasses.replace(chosen.readout, epochs=3))
    options = (
        {"memory": 24, "network": "mlp:width=16", "query_every": 7}
        | ({} if "stream" in changes else {"tasks": 2})
        | changes
    )
    return Experiment.of(chosen, dataset, **options)


def kept(folder: Path) -> tuple[bytes, bytes]:
    """What must come out the same however a run was interrupted: the journal and the newest checkpoint."""
    return (folder / "journal.jsonl").read_bytes(), checkpoints(folder)[-1].read_bytes()


def checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"))


class CrashError(Exception):
    """What no part of the program knows how to handle."""


class Recorder(Callback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.position = 0
        self.starts: list[int] = []  # positions
        self.refits = (0, 0)  # updates done and to do, of the latest refit
        self.messages: list[str] = []
        self.stages: list[str] = []

    def on_run_start(self, name: str, position: int, samples: int) -> None:
        self.starts.append(position)
        self.position = position

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        self.position = position

    def on_stage(self, text: str) -> None:
        self.stages.append(text)

    def on_refit_progress(self, done: int, total: int) -> None:
        self.refits = done, total

    def on_message(self, text: str) -> None:
        self.messages.append(text)


class At(Recorder):
    """Acts once, when the run has come to a sample."""

    def __init__(self, sample: int, act: Callable[[], None]) -> None:
        super().__init__()
        self.sample, self.act, self.acted = sample, act, False

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        super().on_progress(position, accuracy, lr)
        if position >= self.sample and not self.acted:
            self.acted = True
            self.act()


def crash() -> None:
    raise CrashError


def stop() -> None:
    """As a user or a scheduler asks a run to save itself and to end."""
    os.kill(os.getpid(), signal.SIGTERM)

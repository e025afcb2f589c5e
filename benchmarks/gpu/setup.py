"""What is measured: a data set's experiments on the given images, the engines, and a process for each measurement."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import torch

from iblurry.components.edit import edit
from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.engine.eager import Eager, Precision
from iblurry.engine.graph import Graph
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment

PAPER = ("er", "ewc", "bic", "mir", "agem", "gss", "clib", "rm", "gdumb", "joint")
ALL = (*PAPER, "er-averaged", "er-ace", "derpp", "mkd", "sdp", "sar", "balm")
T = TypeVar("T")
Mode = Literal["eager", "captured", "compiled"]


@dataclass(frozen=True, kw_only=True)
class BenchmarkSetup:
    """The device, the data and the sizes that all methods are measured with."""

    dataset: str = "cifar10"  # the images
    settings: str = "cifar10"  # the data set whose batches, updates and tasks they are learnt with
    data_home: Path | None = None
    network: str = "resnet18"
    memory: int = 500
    device: str = "cuda"
    precision: Precision = "bfloat16"
    epochs: int = 8  # of a refit, instead of hundreds

    @classmethod
    def from_args(cls, given: argparse.Namespace) -> Self:
        """From the options of a command line."""
        return cls(**{field.name: getattr(given, field.name) for field in dataclasses.fields(cls)})

    def load(self) -> Dataset:
        return load(self.dataset, self.data_home)

    @property
    def hardware(self) -> Hardware:
        return Hardware(device=self.device, precision=self.precision)

    def experiment(self, method: str, **changes: Any) -> Experiment:
        """With the settings whatever the images are; a refit takes a few epochs."""
        experiment = self.protocol(method, **changes)
        return edit(experiment, f"readout.epochs={self.epochs}") if experiment.method.refit else experiment

    def protocol(self, method: str, **changes: Any) -> Experiment:
        """The same with all epochs."""
        sizes = {"memory": self.memory, "network": self.network}
        return dataclasses.replace(Experiment.of(method, self.settings, **sizes | changes), dataset=self.dataset)

    def engine(self, mode: Mode) -> Eager:
        """On a CPU there is nothing to capture, and every mode is the eager one."""
        if mode == "eager" or torch.device(self.device).type == "cpu":
            return Eager(self.device, self.precision)
        return Graph(self.device, self.precision, compiles=mode == "compiled")


def reset_device(device: str) -> None:
    """Frees what the last learner held and resets the peak and torch's count of compilations."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.compiler.reset()  # after a few compilations of the same code torch runs it eagerly without saying so
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def map_in_processes(function: Callable[[str], T], methods: Iterable[str], *, jobs: int = 1) -> Iterator[T]:
    """function(method) for each method, in a new process each, `jobs` at a time; results in order as they are ready.

    In one process, peak memory would grow with the methods before: cuBLAS keeps a workspace for every CUDA stream.
    """
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(function, methods)

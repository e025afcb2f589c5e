"""What is measured: the experiments of CIFAR-10 on whichever images were given, and the engines that run them."""

from __future__ import annotations

import argparse
import dataclasses
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch

from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.engine.eager import Eager, Precision
from iblurry.engine.graph import Graph
from iblurry.experiment.edit import edit
from iblurry.experiment.experiment import Experiment

ALL = ("er", "ewc", "bic", "mir", "agem", "gss", "clib", "rm", "gdumb", "joint")
Mode = Literal["eager", "captured", "compiled"]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The machine's part and the data's; the methods come one by one."""

    dataset: str = "cifar10"
    data_home: Path | None = None
    network: str = "resnet18"
    memory: int = 500
    device: str = "cuda"
    precision: Precision = "bfloat16"
    epochs: int = 8  # of a refit, instead of hundreds

    @classmethod
    def of(cls, given: argparse.Namespace) -> Self:
        """As the words of a command line say."""
        return cls(**{field.name: getattr(given, field.name) for field in dataclasses.fields(cls)})

    def load(self) -> Dataset:
        return load(self.dataset, self.data_home)

    def experiment(self, method: str, **changes: Any) -> Experiment:
        """As on CIFAR-10 whatever the images are; a refit takes a few epochs."""
        one = self.protocol(method, **changes)
        return edit(one, f"readout.epochs={self.epochs}") if one.method.refit else one

    def protocol(self, method: str, **changes: Any) -> Experiment:
        """The same with all epochs."""
        usual = {"memory": self.memory, "network": self.network}
        return dataclasses.replace(Experiment.of(method, "cifar10", **usual | changes), dataset=self.dataset)

    def engine(self, mode: Mode) -> Eager:
        """On a CPU there is nothing to capture, and every mode is the eager one."""
        if mode == "eager" or torch.device(self.device).type == "cpu":
            return Eager(self.device, self.precision)
        return Graph(self.device, self.precision, compiles=mode == "compiled")


def start_afresh(device: str) -> None:
    """Gives back what the last learner held: its memory, its peak, and torch's count of compilations of one body."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.compiler.reset()  # after a few compilations of the same code torch runs it eagerly, without a word
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)

"""Seconds of the full protocol, and of several seeds packed on one device beside one alone."""

from __future__ import annotations

import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.setup import BenchmarkSetup, reset_device
from benchmarks.gpu.timing import wait_for_device
from iblurry.data.dataset import Dataset
from iblurry.errors import InputError
from iblurry.experiment.callback import Callback
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Query
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all

PACKS = {"clib": 3, "er": 4}  # seeds that are packed
WARM_UP = 1500  # samples of the run before the timed one
SELDOM = CheckpointPolicy(seconds=24 * 3600)  # no checkpoint falls into one window and not into the other


def run_full(
    method: str, setup: BenchmarkSetup, data: Dataset, out: Path, *, samples: int | None = None
) -> dict[str, Any]:
    """The protocol from the first sample to the last query, capture included.

    A short run comes first, in the row as "warm-up seconds": what a process does once (compiling or loading its
    kernels) would else count for whichever method is the first.
    """
    before = setup.protocol(method, samples=min(WARM_UP, samples or WARM_UP))
    with tempfile.TemporaryDirectory() as folder:  # never one that holds this run finished, which would warm nothing
        warmed = run(before, folder, dataset=data, hardware=setup.hardware)
    reset_device(setup.device)
    experiment = setup.protocol(method, samples=samples)
    done = run(experiment, out / "full", dataset=data, hardware=setup.hardware)
    assert warmed.summary is not None
    assert done.summary is not None
    return {
        "method": method,
        "warm-up seconds": warmed.summary["seconds"],
        "samples": done.summary["samples"],
        "queries": sum(isinstance(record, Query) for record in done.records),
        "seconds": done.summary["seconds"],
        "a_auc": done.metrics.a_auc,
    }


def run_packed(method: str, setup: BenchmarkSetup, data: Dataset, out: Path, *, samples: int) -> dict[str, Any]:
    """Seconds a sample of several seeds at once, over those of one alone: 1 is no gain. They end with the same bytes.

    Of a run of so many samples the first third is left out, which compiles and captures.
    """
    seeds = PACKS[method]
    first, last = samples // 3, samples
    many = [setup.protocol(method, samples=samples, seed=seed) for seed in range(1, seeds + 1)]
    reset_device(setup.device)
    alone = ProgressClock(first, last, device=setup.device)
    run(many[0], out / "alone", dataset=data, callback=alone, checkpoints=SELDOM, hardware=setup.hardware)
    reset_device(setup.device)
    together = [ProgressClock(first, last, device=setup.device) for _ in many]
    _pack(many, setup, out / "packed", together)
    ends = [run_outputs(out / side / many[0].name) for side in ("alone", "packed")]
    one, each = seconds_per_sample([alone], first, last), seconds_per_sample(together, first, last)
    return {
        "method": method,
        "seeds": seeds,
        "window": [first, last],
        "alone ms a sample": 1000 * one,
        "packed ms a sample": 1000 * each,
        "ratio": each / one,
        "equal": ends[0] == ends[1],
    }


def _pack(many: Sequence[Experiment], setup: BenchmarkSetup, out: Path, clocks: Sequence[ProgressClock]) -> None:
    config = LaunchConfig(
        out=out,
        data_home=setup.data_home,
        checkpoints=SELDOM,
        device=setup.device,
        precision=setup.precision,
        pack=len(many),
    )
    run_all(many, config, clocks)


class ProgressClock(Callback):
    """Records when a run reached which sample; at both ends of the window it waits for the device."""

    def __init__(self, *ends: int, device: str) -> None:
        self.ends, self.device = list(ends), device
        self.when: list[float] = []  # seconds
        self.where: list[int] = []  # samples

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        if self.ends and position >= self.ends[0]:
            self.ends.pop(0)
            wait_for_device(self.device)
        self.when.append(time.monotonic())
        self.where.append(position)

    def reached(self, sample: int) -> float:
        """When the run reached this sample."""
        if not self.where or self.where[-1] < sample:
            raise InputError(f"A run was not seen to pass sample {sample}: it had been finished; choose another --out.")
        return self.when[bisect_left(self.where, sample)]

    def at_time(self, when: float) -> float:
        """How many samples were done then, interpolated."""
        return float(np.interp(when, self.when, self.where))


def seconds_per_sample(clocks: Sequence[ProgressClock], first: int, last: int) -> float:
    """Seconds a sample, over all runs, from when the last of them passed `first` until the first reached `last`."""
    start = max(clock.reached(first) for clock in clocks)
    end = min(clock.reached(last) for clock in clocks)
    if end <= start:
        raise InputError(f"The runs did not overlap between samples {first} and {last}; give more samples.")
    return (end - start) / sum(clock.at_time(end) - clock.at_time(start) for clock in clocks)


def run_outputs(folder: Path) -> dict[str, bytes]:
    """What must be equal byte for byte: the journal, and the newest checkpoint with all of a learner's state."""
    newest = sorted(folder.glob("checkpoint-*.safetensors"))[-1]
    return {"journal": (folder / "journal.jsonl").read_bytes(), "checkpoint": newest.read_bytes()}

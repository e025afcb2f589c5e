"""Seconds of the full protocol, and of several seeds packed on one device beside one alone."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.kept import kept
from benchmarks.gpu.subject import Subject, start_afresh
from benchmarks.gpu.timing import settle
from iblurry.data.dataset import Dataset
from iblurry.errors import InputError
from iblurry.experiment.callback import Callback
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Query
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all

PACKS = {"clib": 3, "er": 4}  # seeds that are packed
SELDOM = CheckpointPolicy(seconds=24 * 3600)  # no checkpoint falls into one window and not into the other


def full(method: str, subject: Subject, data: Dataset, out: Path, *, samples: int | None = None) -> dict[str, Any]:
    """The protocol from the first sample to the last query, compilation and capture included."""
    start_afresh(subject.device)
    one = subject.protocol(method, samples=samples)
    done = run(one, out / "full", dataset=data, hardware=Hardware(device=subject.device, precision=subject.precision))
    assert done.summary is not None
    return {
        "method": method,
        "samples": done.summary["samples"],
        "queries": sum(isinstance(record, Query) for record in done.records),
        "seconds": done.summary["seconds"],
        "a_auc": done.metrics.a_auc,
    }


def packed(method: str, subject: Subject, data: Dataset, out: Path, *, samples: int) -> dict[str, Any]:
    """Seconds a sample of several seeds at once, over those of one alone: 1 is no gain. They end with the same bytes.

    Of a run of so many samples the first third is left out, which compiles and captures.
    """
    seeds = PACKS[method]
    first, last = samples // 3, samples
    many = [subject.protocol(method, samples=samples, seed=seed) for seed in range(1, seeds + 1)]
    start_afresh(subject.device)
    alone = Clock(first, last, device=subject.device)
    hardware = Hardware(device=subject.device, precision=subject.precision)
    run(many[0], out / "alone", dataset=data, callback=alone, checkpoints=SELDOM, hardware=hardware)
    start_afresh(subject.device)
    together = [Clock(first, last, device=subject.device) for _ in many]
    _pack(many, subject, out / "packed", together)
    ends = [kept(out / side / many[0].name) for side in ("alone", "packed")]
    one, each = pace([alone], first, last), pace(together, first, last)
    return {
        "method": method,
        "seeds": seeds,
        "window": [first, last],
        "alone ms a sample": 1000 * one,
        "packed ms a sample": 1000 * each,
        "ratio": each / one,
        "equal": ends[0] == ends[1],
    }


def _pack(many: Sequence[Experiment], subject: Subject, out: Path, clocks: Sequence[Clock]) -> None:
    config = LaunchConfig(
        out=out,
        data_home=subject.data_home,
        checkpoints=SELDOM,
        device=subject.device,
        precision=subject.precision,
        pack=len(many),
    )
    run_all(many, config, clocks)


class Clock(Callback):
    """Notes when a run came to which sample; at the ends of the window it waits until the device is there, too."""

    def __init__(self, *ends: int, device: str) -> None:
        self.ends, self.device = list(ends), device
        self.when: list[float] = []  # seconds
        self.where: list[int] = []  # samples

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        if self.ends and position >= self.ends[0]:
            self.ends.pop(0)
            settle(self.device)
        self.when.append(time.monotonic())
        self.where.append(position)

    def reached(self, sample: int) -> float:
        """When it had come that far."""
        if not self.where or self.where[-1] < sample:
            raise InputError(f"A run was not seen to pass sample {sample}: it had been finished; choose another --out.")
        return self.when[bisect_left(self.where, sample)]

    def at_time(self, when: float) -> float:
        """How far it had come then; between two notes it is taken to walk steadily."""
        return float(np.interp(when, self.when, self.where))


def pace(clocks: Sequence[Clock], first: int, last: int) -> float:
    """Seconds a sample, over all runs, from when the last of them passed `first` until the first reached `last`."""
    start = max(clock.reached(first) for clock in clocks)
    end = min(clock.reached(last) for clock in clocks)
    if end <= start:
        raise InputError(f"The runs were not under way together between samples {first} and {last}; give more samples.")
    return (end - start) / sum(clock.at_time(end) - clock.at_time(start) for clock in clocks)

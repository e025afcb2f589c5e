"""`python -m benchmarks.gpu.resume er clib --stops 3`: an interrupted run ends with the same bytes.

Every attempt is a process of its own. A method that refits is also stopped inside a refit, if that takes long enough to
be interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.protocol import run_outputs
from benchmarks.gpu.report import exit_with
from benchmarks.gpu.setup import ALL, BenchmarkSetup
from iblurry.errors import InputError
from iblurry.experiment import run_loop as running
from iblurry.experiment.callback import Callback
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.settings import SETTINGS
from iblurry.launch.launch import run

# 300 of its 600 samples: two tasks and a half.
SHAPES = "shapes:classes=10,train=60,test=200,size=32,channels=3"
ROOT = Path(__file__).parents[2]
KILLED = 9  # exit code of a killed attempt


def main(words: Sequence[str] | None = None) -> int:
    """1 where an interrupted run ended otherwise."""
    given = parser().parse_args(words)
    if given.attempt is not None:
        attempt(given)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        rows = [compared(method, given, given.out or Path(temporary)) for method in given.methods]
    return 0 if all(row["equal"] for row in rows) else 1


def compared(method: str, given: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Runs one experiment undisturbed and once with interruptions; a row that says whether they ended the same."""
    one = experiment(method, given)
    undisturbed, interrupted = out.resolve() / "undisturbed", out.resolve() / "interrupted"
    if (undisturbed / one.name).exists() or (interrupted / one.name).exists():
        raise InputError(f"{out} holds these runs already, which would only be read; choose another --out.")
    _run_attempt(method, given, undisturbed)
    stops = interruptions(one, given)
    for how, at in stops:
        _run_attempt(method, given, interrupted, how, at)
    _run_attempt(method, given, interrupted)
    ours, theirs = (run_outputs(folder / one.name) for folder in (undisturbed, interrupted))
    same = {name: ours[name] == theirs[name] for name in ours}
    what = [f"{how} at {at}" for how, at in stops]
    row = {"method": method, "stops": what, "same": same, "equal": all(same.values())}
    print(json.dumps(row), flush=True)
    return row


def interruptions(one: Experiment, given: argparse.Namespace) -> list[tuple[str, int]]:
    """Random samples in order: polite stops and one kill; for a method that refits, where one is under way."""
    chance = random.Random(f"{given.seed} {one.method.name}")
    count = given.stops + given.kills
    chosen = set(chance.sample(range(1, given.samples), count))
    if one.method.refit and given.stops:
        only_at_end = one.method.readout.only_at_end
        end = given.samples if only_at_end else one.order(BenchmarkSetup.from_args(given).load()).ends[0]
        chosen = {end, *chance.sample(sorted(chosen - {end}), count - 1)}
    how = ["kill"] * given.kills + ["stop"] * given.stops
    chance.shuffle(how)
    return list(zip(how, sorted(chosen), strict=True))


def attempt(given: argparse.Namespace) -> None:
    """One attempt, in this process: until the end, or until the stop or kill asked for."""
    (method,) = given.methods
    running.PROGRESS_EVERY = 1  # so that it can be stopped at any sample
    acts: dict[str, Callable[[], None]] = {
        "stop": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "kill": lambda: os._exit(KILLED),
        "undisturbed": lambda: None,
    }
    run(
        experiment(method, given),
        given.out,
        data_home=given.data_home,
        callback=ActAtSample(given.at, acts[given.attempt]),
        checkpoints=CheckpointPolicy(samples=given.save_samples),
        hardware=Hardware(threads=given.threads, device=given.device, precision=given.precision),
    )


class ActAtSample(Callback):
    """Acts once, when the run has reached a sample, or in the refit after it."""

    def __init__(self, sample: int, act: Callable[[], None]) -> None:
        self.sample, self.act, self.acted = sample, act, False
        self.position = 0

    def on_run_start(self, name: str, position: int, samples: int) -> None:
        self.position = position

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        self.position = position
        self._reached(position)

    def on_refit_progress(self, done: int, total: int) -> None:
        self._reached(self.position + 1)  # the sample before the refit is not reported yet

    def _reached(self, at: int) -> None:
        if at >= self.sample and not self.acted:
            self.acted = True
            self.act()


def experiment(method: str, given: argparse.Namespace) -> Experiment:
    return BenchmarkSetup.from_args(given).experiment(method, samples=given.samples, query_every=given.query_every)


def _run_attempt(method: str, given: argparse.Namespace, out: Path, how: str = "undisturbed", at: int = 0) -> None:
    """A fresh process of this file with the same options; how it ends is checked."""
    named = [name for name in PASSED_ON if getattr(given, name) is not None]
    options = [word for name in named for word in (f"--{name.replace('_', '-')}", str(getattr(given, name)))]
    command = [sys.executable, "-m", "benchmarks.gpu.resume", method, *options, "--out", str(out)]
    done = subprocess.run([*command, "--attempt", how, "--at", str(at)], cwd=ROOT, check=False)
    if done.returncode != (KILLED if how == "kill" else 0):
        raise SystemExit(f"{method}: an attempt ({how} at {at}) ended with code {done.returncode}")


PASSED_ON = (  # options of an attempt
    *("dataset", "settings", "data_home", "network", "memory", "device", "precision"),
    *("epochs", "samples", "query_every", "save_samples", "threads"),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.gpu.resume", description=(__doc__ or "").splitlines()[0])
    made.add_argument("methods", nargs="+", choices=ALL, metavar="METHOD")
    made.add_argument("--stops", type=int, default=3, help="polite ones, of each run")
    made.add_argument("--kills", type=int, default=1)
    made.add_argument("--seed", type=int, default=1, help="of the moments")
    made.add_argument("--dataset", default=SHAPES, help="images")
    made.add_argument("--settings", default="cifar10", choices=SETTINGS, help="of which data set, whatever the images")
    made.add_argument("--data-home", type=lambda text: Path(text).resolve())
    made.add_argument("--network", default="resnet18")
    made.add_argument("--memory", type=int, default=64)
    made.add_argument("--samples", type=int, default=300)
    made.add_argument("--query-every", type=int, default=50)
    made.add_argument("--epochs", type=int, default=32, help="of a refit")
    made.add_argument("--save-samples", type=int, default=37, help="between two checkpoints: what a kill may cost")
    made.add_argument("--device", default="cuda")
    made.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    made.add_argument("--threads", type=int, help="torch's")
    made.add_argument("--out", type=Path, help="where runs go; a temporary folder unless told")
    made.add_argument("--attempt", choices=("undisturbed", "stop", "kill"), help=argparse.SUPPRESS)
    made.add_argument("--at", type=int, default=0, help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    exit_with(main)

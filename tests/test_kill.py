"""SIGKILL at random moments of `iblurry run`: what it ends with is what a run in peace ends with, byte for byte.

IBLURRY_KILLS says how many kills each test takes (2 unless told); a run that ends by itself is compared and a new one
is begun until all have been dealt out. IBLURRY_KILLS_SEED chooses other moments.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from iblurry.components.edit import edit
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.launch.launch import run

KILLS = int(os.environ.get("IBLURRY_KILLS", "2"))
SEED = os.environ.get("IBLURRY_KILLS_SEED", "1")
DATA = "shapes:classes=4,train=50,test=25,size=8,channels=1"
FIELDS = {"tasks": 2, "memory": 40, "network": "mlp", "query_every": 10}
LAST = "checkpoint-000000000200.safetensors"
EPOCHS = "readout.epochs=8"  # of the methods that refit, instead of hundreds
REFITS = ("gdumb", "rm")
START_UP = 4.0  # seconds, about what it takes to import torch
PHASES = ("running", "finishing", "starting")


def command(methods: list[str], out: Path, jobs: int) -> list[str]:
    program = [sys.executable, "-c", "from iblurry.cli.main import main; main()"]
    fields = [word for name, value in FIELDS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    saving = ["--save-samples", "7", "--save-seconds", "0.2", "--jobs", str(jobs), "--out", str(out)]
    quick = ["--set", EPOCHS] if set(methods) <= set(REFITS) else []
    return [*program, "run", *methods, "--dataset", DATA, "--seeds", "1", *fields, *quick, *saving]


@pytest.fixture(scope="module")
def in_peace(tmp_path_factory) -> dict[str, Path]:
    """The folders of uninterrupted runs, by the name of the run."""
    out = tmp_path_factory.mktemp("in_peace")
    experiments = [Experiment.of(method, DATA, **FIELDS) for method in ("er", "clib")]
    experiments += [edit(Experiment.of(method, DATA, **FIELDS), EPOCHS) for method in REFITS]
    return {one.name: run(one, out, hardware=Hardware(threads=1)).folder for one in experiments}


@pytest.mark.slow
@pytest.mark.parametrize(
    "methods, jobs",
    [(["clib"], 1), (["clib", "er"], 2), (["gdumb", "rm"], 2)],
    ids=["alone", "two workers", "inside refits"],
)
def test_killed_at_random_moments(methods, jobs, tmp_path, in_peace):
    rng = random.Random(f"{SEED} {jobs}")
    mine = {name: folder for name, folder in in_peace.items() if name.split("-")[0] in methods}
    outs = (tmp_path / str(number) for number in itertools.count())
    out = next(outs)
    for number in range(KILLS):
        while not killed(command(methods, out, jobs), out, PHASES[number % len(PHASES)], rng, mine):
            compare(out, mine)  # it was quicker
            out = next(outs)
        if len(list(out.glob(f"*/{LAST}"))) == len(mine):  # nothing is left to kill it at but its last step
            finish(command(methods, out, jobs))
            compare(out, mine)
            out = next(outs)
    finish(command(methods, out, jobs))
    compare(out, mine)


def killed(line: list[str], out: Path, phase: str, rng: random.Random, in_peace: dict[str, Path]) -> bool:
    """Starts the program and kills it at a random moment of this phase; False where it ended by itself before."""
    moment, began, ended = rng.random(), times(out, "environment.json"), times(out, LAST)
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as program:
        if phase == "starting":
            waits(program, lambda: False, START_UP * moment)
        elif phase == "running":
            waits(program, lambda: times(out, "environment.json") != began)
            waits(program, lambda: False, 2 * sum(map(seconds, in_peace.values())) * moment)
        else:
            waits(program, lambda: times(out, LAST) != ended)
            waits(program, lambda: False, 0.1 * moment)
        program.send_signal(signal.SIGKILL)
        _, complaint = program.communicate()
    if program.returncode == 0:
        return False
    assert program.returncode == -signal.SIGKILL, complaint.decode()
    saved = [path.name for path in sorted(out.glob("*/checkpoint-*"))]
    print(f"killed while {phase} in {out.name}: {saved}")  # shown where the test fails
    return True


def waits(program: subprocess.Popen[bytes], until: Callable[[], bool], most: float = 300.0) -> None:
    end = time.monotonic() + most
    while program.poll() is None and not until() and time.monotonic() < end:
        time.sleep(0.002)


def times(out: Path, name: str) -> set[int]:
    """When the files of this name, and those on the way to it, were written."""
    found = set()
    for path in out.glob(f"*/{name}*"):
        with suppress(FileNotFoundError):  # on its way no more
            found.add(path.stat().st_mtime_ns)
    return found


def seconds(folder: Path) -> float:
    return json.loads((folder / "summary.json").read_text())["seconds"]


def finish(line: list[str]) -> None:
    finished = subprocess.run(line, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr


def compare(out: Path, in_peace: dict[str, Path]) -> None:
    assert sorted(path.parent.name for path in out.glob("*/summary.json")) == sorted(in_peace)
    for name, folder in in_peace.items():
        for file in ("journal.jsonl", LAST, "experiment.json"):
            assert (out / name / file).read_bytes() == (folder / file).read_bytes(), file
        assert numbers(out / name) == numbers(folder)
        assert not list((out / name).glob("*.tmp"))


def numbers(folder: Path) -> dict[str, object]:
    """The summary but for what the clock says."""
    summary = json.loads((folder / "summary.json").read_text())
    return {name: value for name, value in summary.items() if name not in ("seconds", "samples_per_second")}

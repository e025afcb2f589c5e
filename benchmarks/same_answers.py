"""Runs every method with two checkouts of the package and compares their journals, number by number.

    python -m benchmarks.same_answers OLD NEW
    python -m benchmarks.same_answers OLD NEW --methods er clib -- --network mlp

OLD and NEW are folders with an `iblurry` package, such as two worktrees. Each method, its released form and some
ablations learn 400 samples of digits on one thread. What comes after `--` goes to `iblurry run`. Runs are kept in --out
and not repeated there, so the runs of an old checkout serve many comparisons.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from iblurry import METHODS

ABLATIONS = (
    "er rehearsal=Nothing",
    "er gradient=Clip",
    "clib pace.measure_rows=256",
    "clib admission=RingBuffer",
    "clib schedule=Constant",
    "clib readout=NearestMean",
    "clib pace.stream_batch=8",
    "clib pace.updates_per_sample=3",
    "clib optimizer=SGD",
    "balm readout=Plain",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument(
        "--methods", nargs="+", default=[*METHODS, *(f"{name}-released" for name in METHODS), *ABLATIONS]
    )
    parser.add_argument("--out", type=Path, default=Path("runs/same-answers"))
    parser.add_argument("--jobs", default="2")
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, options = parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1 :]
    found = []
    for name, checkout in (("old", given.old), ("new", given.new)):
        out = given.out / name
        _run(checkout.resolve(), out.resolve(), [*given.methods, "--jobs", given.jobs, *options])
        found.append(_journals(out))
    old, new = found
    differing = [run for run in old if run in new and old[run] != new[run]]
    missing = sorted(old.keys() ^ new.keys())
    for run in differing:
        at = next((a, b) for a, b in zip(old[run], new[run], strict=False) if a != b)
        print(f"{run}: the first line that differs\n  old {json.dumps(at[0])}\n  new {json.dumps(at[1])}")
    for run in missing:
        print(f"{run}: only one of the two has it")
    equal = len(old.keys() & new.keys()) - len(differing)
    print(f"Journals: {equal} equal, {len(differing)} different, {len(missing)} of one checkout only.")
    return 1 if differing or missing or not old else 0


def _run(checkout: Path, out: Path, arguments: list[str]) -> None:
    """`iblurry run` of a checkout; runs that are finished there already are kept."""
    fixed = ["--dataset", "digits", "--samples", "400", "--seeds", "1", "--threads", "1", "--device", "cpu"]
    env = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "iblurry", "run", *arguments, *fixed, "--out", str(out)]
    subprocess.run(command, check=True, cwd=checkout, env=env, stdout=subprocess.DEVNULL)


def _journals(out: Path) -> dict[str, list[Any]]:
    """The lines of each run's journal, by the name of its folder."""
    paths = sorted(out.glob("*/journal.jsonl"))
    return {path.parent.name: [json.loads(line) for line in path.read_text().splitlines()] for path in paths}


if __name__ == "__main__":
    raise SystemExit(main())

"""Kills a run of each method once, lets the same command go on, and compares with a run in peace, byte for byte.

    python -m benchmarks.kills er clib gdumb --kill-at 60 -- --dataset cifar10 --samples 150 --memory 64

A method with refits is killed inside one. What comes after `--` goes to `iblurry run`; so does `--threads`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from iblurry.experiment.experiment import Experiment
from iblurry.storage.checkpoint import NAME, load_latest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("runs/kills"))
    parser.add_argument("--kill-at", type=int, default=60, help="kill once a checkpoint lies at this sample or later")
    parser.add_argument("--at-a-time", type=int, default=1, help="methods at a time, each in two processes")
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, options = parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1 :]
    with ThreadPoolExecutor(given.at_a_time) as pool:
        rows = list(pool.map(lambda method: _compare(method, given.out, given.kill_at, options), given.methods))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "kills.json").write_text(json.dumps({"options": options, "rows": rows}, indent=2) + "\n")
    return 0 if all(row["same"] for row in rows) else 1


def _compare(method: str, out: Path, kill_at: int, options: list[str]) -> dict[str, object]:
    command = [sys.executable, "-m", "iblurry", "run", method, "--seeds", "1", "--jobs", "1", *options, "--out"]
    start = time.monotonic()
    peace = subprocess.Popen([*command, out / method / "peace"], **QUIET)
    victim = subprocess.Popen([*command, out / method / "killed"], **QUIET)
    at, inside = _wait(out / method / "killed", victim, kill_at, refit=Experiment.of(method).method.refit is not None)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    subprocess.run([*command, out / method / "killed"], check=True, **QUIET)
    if peace.wait():
        raise SystemExit(f"{method}: the run in peace failed")
    one, other = (_bytes(_folder(out / method / name)) for name in ("peace", "killed"))
    row = {"method": method, "killed_at": at, "updates_into_a_refit": inside, "same": one == other, "sha256": one}
    print(f"{json.dumps(row)}  {time.monotonic() - start:.0f} s", flush=True)
    return row


def _wait(out: Path, victim: subprocess.Popen[bytes], kill_at: int, *, refit: bool) -> tuple[int, int]:
    """Until a checkpoint is there to be resumed from; its sample, and how far inside a refit it lies."""
    while victim.poll() is None:
        time.sleep(0.3)
        if not any(int(NAME.fullmatch(p.name)[1]) >= kill_at for p in out.glob("*/checkpoint-*.safetensors")):
            continue
        loaded = load_latest(_folder(out))
        inside = (loaded.state["learner"]["refit"] or {}).get("updates", 0)
        if loaded.at >= kill_at and (inside or not refit):
            return loaded.at, inside
    raise SystemExit(f"{out}: the run ended before it could be killed; give --save-samples or --save-seconds less")


def _folder(out: Path) -> Path:
    (found,) = [path for path in out.iterdir() if path.is_dir()]
    return found


def _bytes(folder: Path) -> dict[str, str]:
    """The journal and the newest checkpoint."""
    newest = sorted(folder.glob("checkpoint-*.safetensors"))[-1]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("journal.jsonl", newest.name)}


QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

if __name__ == "__main__":
    raise SystemExit(main())

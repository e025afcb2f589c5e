"""`python -m benchmarks.gpu.accelerations --out FILE`: what each acceleration is worth, switched off one at a time.

Every measurement is a run in a process of its own, in which something is switched off before the run begins (see
switches.py). It times a stretch of the stream with a full memory and its queries, and from it tells how long the whole
protocol would take; of GDumb, it times the last updates of its last refit. A ratio of 1.05 means: 5 % longer without.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch

from benchmarks.gpu.protocol import SELDOM, ProgressClock
from benchmarks.gpu.report import exit_with
from benchmarks.gpu.setup import BenchmarkSetup
from benchmarks.gpu.switches import ROWS
from benchmarks.gpu.timing import wait_for_device
from iblurry.data.dataset import Dataset
from iblurry.experiment.evaluator import Evaluator
from iblurry.experiment.run_loop import RunLoop
from iblurry.experiment.settings import SETTINGS, setting
from iblurry.launch.launch import run
from iblurry.learner.refits import MODELS

SAMPLES = {
    "er": 1500,
    "clib": 1100,
    "gdumb": 600,
    "agem": 1000,
    "mir": 1000,
    "mkd": 1300,
    "sdp": 1000,
    "gss": 900,
}  # of the stream
FIRST = 600  # sample from which on a run is timed: its memory is full, its steps are captured
END = 100  # samples after a run was timed
WARM = ("on", *(name for name, row in ROWS.items() if row.compiles))
LONGEST = 150  # seconds of a measurement
CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}  # of a cold start: names of new folders


def main(words: Sequence[str] | None = None) -> int:
    """1 where a switch does not fit the package any more, or a measurement went wrong."""
    given = parser().parse_args(words)
    began = time.monotonic()
    if given.check:
        found = {name: in_process(given, "fork", check, name) for name in given.only or ROWS}
        print(json.dumps(found, indent=1))
        return int(any("error" in row for row in found.values()))
    usual = setting(given.settings)
    given.network, given.memory = given.network or usual.network, given.memory or usual.memory
    given.precision = "float32" if given.device == "cpu" else "bfloat16"
    setup = BenchmarkSetup.from_args(given)
    data = setup.load()
    if given.one:
        print(json.dumps(measure(setup, data, *given.one, *window(given, *given.one))))
        return 0
    if given.device != "cpu":
        with suppress(ImportError):
            import iblurry.engine.hopper  # noqa: F401  seconds of every process that is forked from this one
    start = start_method(given)
    lines = read_lines(given.out)
    given.out.write_text("".join(json.dumps(line) + "\n" for line in lines))  # without what was cut off
    if given.device != "cpu" and not given.no_warm:
        warm_up(given, start, setup, data)
    for row, method, number in missing(given, lines):
        if time.monotonic() - began > given.budget:
            print("The budget is spent; the same command continues.", file=sys.stderr)
            break
        found = in_process(given, start, measure, setup, data, row, method, *window(given, row, method))
        lines.append({"row": row, "method": method, "round": number, **found})
        print(json.dumps(lines[-1]), flush=True)
        with given.out.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))
    return int(any("error" in line for line in lines))


def parser() -> argparse.ArgumentParser:
    """The defaults are meant for an H200."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.gpu.accelerations", description=__doc__)
    made.add_argument("--out", type=Path, help="a line of JSON for each measurement; continued if it is there")
    made.add_argument("--rounds", type=int, default=2, help="through all rows")
    made.add_argument("--budget", type=float, default=1e9, help="seconds after which no measurement begins")
    made.add_argument("--only", nargs="+", choices=ROWS, metavar="ROW", help=", ".join(ROWS))
    made.add_argument("--methods", nargs="+", default=list(SAMPLES), choices=SAMPLES, metavar="METHOD")
    made.add_argument("--samples", nargs="+", default=[], metavar="METHOD=N", help=f"instead of {SAMPLES}")
    made.add_argument("--first", type=int, default=FIRST, help="sample from which on a run is timed")
    made.add_argument("--dataset", default="cifar10", help="images")
    made.add_argument("--settings", default="cifar10", choices=SETTINGS, help="of which data set, whatever the images")
    made.add_argument("--data-home", type=Path)
    made.add_argument("--network", help="instead of that of the settings")
    made.add_argument("--memory", type=int, help="samples kept, likewise")
    made.add_argument("--epochs", type=int, default=4, help="of GDumb's refits, in which only updates are timed")
    made.add_argument("--device", default="cuda")
    made.add_argument("--no-warm", action="store_true", help="all kernels are in the caches already")
    made.add_argument("--one", nargs=2, metavar=("ROW", "METHOD"), help="this measurement in this process")
    made.add_argument("--check", action="store_true", help="only whether all that is replaced is there; needs no GPU")
    return made


def missing(given: argparse.Namespace, lines: Sequence[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """The measurements that are wanted and not there yet: round by round, method by method; cold starts last, once."""
    wanted = [
        (row, method, number)
        for number in range(1, given.rounds + 1)
        for method in given.methods
        for row in given.only or ROWS
        if method in ROWS[row].methods and (number == 1 or not ROWS[row].samples)
    ]
    wanted.sort(key=lambda one: ROWS[one[0]].is_cold)
    done = {(line["row"], line["method"], line["round"]) for line in lines}
    return [one for one in wanted if one not in done]


def window(given: argparse.Namespace, row: str, method: str) -> tuple[int, int, int]:
    """Samples of the run, and those between which it is timed: without the end, where a task's end is a query more."""
    one, sizes = ROWS[row], SAMPLES | {name: int(n) for name, _, n in (word.partition("=") for word in given.samples)}
    if one.samples is not None and not (one.window and method == "gdumb"):
        return one.samples, *(one.window or (one.samples, one.samples))
    return sizes[method], given.first, max(given.first, sizes[method] - END)


# --------------------------------------------------------------------------------------------------- one measurement


def measure(
    setup: BenchmarkSetup, data: Dataset, row: str, method: str, samples: int, first: int, last: int
) -> dict[str, Any]:
    """Switches off and runs; nothing else may happen in this process."""
    began = time.monotonic()
    experiment = setup.experiment(method, samples=samples)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if ROWS[row].is_cold:
            os.environ.update({name: str(Path(folder, place)) for name, place in CACHES.items()})
        ROWS[row].switch()
        queries, refits = watch_queries(setup.device), watch_refits(setup.device)
        clock = ProgressClock(first, last, device=setup.device)
        out = Path(folder, "runs")
        checkpoints = {"checkpoints": SELDOM, "progress": False}
        done = run(experiment, out, dataset=data, callback=clock, hardware=setup.hardware, **checkpoints)
        journal = (out / experiment.name / "journal.jsonl").read_bytes()
    assert done.summary is not None
    found: dict[str, Any] = {
        "samples": samples,
        "process seconds": time.monotonic() - began,
        "run seconds": done.summary["seconds"],
        "query ms": 1000 * statistics.median(queries()),
        "a_auc": done.metrics.a_auc,
        "journal": hashlib.sha256(journal).hexdigest()[:16],
    }
    if refits:
        seconds, updates, networks = refits[-1]
        whole = setup.protocol(method)
        a_query = seconds / networks * whole.method.readout.epochs / setup.epochs * 4 / 3
        found |= {"refit ms an update": 1000 * seconds / updates, "networks": networks}
        found["whole seconds"] = a_query * len(data.train) / experiment.query_every
    elif last > first:
        found["whole seconds"] = (clock.reached(last) - clock.reached(first)) / (last - first) * len(data.train)
    return found


def watch_queries(device: str) -> Callable[[], list[float]]:
    """Times all queries from now on, on a GPU by events that nothing waits for; what is returned gives the seconds."""
    count, found = Evaluator.count, list[Any]()

    def counting(self: Evaluator, *args: Any, **keywords: Any) -> Any:
        begin = now()
        answer = count(self, *args, **keywords)
        found.append((begin, now()))
        return answer

    def now() -> Any:
        if device == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    Evaluator.count = counting  # type: ignore[method-assign]

    def seconds() -> list[float]:
        wait_for_device(device)
        return [end - begin if device == "cpu" else begin.elapsed_time(end) / 1000 for begin, end in found]

    return seconds


def watch_refits(device: str) -> list[tuple[float, int, int]]:
    """Of every refit from now on that ends: seconds of its last three quarters, their updates, and the networks."""
    found: list[tuple[float, int, int]] = []

    def watched(told: Callable[[RunLoop, int, int], None], networks: int) -> Callable[[RunLoop, int, int], None]:
        began = 0.0

        def tell(self: RunLoop, done: int, total: int) -> None:
            nonlocal began
            told(self, done, total)
            if done in (total // 4, total):
                wait_for_device(device)
            if done == total // 4:
                began = time.perf_counter()
            elif done == total:
                found.append((time.perf_counter() - began, total - total // 4, networks))

        return tell

    RunLoop._on_refit_update = watched(RunLoop._on_refit_update, 1)  # type: ignore[method-assign]
    RunLoop._on_stack_update = watched(RunLoop._on_stack_update, MODELS)  # type: ignore[method-assign]
    return found


# ---------------------------------------------------------------------------------------------------------- processes


def start_method(given: argparse.Namespace) -> str:
    """ "fork" saves the imports of each process, unless something in this one has used the GPU already."""
    if given.device == "cpu" or "error" not in in_process(given, "fork", torch.cuda.init):
        return "fork"
    print("A forked process cannot use the GPU; each one imports everything itself.", file=sys.stderr)
    return "spawn"


def in_process(given: argparse.Namespace, start: str, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """What the function returns in a new process; a dict with "error" where it raises, dies or takes too long."""
    return wait(*begin(start, function, *args), LONGEST)


def begin(start: str, function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    context: Any = multiprocessing.get_context(start)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, args))
    process.start()
    sender.close()
    return process, receiver


def wait(process: Any, receiver: Any, seconds: float) -> dict[str, Any]:
    try:
        found: dict[str, Any] = receiver.recv() if receiver.poll(seconds) else {"error": f"took over {seconds} s"}
    except EOFError:
        process.join()
        found = {"error": f"the process died with exit code {process.exitcode}"}
    process.kill()
    process.join()
    return found


def _send(sender: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        sender.send(function(*args) or {})
    except BaseException as error:
        traceback.print_exc()
        sender.send({"error": f"{type(error).__name__}: {error}"[:500]})
    sender.close()
    sys.stderr.flush()
    os._exit(0)  # no waiting for idle threads


def warm_up(given: argparse.Namespace, start: str, setup: BenchmarkSetup, data: Dataset) -> None:
    """Fills the caches of compiled kernels: first those that all rows share, then the others side by side."""
    pairs = [
        (row, method)
        for row in WARM
        for method in given.methods
        if (not given.only or row in given.only) and method in ROWS[row].methods and (row == "on" or method != "clib")
    ]
    for some in (pairs[:1], pairs[1:]):
        began = time.monotonic()
        running = [(pair, begin(start, measure, setup, data, *pair, *window(given, *pair))) for pair in some]
        for pair, one in running:
            found = wait(*one, max(1, began + LONGEST - time.monotonic()))
            print(f"warm: {pair} {found.get('error', '')} {time.monotonic() - began:.0f} s", file=sys.stderr)


# ------------------------------------------------------------------------------------------------------- the report


def read_lines(path: Path | None) -> list[dict[str, Any]]:
    """Of earlier calls; a line that was cut off is left out, and measured again."""
    found: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path is not None and path.exists() else []:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def table(lines: Sequence[dict[str, Any]]) -> str:
    """For each method its rows beside "on": ratios of the least and of the mean, and whether the answers are equal."""
    words = [f"{'method':7}{'row':23}{'whole s':>9}{'ratio':>7}{'mean':>7}{'query ms':>10}{'process s':>11}  journal"]
    for method in dict.fromkeys(line["method"] for line in lines):
        mine = [line for line in lines if line["method"] == method]
        for row in dict.fromkeys(line["row"] for line in mine):
            some = [line for line in mine if line["row"] == row]
            good = [line for line in some if "error" not in line]
            if not good:
                words.append(f"{method:7}{row:23} {some[-1]['error']}")
                continue
            other = "exact: captured" if row == "exact: eager" else "on"
            base = [line for line in mine if line["row"] == other and "error" not in line]
            ratios = [_ratio(good, base, of) for of in (min, statistics.mean)]
            equal = {line["journal"] for line in [*good, *base] if line["samples"] == good[0]["samples"]}
            same = (
                "" if not base or base[0]["samples"] != good[0]["samples"] else "equal" if len(equal) == 1 else "other"
            )
            whole = _least(good, "whole seconds")
            shown = [f"{whole:9.1f}" if whole else f"{'':9}", *(f"{x:7.3f}" if x else f"{'':7}" for x in ratios)]
            ends = f"{_least(good, 'query ms'):10.2f}{_least(good, 'process seconds'):11.1f}  {same}"
            words.append(f"{method:7}{row:23}{''.join(shown)}{ends}")
    return "\n".join(words)


def _values(lines: Iterable[dict[str, Any]], name: str) -> list[float]:
    return [line[name] for line in lines if name in line]


def _least(lines: Iterable[dict[str, Any]], name: str) -> float:
    return min(_values(lines, name), default=0.0)


def _ratio(lines: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]], of: Callable[..., float]) -> float | None:
    name = "whole seconds"
    ours, theirs = _values(lines, name), _values(base, name)
    return of(ours) / of(theirs) if ours and theirs else None


# --------------------------------------------------------------------------------------------------------- the check


def check(row: str) -> dict[str, Any]:
    """Switches off without running: on a machine without Triton, with a module in its place that has every name."""
    if importlib.util.find_spec("triton") is None:
        sys.meta_path.append(AnyTriton())
    ROWS[row].switch()
    return {"fits": True}


class AnyTriton(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds triton and all in it; what is jitted is never called."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        found = importlib.machinery.ModuleSpec(name, self, is_package=True)
        return found if name.partition(".")[0] == "triton" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return type("Any", (ModuleType,), {"__getattr__": lambda _, name: MagicMock()})(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are there when asked for."""


if __name__ == "__main__":
    exit_with(main)

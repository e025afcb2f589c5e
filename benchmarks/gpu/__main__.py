"""`python -m benchmarks.gpu`: equality of the engines, stages of an update, the full protocol, packed seeds."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.equal import all_equal
from benchmarks.gpu.floor import best_rate, floors
from benchmarks.gpu.protocol import PACKS, full, packed
from benchmarks.gpu.query import peak_gb, query
from benchmarks.gpu.report import Report, leave_with
from benchmarks.gpu.stages import stages
from benchmarks.gpu.subject import ALL, Subject, start_afresh
from benchmarks.gpu.table import tables
from benchmarks.gpu.walk import per_sample, walk
from iblurry.data.dataset import Dataset

SECTIONS = ("equal", "stages", "protocol", "packed")
PLACES = ("json", "out", "data_home")  # options that only say where things lie


def main(words: Sequence[str] | None = None) -> int:
    """1 where an engine took another course than the eager one, or a run in a pack another than alone."""
    given = parser().parse_args(words)
    subject = Subject.of(given)
    subject.engine("eager")  # a device that is not there is refused before anything else
    options = {name: value for name, value in vars(given).items() if name not in PLACES}
    report = Report(given.device, options, given.json)
    with tempfile.TemporaryDirectory() as temporary:
        out = given.out or Path(temporary)
        measure(given, subject, subject.load(), report, out)
    print(tables(report.content))
    compared = [*report.content.get("equal", []), *report.content.get("packed", [])]
    return 0 if all(row["equal"] for row in compared) else 1


def measure(given: argparse.Namespace, subject: Subject, data: Dataset, report: Report, out: Path) -> None:
    """Section by section."""
    wanted = given.only or SECTIONS

    def missing(section: str, methods: Iterable[str]) -> list[str]:
        return [name for name in methods if section in wanted and not report.has(section, name)]

    compared = missing("equal", given.methods)
    for row in all_equal(compared, subject, data, steps=given.steps, modes=tuple(given.modes), jobs=given.jobs):
        report.add("equal", row)
    if timed := missing("stages", given.methods):
        report.note("operations a second", rate := best_rate(subject.device, subject.precision))
        for name in timed:
            start_afresh(subject.device)
            report.add("stages", costs(name, subject, data, samples=given.samples, rate=rate))
    whole = [name for name in PACKS if name in given.methods]
    for name in missing("protocol", whole):
        report.add("protocol", full(name, subject, data, out, samples=given.protocol_samples))
    for name in missing("packed", whole):
        report.add("packed", packed(name, subject, data, out, samples=given.packed_samples))


def costs(method: str, subject: Subject, data: Dataset, *, samples: int, rate: float) -> dict[str, Any]:
    """What a sample, its stages and a query cost, and the share of it that arithmetic alone would take."""
    engine = subject.engine("compiled")
    with engine.cuda_stream():
        walking = walk(method, subject, data, engine, samples=samples)
        sample = per_sample(walking, samples)
        asked = query(walking.learner, data)
        peak = peak_gb(engine.device)  # before the stages, whose captures are not the learner's
        spent = stages(walking, times=max(1, samples // 5))
    floor = floors(method, subject, data, rate)
    return {
        "method": method,
        "ms a sample": sample.whole,
        "host ms a sample": sample.host,
        "stages": spent,
        "ms a query": asked["ms"],
        "questions": asked["questions"],
        "peak GB": peak,
        "floor ms": floor,
        "fractions": {
            "sample": floor["sample"] / sample.whole if floor["sample"] else None,
            "query": floor["10,000 images"] * asked["questions"] / 10_000 / asked["ms"],
        }
        | {name: floor[name] / spent[name] for name in ("forward and backward", "memory losses") if name in spent},
    }


def parser() -> argparse.ArgumentParser:
    """Every option has a value to be used as it is on a GPU."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    made.add_argument("--methods", nargs="+", choices=ALL, default=ALL, metavar="METHOD")
    made.add_argument("--dataset", default="cifar10", help="images; the settings are CIFAR-10's whatever they are")
    made.add_argument("--data-home", type=Path)
    made.add_argument("--network", default="resnet18")
    made.add_argument("--memory", type=int, default=500, help="samples kept, but in the comparison of engines")
    made.add_argument("--epochs", type=int, default=8, help="of a refit, but in the full protocol")
    made.add_argument("--device", default="cuda")
    made.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    made.add_argument("--steps", type=int, default=500, help="samples over which engines are compared")
    made.add_argument("--modes", nargs="+", choices=("captured", "compiled"), default=("captured", "compiled"))
    made.add_argument("--jobs", type=int, default=1, help="processes that compare engines, where nothing is timed")
    made.add_argument("--samples", type=int, default=1000, help="samples timed, once the memory is full")
    made.add_argument("--protocol-samples", type=int, help="cut the protocol short; the whole stream unless told")
    made.add_argument("--packed-samples", type=int, default=3000, help="of each run, the first third is not timed")
    made.add_argument("--only", action="append", choices=SECTIONS, help="may be given several times")
    made.add_argument("--json", type=Path, help="also write every row to this file, and go on with those in it")
    made.add_argument("--out", type=Path, help="where runs go; a temporary folder unless told")
    return made


if __name__ == "__main__":
    leave_with(main)

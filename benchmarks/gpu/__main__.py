"""`python -m benchmarks.gpu`: equality of the engines, stages of an update, the full protocol, packed seeds."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.gpu.equality import all_equal
from benchmarks.gpu.floor import best_rate
from benchmarks.gpu.protocol import PACKS, run_full, run_packed
from benchmarks.gpu.refits import measure_refits
from benchmarks.gpu.report import BenchmarkReport, exit_with
from benchmarks.gpu.setup import ALL, BenchmarkSetup, map_in_processes
from benchmarks.gpu.stages import measure_costs
from benchmarks.gpu.startup import measure_startup
from benchmarks.gpu.study import study_minutes
from benchmarks.gpu.tables import tables
from iblurry.data.dataset import Dataset
from iblurry.experiment.settings import SETTINGS, setting

SECTIONS = ("equal", "stages", "refits", "startup", "protocol", "packed")
STARTS = ("er", "er,ewc,bic,mir,clib")  # runs that are started together
PATHS = ("json", "out", "data_home")  # options that change no number


def main(words: Sequence[str] | None = None) -> int:
    """1 where an engine computed something else than the eager one, or a packed run something else than alone."""
    given = parser().parse_args(words)
    usual = setting(given.settings)
    given.network, given.memory = given.network or usual.network, given.memory or usual.memory
    setup = BenchmarkSetup.from_args(given)
    setup.engine("eager")  # a missing device is reported before anything else
    options = {name: value for name, value in vars(given).items() if name not in PATHS}
    report = BenchmarkReport(given.device, options, given.json)
    with tempfile.TemporaryDirectory() as temporary:
        out = given.out or Path(temporary)
        measure(given, setup, setup.load(), report, out)
    print(tables(report.content))
    compared = [*report.content.get("equal", []), *report.content.get("packed", [])]
    return 0 if all(row["equal"] for row in compared) else 1


def measure(
    given: argparse.Namespace, setup: BenchmarkSetup, data: Dataset, report: BenchmarkReport, out: Path
) -> None:
    """Measures the rows that the report lacks, section by section."""
    wanted = given.only or SECTIONS

    def missing(section: str, methods: Iterable[str]) -> list[str]:
        return [name for name in methods if section in wanted and not report.has(section, name)]

    compared = missing("equal", given.methods)
    for row in all_equal(compared, setup, data, steps=given.steps, modes=tuple(given.modes), jobs=given.jobs):
        report.add("equal", row)
    if timed := missing("stages", given.methods):
        report.set("operations a second", rate := best_rate(setup.device, setup.precision))
        for row in map_in_processes(partial(measure_costs, setup=setup, samples=given.samples, rate=rate), timed):
            report.add("stages", row)
    for name in missing("refits", [name for name in given.methods if name == "gdumb"]):
        report.add("refits", measure_refits(name, setup=setup, updates=given.samples))
    if not report.has("study", "all") and (row := study_minutes(report.content, setup, data)) is not None:
        report.add("study", row)
    for names in missing("startup", [names for names in STARTS if set(names.split(",")) <= set(given.methods)]):
        report.add("startup", measure_startup(names.split(","), setup=setup))
    whole = [name for name in PACKS if name in given.methods]
    for name in missing("protocol", whole):
        report.add("protocol", run_full(name, setup, data, out, samples=given.protocol_samples))
    for name in missing("packed", whole):
        report.add("packed", run_packed(name, setup, data, out, samples=given.packed_samples))


def parser() -> argparse.ArgumentParser:
    """The defaults are meant for a GPU."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    made.add_argument("--methods", nargs="+", choices=ALL, default=ALL, metavar="METHOD")
    made.add_argument("--dataset", default="cifar10", help="images")
    made.add_argument("--settings", default="cifar10", choices=SETTINGS, help="of which data set, whatever the images")
    made.add_argument("--data-home", type=Path)
    made.add_argument("--network", help="instead of that of the settings")
    made.add_argument("--memory", type=int, help="samples kept, but in the comparison of engines; likewise")
    made.add_argument("--epochs", type=int, default=8, help="of a refit, but in the full protocol")
    made.add_argument("--device", default="cuda")
    made.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    made.add_argument("--steps", type=int, default=500, help="samples over which engines are compared")
    made.add_argument("--modes", nargs="+", choices=("captured", "compiled"), default=("captured", "compiled"))
    made.add_argument("--jobs", type=int, default=1, help="processes that compare engines, where nothing is timed")
    made.add_argument("--samples", type=int, default=1000, help="samples timed, once the memory is full")
    made.add_argument("--protocol-samples", type=int, help="cut the protocol short; the whole stream unless given")
    made.add_argument("--packed-samples", type=int, default=3000, help="of each run, the first third is not timed")
    made.add_argument("--only", action="append", choices=SECTIONS, help="may be given several times")
    made.add_argument("--json", type=Path, help="also write every row to this file, and continue with those in it")
    made.add_argument("--out", type=Path, help="where runs go; a temporary folder unless given")
    return made


if __name__ == "__main__":
    exit_with(main)

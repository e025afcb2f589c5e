"""Collected results: of each finished run the few small texts that its numbers come from, never a checkpoint."""

from __future__ import annotations

import gzip
from pathlib import Path

from iblurry.errors import DataError, InputError
from iblurry.experiment.experiment import dataset_stem
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Start, TaskEnd
from iblurry.experiment.result import Result, read_result
from iblurry.storage.files import write_file
from iblurry.storage.untrusted import read_json

TEXTS = ("experiment.json", "environment.json", "summary.json")
REPEATS = "noise"  # folder of runs that repeat collected ones in other places, to see what rounding alone does
LARGEST = 20_000  # bytes of a journal that is kept as it is; a larger one is packed


def collect(folder: Path, results: Path) -> tuple[Path, str]:
    """Copy the texts of a finished run to results/<data set>/<run>; the copy, and "new", "the same" or "replaced"."""
    place = dataset_folder(results, read_run(folder).experiment.dataset) / folder.name
    journal = RunFolder(folder).journal
    files = {name: (folder / name).read_bytes() for name in (*TEXTS, journal.name)}
    if len(files.get("journal.jsonl", b"")) > LARGEST:
        files["journal.jsonl.gz"] = gzip.compress(files.pop("journal.jsonl"), mtime=0)  # no date: the same bytes again
    before = {path.name: path.read_bytes() for path in place.glob("*")}
    if before == files:
        return place, "the same"
    place.mkdir(parents=True, exist_ok=True)
    for name in before.keys() - files.keys():
        (place / name).unlink()
    for name, data in files.items():
        write_file(place / name, data)
    return place, "replaced" if before else "new"


def dataset_folder(results: Path, dataset: str) -> Path:
    """The folder of a data set's runs, whatever its options."""
    return results / dataset_stem(dataset)


def read_collected(results: Path) -> list[Result]:
    """Every run under results/<data set>/, by the names of their folders."""
    if not results.is_dir():
        raise InputError(f"There is no folder {results}; name the one that `iblurry dev collect` wrote to.")
    return [read_run(path.parent) for path in sorted(results.glob("*/*/experiment.json"))]


def read_repeats(results: Path) -> list[Result]:
    """Every run under results/noise/, where `collect` has put runs that repeat collected ones."""
    return [read_run(path.parent) for path in sorted((results / REPEATS).rglob("experiment.json"))]


def read_run(folder: Path) -> Result:
    """A finished run from its texts alone; raises for one that is not, or whose texts do not belong together."""
    found = read_result(RunFolder(folder))
    if found.summary is None or not found.environment:
        raise InputError(f"{folder} contains no finished run; finish `iblurry run` first.")
    digest = read_json(folder / "experiment.json").get("digest")
    start = found.records[0]
    ended = [record.at for record in found.records if isinstance(record, TaskEnd)]
    is_whole = isinstance(start, Start) and (start.samples in ended or found.stopped is not None)
    if not isinstance(start, Start) or start.experiment != digest or not is_whole:
        raise DataError(f"The journal in {folder} does not belong to experiment {digest}; collect the run again.")
    return found

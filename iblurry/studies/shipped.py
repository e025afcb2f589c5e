"""Results that travel with the package, and finished runs that differ from planned ones in their orders alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from iblurry.errors import IblurryError

if TYPE_CHECKING:  # the command line asks for the folder before it needs torch
    from iblurry.experiment.result import Result
    from iblurry.studies.study import PlannedRun

PARTS = ("", "leaderboard", "equal-compute")  # folders of collected results that a wheel has


def shipped_results() -> Path:
    """The folder of collected results: in a wheel beside this file, in a checkout at its root."""
    packed = Path(__file__).parent / "results"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "results"


def find_other_orders(
    cells: Mapping[tuple[str, str], Sequence[PlannedRun]], folders: Iterable[Path]
) -> dict[tuple[str, str], dict[int, Result]]:
    """Finished runs of cells that are the planned ones but for their orders, such as the paper's own, by cell and seed.

    All runs of a cell are on the same orders: those on which most seeds are finished. A stream with other numbers of
    tasks, N or M is another setup, not another order.

    Parameters
    ----------
    cells : mapping
        By row and column, what was planned there.
    folders : iterable of Path
        Folders of runs; the first that has a run counts.
    """
    from iblurry.experiment.experiment import canonical
    from iblurry.experiment.folder import RunFolder
    from iblurry.experiment.result import read_result

    found = {}
    places = dict.fromkeys(folder.resolve() for folder in folders)
    for cell, group in cells.items():
        orders: dict[str, dict[int, RunFolder]] = {}
        for wanted in (planned.experiment for planned in group):
            pattern = f"{wanted.name.removesuffix(wanted.digest)}*/summary.json"
            for run in (RunFolder(path.parent) for place in places for path in sorted(place.glob(pattern))):
                with suppress(IblurryError):  # parts of somebody's own that were not imported: not this experiment
                    there, numbers = run.experiment(), ("tasks", "disjoint", "blur")
                    is_same = all(getattr(there.stream, n, None) == getattr(wanted.stream, n, None) for n in numbers)
                    if is_same and replace(there, stream=wanted.stream).digest == wanted.digest:
                        alike = canonical(
                            there.stream.identity_json() | {"data": (run.environment() or {}).get("data")}
                        )
                        orders.setdefault(alike, {}).setdefault(wanted.seed, run)
        if orders:
            found[cell] = {seed: read_result(run) for seed, run in max(orders.values(), key=len).items()}
    return found

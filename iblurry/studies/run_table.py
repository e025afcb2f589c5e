"""The table of a comparison: one row per method, mean ± sample standard deviation over its seeds, in percent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from iblurry.errors import InputError
from iblurry.experiment.metrics import Metrics

if TYPE_CHECKING:
    from rich.table import Table

Better = Callable[[Iterable[float]], float]  # max or min
COLUMNS: dict[str, tuple[str, Better]] = {  # field of Row: heading, which mean is best
    "a_auc": ("A_AUC ↑", max),
    "a_avg": ("A_avg ↑", max),
    "a_last": ("A_last ↑", max),
    "f_last": ("F_last ↓", min),
}


JOINT = "joint"  # trained on everything at once: neither the order of the stream nor the memory matters


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its sample standard deviation (by n - 1; None for a single seed), in percent."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return printed(self.mean) + (f" ± {printed(self.std)}" if self.std is not None else "")


@dataclass(frozen=True)
class Row:
    """One method; a column is None unless every seed has a number for it."""

    method: str
    n: int  # seeds
    a_auc: Spread | None
    a_avg: Spread | None
    a_last: Spread | None
    f_last: Spread | None


def rows(groups: Mapping[str, Sequence[Metrics]]) -> list[Row]:
    """One row per method, in the order given.

    >>> one = Metrics(a_auc=0.7, a_avg=0.75, a_last=0.6, f_last=None, samples=9, updates=9, queries=3)
    >>> rows({"er": [one]})[0].a_auc
    Spread(mean=70.0, std=None)
    """
    for method, runs in groups.items():
        if not runs:
            raise InputError(f"The method {method!r} has no runs to show; leave it out, or run it first.")
    return [
        Row(method, len(runs), **{name: spread([percent(getattr(run, name)) for run in runs]) for name in COLUMNS})
        for method, runs in groups.items()
    ]


def render(rows: Sequence[Row]) -> Table:
    """For the terminal, the best mean of each column in bold."""
    from rich.table import Table
    from rich.text import Text

    table = Table(caption=caption(rows))
    table.add_column("method")
    table.add_column("n", justify="right")
    for heading, _ in COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for row, line in zip(rows, cells(rows), strict=True):
        # Text, not str: a method called "[b]" is a name here, not markup.
        shown = [Text(cell, style="bold" if is_best else "") for cell, is_best in line]
        table.add_row(Text(row.method), str(row.n), *shown)
    return table


def to_markdown(rows: Sequence[Row]) -> str:
    """For a page, the best mean of each column in bold."""
    lines = [["method", "n", *(heading for heading, _ in COLUMNS.values())], ["---", *["---:"] * (len(COLUMNS) + 1)]]
    for row, line in zip(rows, cells(rows), strict=True):
        shown = [f"**{cell}**" if is_best else cell for cell, is_best in line]
        lines.append([row.method.replace("|", "\\|"), str(row.n), *shown])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{caption(rows)}\n"


def to_json(rows: Sequence[Row]) -> str:
    """For programs: every number in full."""
    about = {"unit": "percent", "std": "sample standard deviation (n - 1)", "rows": [asdict(row) for row in rows]}
    return json.dumps(about, indent=2, allow_nan=False) + "\n"


def caption(rows: Sequence[Row]) -> str:
    """What the numbers are."""
    counts = {row.n for row in rows}
    if counts == {1}:
        return "Percent, one seed each."
    seeds = f"{counts.pop()}" if len(counts) == 1 else "n"
    return f"Percent, mean ± sample standard deviation (n - 1) over {seeds} seeds."


def percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def spread(values: Sequence[float | None]) -> Spread | None:
    """Over seeds; None unless every one has a number, and there is one."""
    known = np.array([value for value in values if value is not None])
    if len(known) < len(values) or not len(known):
        return None
    return Spread(float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None)


def printed(value: float, digits: int | None = 2) -> str:
    """As it stands in a cell, with so many digits behind the point; None: three digits that count.

    >>> printed(69.996), printed(-0.001), printed(0.034111, None), printed(30_123.4, None)
    ('70.00', '0.00', '0.0341', '30,123')
    """
    return f"{value:z,.{behind(value) if digits is None else digits}f}"  # z: no "-0.00"


def behind(value: float) -> int:
    """How many digits behind the point leave three that count.

    >>> behind(0.034111), behind(3.4), behind(30_123.4)
    (4, 2, 0)
    """
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value else 2


def best(means: Sequence[float], better: Better, digits: int | None = 2) -> str | None:
    """The best of a column as printed, so that what looks equal is equal; None for a lone value."""
    return printed(better(means), digits) if len(means) > 1 else None


def cells(rows: Sequence[Row]) -> list[list[tuple[str, bool]]]:
    """What stands in each cell, and whether it is the best of its column (ties as printed; no lone value, no bound)."""
    first: dict[str, str | None] = {}
    contenders = [row for row in rows if not is_bound(row.method)]
    for name, (_, better) in COLUMNS.items():
        first[name] = best([spread.mean for row in contenders if (spread := getattr(row, name)) is not None], better)
    return [[_cell(getattr(row, name), first[name] if row in contenders else None) for name in COLUMNS] for row in rows]


def is_bound(row: str) -> bool:
    """Whether a row is no contender: the paper has joint training for a soft upper bound."""
    return row.split()[0].removesuffix("-released") == JOINT


def _cell(spread: Spread | None, first: str | None) -> tuple[str, bool]:
    return ("–", False) if spread is None else (str(spread), printed(spread.mean) == first)

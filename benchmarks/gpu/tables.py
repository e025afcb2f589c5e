"""The tables that a person reads: what each method costs, and the figures to reach.

`python -m benchmarks.gpu.tables results/gpu/bench.json` prints them again, without a GPU.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

WHOLE = {"samples": 50_000, "queries": 500}  # the protocol that the seconds are meant for
USUAL = {"dataset": "cifar10", "settings": "cifar10", "network": "resnet18", "memory": 500}  # meant by all but ratios
STAGES = {  # of the report, and what heads their column
    "step": "step",
    "host": "its host",
    "device": "device",
    "insertion": "store",
    "drawing": "draw",
    "choosing": "choose",
    "augmentation": "augment",
    "forward and backward": "fwd+bwd",
    "adjusting": "adjust",
    "optimizer": "optim",
    "memory losses": "losses",
    "telling": "tell",
}
HEADS = ("method", "sample", "host", "floor", *STAGES.values(), "query", "floor", "peak GB", "equal")
TITLE = "Milliseconds by method; floor: the share that arithmetic alone would take"


@dataclass(frozen=True)
class Goal:
    """A number that should not be larger."""

    name: str
    section: Literal["stages", "protocol", "packed", "refits", "startup", "study"]
    method: str
    value: str  # which number of the row
    most: float
    aim: float


GOALS = (
    Goal("CLIB, full protocol, seconds", "protocol", "clib", "seconds", 150, 100),
    Goal("ER, full protocol, seconds", "protocol", "er", "seconds", 90, 60),
    Goal("EWC++, ms a sample", "stages", "ewc", "ms a sample", 1.7, 1.4),
    Goal("ER-MIR, ms a sample", "stages", "mir", "ms a sample", 2.4, 1.8),
    Goal("A-GEM, ms a sample", "stages", "agem", "ms a sample", 2.8, 2.2),
    Goal("GSS, ms a sample", "stages", "gss", "ms a sample", 5, 3),
    Goal("GDumb, a whole run, minutes", "refits", "gdumb", "minutes", 15, 8),
    Goal("the paper's ten methods, three seeds, in turn, minutes", "study", "all", "minutes", 100, 45),
    Goal("first query of one run, nothing compiled, seconds", "startup", "er", "seconds", 25, 10),
    Goal("the same of five methods in a pack", "startup", "er,ewc,bic,mir,clib", "seconds", 50, 20),
    Goal("three CLIB seeds packed / alone", "packed", "clib", "ratio", 0.75, 0.6),
    Goal("four ER seeds packed / alone", "packed", "er", "ratio", 0.55, 0.45),
)


def check_goals(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Every goal with its measured value, and whether it was reached."""
    return [_check_goal(goal, report) for goal in GOALS]


def _check_goal(goal: Goal, report: dict[str, Any]) -> dict[str, Any]:
    rows: Sequence[dict[str, Any]] = report.get(goal.section, [])
    found = [row for row in rows if row["method"] == goal.method and _applies(goal, row, report)]
    measured = found[-1][goal.value] if found else None
    verdict = "not measured" if measured is None else "reached" if measured <= goal.most else "missed"
    return {"name": goal.name, "most": goal.most, "aim": goal.aim, "measured": measured, "verdict": verdict}


def _applies(goal: Goal, row: dict[str, Any], report: dict[str, Any]) -> bool:
    """A shortened protocol, or other images, network or memory, are not held against the numbers of the usual one."""
    options = report["options"]
    if goal.section == "packed":  # a ratio of two runs alike
        return True
    if any(options.get(name, value) != value for name, value in USUAL.items()):  # older reports name no settings
        return False
    return goal.section != "protocol" or all(row[name] == value for name, value in WHOLE.items())


def tables(report: dict[str, Any]) -> str:
    """Both tables."""
    return f"{methods_table(report)}\n\n{goals_table(check_goals(report))}"


def methods_table(report: dict[str, Any]) -> str:
    """One line per method: milliseconds, the share of them that arithmetic alone would take, memory, equality."""
    rows = {row["method"]: row for row in report.get("stages", [])}
    same = {row["method"]: row for row in report.get("equal", [])}
    lines = [_method_line(name, rows.get(name), same.get(name)) for name in dict.fromkeys([*rows, *same])]
    return "\n".join([TITLE, *aligned(HEADS, lines)])


def goals_table(figures: Sequence[dict[str, Any]]) -> str:
    """One line per figure to reach."""
    lines = [[f["name"], _number(f["measured"]), _number(f["most"]), _number(f["aim"]), f["verdict"]] for f in figures]
    return "\n".join(["Figures to reach", *aligned(("figure", "measured", "at most", "aim", "verdict"), lines)])


def aligned(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as what stands in them, the first to the left and the others to the right.

    >>> aligned(("a", "b"), [("x", "10")])
    ['a   b', 'x  10']
    """
    wide = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    return [
        "  ".join(
            [line[0].ljust(wide[0]), *(cell.rjust(room) for cell, room in zip(line[1:], wide[1:], strict=True))]
        ).rstrip()
        for line in (heads, *lines)
    ]


def _method_line(name: str, row: dict[str, Any] | None, same: dict[str, Any] | None) -> list[str]:
    verdict = "" if same is None else "yes" if same["equal"] else "NO"
    if row is None:
        return [name, *[""] * (len(HEADS) - 2), verdict]
    spent, share = row["stages"], row["fractions"]
    return [
        name,
        _number(row["ms a sample"]),
        _number(row["host ms a sample"]),
        _percent(share["sample"]),
        *(_number(spent.get(stage)) for stage in STAGES),
        _number(row["ms a query"]),
        _percent(share["query"]),
        _number(row["peak GB"]),
        verdict,
    ]


def _number(value: float | None) -> str:
    """Three significant digits."""
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


if __name__ == "__main__":
    print(tables(json.loads(Path(sys.argv[1]).read_text())))

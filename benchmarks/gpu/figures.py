"""The figures to reach, each with what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

WHOLE = {"dataset": "cifar10", "samples": 50_000, "queries": 500}  # the protocol that the seconds are meant for


@dataclass(frozen=True)
class Goal:
    """A number that should not be larger."""

    name: str
    section: Literal["protocol", "packed"]
    method: str
    value: str  # which number of the row
    most: float
    aim: float


GOALS = (
    Goal("CLIB, full protocol, seconds", "protocol", "clib", "seconds", 150, 100),
    Goal("ER, full protocol, seconds", "protocol", "er", "seconds", 90, 60),
    Goal("three CLIB seeds packed / alone", "packed", "clib", "ratio", 0.75, 0.6),
    Goal("four ER seeds packed / alone", "packed", "er", "ratio", 0.55, 0.45),
)


def figures(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Every goal with its measured value, and whether it was reached."""
    return [_figure(goal, report) for goal in GOALS]


def _figure(goal: Goal, report: dict[str, Any]) -> dict[str, Any]:
    rows: Sequence[dict[str, Any]] = report.get(goal.section, [])
    found = [row for row in rows if row["method"] == goal.method and _is_meant(goal, row, report)]
    measured = found[-1][goal.value] if found else None
    verdict = "not measured" if measured is None else "reached" if measured <= goal.most else "missed"
    return {"name": goal.name, "most": goal.most, "aim": goal.aim, "measured": measured, "verdict": verdict}


def _is_meant(goal: Goal, row: dict[str, Any], report: dict[str, Any]) -> bool:
    """A shortened protocol, or one on other images, is not held against the seconds of the whole one."""
    known = row | {"dataset": report["options"]["dataset"]}
    return goal.section != "protocol" or all(known[name] == value for name, value in WHOLE.items())

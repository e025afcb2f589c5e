"""The numbers of the paper's tables, found by our names for its methods."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from iblurry.errors import UnknownNameError
from iblurry.studies.run_table import JOINT

METRICS = ("A_AUC", "A_avg", "F_last", "final_accuracy")
COUNTERPARTS = {  # our name, with what --set changes: the paper's
    "er": "Baseline-ER",
    "er-constant": "Baseline-ER, constant rate",
    "ewc": "EWC++",
    "ewc schedule=Constant": "EWC++, constant rate",
    "bic": "BiC",
    "mir": "ER-MIR",
    "agem": "A-GEM",
    "gss": "GSS",
    "gdumb": "GDumb",
    "rm": "RM",
    "clib": "CLIB",
    "clib-reservoir": "CLIB, without sample importance memory",
    "clib-stream": "CLIB, without memory-only training",
    "clib-exponential": "CLIB, without adaptive rate",
    JOINT: "Joint Training",
}


@dataclass(frozen=True)
class Configuration:
    """One column of the paper's tables: the stream and the memory."""

    dataset: str
    disjoint: float  # N, percent of the classes
    blur: float  # M, percent
    memory: int  # K
    tasks: int

    def __post_init__(self) -> None:
        if self.disjoint == 100:  # no class is blurry then; the paper names M = 10, its files m0
            object.__setattr__(self, "blur", 10)

    def __str__(self) -> str:
        stream = f"i-Blurry-{self.disjoint:g}-{self.blur:g}"
        return f"{self.dataset}, {stream}, {self.tasks} tasks, memory {self.memory:,}"


@dataclass(frozen=True)
class Number:
    """A cell of a table: mean and spread over three seeds in percent (no spread: one seed)."""

    mean: float
    std: float | None
    tables: tuple[int, ...]  # where it is printed
    warning: str | None = None  # why it should not be a target


def paper_number(method: str, metric: str, configuration: Configuration) -> Number | None:
    """What the paper reports for one of our methods; None where it reports nothing. `-released` is the same row.

    >>> paper_number("clib", "A_AUC", Configuration("cifar10", 50, 10, 500, 5)).mean
    70.26
    """
    if metric not in METRICS:
        raise UnknownNameError("metric of the paper", metric, METRICS)
    name = _plain(method)
    where = configuration.dataset if name == JOINT else configuration
    return _numbers().get((where, COUNTERPARTS[name], metric)) if name in COUNTERPARTS else None


def configurations() -> list[Configuration]:
    """Every column of the tables, in their order; the first of a data set is that of Table 1."""
    return list(dict.fromkeys(where for where, *_ in _numbers() if isinstance(where, Configuration)))


def paper_rows(configuration: Configuration) -> list[str]:
    """Our names of the methods the paper has numbers for there, in its order; joint training beside Table 1's."""
    first = next((one for one in configurations() if one.dataset == configuration.dataset), None)
    wheres = (configuration, configuration.dataset) if configuration == first else (configuration,)
    ours = {theirs: name for name, theirs in COUNTERPARTS.items()}
    return list(dict.fromkeys(ours[row] for where, row, _ in _numbers() if where in wheres))


def about() -> dict[str, Any]:
    """The whole file: citation, units, and where the paper's text contradicts its tables."""
    text = resources.files("iblurry.studies").joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@cache
def _numbers() -> dict[tuple[Configuration | str, str, str], Number]:
    """By configuration (joint training: data set), the paper's row and metric."""
    found = {}
    for line in about()["numbers"]:
        is_joint = line["N"] is None
        where = line["dataset"] if is_joint else Configuration(*(line[k] for k in ("dataset", "N", "M", "K", "tasks")))
        number = Number(line["mean"], line["std"], tuple(line["tables"]), line.get("warning"))
        found[where, line["method"], line["metric"]] = number
    return found


def _plain(method: str) -> str:
    name, *changes = method.split()
    return " ".join([name.removesuffix("-released"), *changes])

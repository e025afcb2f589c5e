"""The numbers of the paper's tables, and where an experiment of ours stands in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from iblurry.analysis.describe import DISPLAY_NAMES, JOINT, describe_held_out
from iblurry.analysis.verdict import PAPER_SEEDS as PAPER_SEEDS
from iblurry.analysis.verdict import PaperNumber as PaperNumber
from iblurry.components.edit import edit
from iblurry.errors import UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.settings import plain
from iblurry.streams.stream import IBlurry, Published

PAPER_METRICS = {"A_AUC": "a_auc", "A_avg": "a_avg", "F_last": "f_last", "final_accuracy": "a_last"}  # ours: Metrics
COUNTERPARTS = (
    {  # our name, with what --set changes: the paper's
        "er": "Baseline-ER",
        "er-constant": "Baseline-ER, constant rate",
    }
    | {
        name: DISPLAY_NAMES[name]
        for name in (
            *("ewc", "ewc schedule=Constant", "bic", "mir", "agem", "gss", "gdumb", "rm", "clib"),
            *("clib-reservoir", "clib-stream", "clib-exponential"),
        )
    }
    | {JOINT: "Joint Training"}
)


@dataclass(frozen=True)
class Configuration:
    """A stream and a memory: one column of the paper's tables, on its own orders or on orders drawn by its rule."""

    dataset: str  # without options
    disjoint: float  # N, percent
    blur: float  # M, percent; with N = 100 no class is blurry and M is taken to be 10, as the paper names it
    memory: int  # K, samples
    tasks: int
    other: str = ""  # the title of a stream that is not i-Blurry
    validate: float = (
        0.0  # share of the training images that were asked about; 0: the test images were, as in the paper
    )
    published: bool = False  # whether the orders are those of published split files, which made the paper's tables

    def __post_init__(self) -> None:
        if self.disjoint == 100:  # the published split files say m0
            object.__setattr__(self, "blur", 10)

    def __str__(self) -> str:
        stream = self.other or f"i-Blurry-{self.disjoint:g}-{self.blur:g}" + " (published)" * self.published
        words = [self.dataset, stream, f"{self.tasks} tasks", f"memory {self.memory:,}"]
        return ", ".join(words + ([describe_held_out(self.validate)] if self.validate else []))

    @property
    def column(self) -> Configuration:
        """This configuration whatever its orders, which the paper's tables do not tell apart."""
        return replace(self, published=False)


def paper_number(method: str, metric: str, configuration: Configuration) -> PaperNumber | None:
    """What the paper reports for a method of COUNTERPARTS (or its `-released` variant); None where it is nothing.

    Only the data set of the configuration counts for joint training.

    >>> paper_number("clib", "A_AUC", Configuration("cifar10", 50, 10, 500, 5)).mean
    70.26
    """
    if metric not in PAPER_METRICS:
        raise UnknownNameError("metric of the paper", metric, PAPER_METRICS)
    first, *changes = method.split()
    name = " ".join([first.removesuffix("-released"), *changes])
    where = configuration.dataset if name == JOINT else configuration.column
    return _numbers().get((where, COUNTERPARTS[name], metric)) if name in COUNTERPARTS else None


def paper_configurations() -> list[Configuration]:
    """Every column of the tables, in their order; the first of a data set is that of Table 1."""
    return list(dict.fromkeys(where for where, *_ in _numbers() if isinstance(where, Configuration)))


def paper_rows(configuration: Configuration) -> list[str]:
    """Our names of the methods the paper has numbers for there, in its order; joint training beside Table 1's."""
    first = next((other for other in paper_configurations() if other.dataset == configuration.dataset), None)
    column = configuration.column
    wheres = (column, configuration.dataset) if column == first else (column,)
    ours = {theirs: name for name, theirs in COUNTERPARTS.items()}
    return list(dict.fromkeys(ours[row] for where, row, _ in _numbers() if where in wheres))


def configuration_of(experiment: Experiment) -> Configuration:
    """The column of the tables that an experiment belongs to, and whose orders it has."""
    dataset = plain(experiment.dataset)
    stream, memory, validate = experiment.stream, experiment.memory, experiment.validate
    if not isinstance(stream, IBlurry | Published):
        return Configuration(dataset, 0, 0, memory, getattr(stream, "tasks", 1), stream.title, validate)
    published = isinstance(stream, Published)
    return Configuration(
        dataset, stream.disjoint, stream.blur, memory, stream.tasks, validate=validate, published=published
    )


def find_counterpart(experiment: Experiment) -> str | None:
    """The name in COUNTERPARTS that an experiment is exactly, its stream, memory and seed aside; None: it departs."""
    for name in COUNTERPARTS:
        method, *changes = name.split()
        if experiment.method.name.removesuffix("-released") == method:
            default = edit(default_experiment(experiment), *changes)
            if default.digest == experiment.digest:
                return name
    return None


def default_experiment(experiment: Experiment) -> Experiment:
    """The same method with the default settings, on the same stream with the same memory and seed."""
    same: dict[str, Any] = {field: getattr(experiment, field) for field in ("stream", "memory", "seed")}
    return Experiment.of(experiment.method.name, experiment.dataset, **same)


def load_paper() -> dict[str, Any]:
    """The content of paper.json: citation, units, numbers, and where the paper's text contradicts its tables."""
    text = resources.files("iblurry.studies").joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@cache
def _numbers() -> dict[tuple[Configuration | str, str, str], PaperNumber]:
    """Numbers by configuration (joint training: data set), the paper's row and metric."""
    found = {}
    for line in load_paper()["numbers"]:
        is_joint = line["N"] is None
        where = line["dataset"] if is_joint else Configuration(*(line[k] for k in ("dataset", "N", "M", "K", "tasks")))
        number = PaperNumber(line["mean"], line["std"], tuple(line["tables"]), line.get("warning"))
        found[where, line["method"], line["metric"]] = number
    return found

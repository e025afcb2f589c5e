"""A study at a share of the stream: memory and queries shrink with it, but no class is left without memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iblurry.data.load import load
from iblurry.experiment.settings import setting
from iblurry.method import Method

ROWS = 2  # of memory that a class has at least
CLASSES = {  # so that a study can be planned where the data are not
    "digits": 10,
    "fashion_mnist": 10,
    "cifar10": 10,
    "cifar100": 100,
    "tinyimagenet": 200,
    "imagenet": 1000,
}


def scaled(
    columns: Mapping[str, Mapping[str, Any]],
    methods: Sequence[Method],
    dataset: str,
    scale: float,
    data_home: Path | None = None,
) -> dict[str, dict[str, Any]]:
    """The columns with that share of the images, and of the memory and of the samples between two queries.

    The memory is the same for all methods. Where a tenth of it were too little for one of them, the memories of all
    columns shrink less, so that they keep their proportions; none grows.
    """
    usual = setting(dataset)
    memories = {name: given.get("memory", usual.memory) for name, given in columns.items()}
    rows = ROWS * _classes(dataset, data_home)
    least = max(_least(method, rows) for method in methods)
    shrink = min(1.0, max(scale, least / min(memories.values())))
    fewer = {name: round(shrink * memory) for name, memory in memories.items()}
    every = max(1, round(scale * usual.query_every))
    return {
        f"K={fewer[name]}" if name == f"K={memories[name]}" else name: {
            "query_every": every,
            **given,
            "memory": fewer[name],
            "share": scale,
        }
        for name, given in columns.items()
    }


def _least(method: Method, rows: int) -> int:
    """The smallest budget that leaves the method so many rows, and no fewer than a batch takes."""
    budget = rows = max(rows, method.rehearsal.joins(sys.maxsize))
    while method.capacity(budget) < rows:
        budget += 1
    return budget


def _classes(dataset: str, data_home: Path | None) -> int:
    return CLASSES[dataset] if dataset in CLASSES else len(load(dataset, data_home).classes)

"""A study of three methods and two memories, and runs of it whose numbers can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

from iblurry.studies.study import Study
from tests.studies.written import usual, write_run

TINY = Study(
    name="tiny",
    title="Memory & 100%",
    shows=("Table 4",),
    question="Does a larger memory help?",
    datasets=("cifar10",),
    rows=("mir", "er", "clib"),
    columns=lambda dataset: {"K=500": {}, "K=1000": {"memory": 1000}},
    metrics=("a_auc", "f_last"),
)
LEVELS = {  # percent by row and memory, for the seeds 1, 2, ...; the paper: 57.28 ± 2.43, 61.18 ± 1.08 (a copy), ...
    ("mir", 1000): (61, 62, 63),
    ("er", 500): (57, 57.5, 61),
    ("clib", 500): (70, 71, 75),
    ("clib", 1000): (73, 74.5),
}


def write_tiny(out: Path) -> None:
    for (method, memory), levels in LEVELS.items():
        for seed, level in enumerate(levels, start=1):
            write_run(out, usual(method, seed, memory=memory), level, wobble=0)

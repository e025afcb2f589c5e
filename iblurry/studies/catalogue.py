"""The studies: every table and figure of the paper, and what nobody has published yet."""

from __future__ import annotations

from iblurry.errors import UnknownNameError
from iblurry.studies.study import Study

MAIN = Study(
    name="main",
    title="Main results",
    shows=("Table 1", "Table 8"),
    question="Which method is best at any time, and at the end?",
    datasets=("cifar10", "cifar100", "tinyimagenet", "imagenet"),
    rows=("ewc", "bic", "mir", "gdumb", "rm", "er", "clib"),
    columns=lambda dataset: {"": {}},
    metrics=("a_auc", "a_avg", "f_last"),
)
STUDIES = {study.name: study for study in (MAIN,)}


def study_named(name: str) -> Study:
    """By its name on the command line."""
    if name not in STUDIES:
        raise UnknownNameError("study", name, STUDIES)
    return STUDIES[name]

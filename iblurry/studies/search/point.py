"""The points of a search: values of the fields it varies, their experiments, and which of them is best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from iblurry.analysis.metrics import MeanStd, mean_std
from iblurry.components.edit import edit
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.result import Result

VALIDATE = 0.1  # share of the training images that a search holds out unless told
FIXED = {  # fields that no search varies, and how they are chosen
    "dataset": "--dataset",
    "seed": "--seeds",
    "method": "METHOD arguments",
    "name": "METHOD arguments",
    "validate": "--validate",
}
FINISHED, PRUNED, FAILED = "finished", "pruned", "failed"


@dataclass(frozen=True)
class SearchPoint:
    """One value for each field that a search varies.

    Parameters
    ----------
    row : str
        The method, with changes of its own, as `iblurry run` takes it.
    changes : mapping
        Values by path, as --set writes them.
    experiments : tuple of Experiment
        One for each seed.
    """

    row: str
    changes: Mapping[str, str]
    experiments: tuple[Experiment, ...]

    def __str__(self) -> str:
        return " ".join(f"{path}={value}" for path, value in self.changes.items())


@dataclass(frozen=True)
class PointResult:
    """A point and what came of it.

    Parameters
    ----------
    point : SearchPoint
        What was run.
    values : mapping
        A_AUC on held-out training images by seed, percent; empty unless all seeds are finished.
    state : {"finished", "pruned", "failed"}
        Whether it counts; only finished points can be best.
    note : str
        Why it failed, or where it was pruned.
    number : int, optional
        Of a trial of Optuna.
    steps : mapping
        Of such a trial: A_AUC so far, percent, by samples seen.
    """

    point: SearchPoint
    values: Mapping[int, float]
    state: str = FINISHED
    note: str = ""
    number: int | None = None
    steps: Mapping[int, float] = field(default_factory=dict)

    @property
    def score(self) -> MeanStd | None:
        """Mean and spread over seeds."""
        return mean_std(list(self.values.values())) if self.state == FINISHED else None


def best_points(results: Iterable[PointResult]) -> dict[str, PointResult]:
    """Of each row, the finished point with the highest mean; the first one where means are equal."""
    best: dict[str, PointResult] = {}
    for result in results:
        row, score = result.point.row, result.score
        if score is None:
            continue
        held = best[row].score if row in best else None
        if held is None or score.mean > held.mean:
            best[row] = result
    return best


def a_auc_by_seed(runs: Sequence[Result]) -> dict[int, float]:
    """A_AUC of each run, percent; empty unless all are finished."""
    areas = {run.experiment.seed: run.metrics.a_auc for run in runs if run.summary is not None}
    known = {seed: 100 * area for seed, area in areas.items() if area is not None}
    return known if len(known) == len(runs) else {}


def apply_changes(experiment: Experiment, changes: Mapping[str, str]) -> Experiment:
    """The experiment with these fields changed: slots before the fields of what is put into them."""
    paths = sorted(changes, key=lambda path: path.count("."))
    return edit(experiment, *(f"{path}={changes[path]}" for path in paths))


def check_selectable(experiments: Iterable[Experiment]) -> None:
    """InputError for experiments whose A_AUC no search may choose by, or that have none."""
    for experiment in experiments:
        if not experiment.validate:
            raise InputError(
                "validate=0 would choose by the test images; a search asks about training images that are held out of "
                f"the stream: give --validate a share such as {VALIDATE:g}, or leave it out."
            )
        if experiment.method.readout.only_at_end:
            raise InputError(
                f"{experiment.method.name} predicts only at the end of the stream, so it has no A_AUC, which a search "
                "chooses; leave it out."
            )


def split_assignment(text: str, option: str) -> tuple[str, str]:
    """Path and values of PATH=VALUES; InputError where either is missing, or where a search cannot vary the path."""
    path, sign, values = (word.strip() for word in text.partition("="))
    if not sign or not path or not values:
        raise InputError(f"{option} {text!r} has no values; write {option} PATH=VALUES, such as memory=200,500.")
    if path in FIXED:
        raise InputError(f"{option} {text}: {path} cannot be searched; use {FIXED[path]}.")
    return path, values


def split_values(text: str, where: str) -> tuple[str, ...]:
    """Values between commas; those of a value in parentheses are its own.

    >>> split_values("Balanced,Reservoir", "--grid"), split_values("(CrossEntropy,Elastic),none", "--grid")
    (('Balanced', 'Reservoir'), ('CrossEntropy,Elastic', 'none'))
    """
    values, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            values.append("")
        else:
            values[-1] += letter
    if depth:
        raise InputError(f"{where}: {text!r} has parentheses that do not match; close each that is opened.")
    bare = [value.strip() for value in values]
    bare = [value[1:-1].strip() if value.startswith("(") and value.endswith(")") else value for value in bare]
    if not all(bare):
        raise InputError(f"{where}: {text!r} has an empty value; write values between commas, such as 200,500.")
    return tuple(bare)


def check_paths(paths: Sequence[str], taken: Iterable[str], option: str) -> None:
    """InputError for a path that is there twice, or that another option sets as well."""
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(f"{option} {path} is given {paths.count(path)} times; give all its values in one.")
    for path in taken:
        if path in paths:
            raise InputError(f"{path} is set and searched at once; leave out one of them.")

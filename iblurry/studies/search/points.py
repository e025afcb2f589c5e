"""The points of a search: what `--grid` and `--space` say, the experiments to run, which is best, and their table."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from iblurry.analysis.formats import rich_grid
from iblurry.analysis.table import NOTHING, MeanStd, format_value, mean_std
from iblurry.components.edit import edit
from iblurry.errors import IblurryError, InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.result import Result

VALIDATE = 0.1  # share of the training images that a search holds out unless told
FINISHED, PRUNED, FAILED = "finished", "pruned", "failed"
_FIXED = {  # fields that no search varies, and how they are chosen
    "dataset": "--dataset",
    "seed": "--seeds",
    "method": "METHOD arguments",
    "name": "METHOD arguments",
    "validate": "--validate",
}
_MOST_RUNS = 10_000  # runs of a grid
_DIGITS = 4  # digits of a proposed number, behind the first that tells it from the others of its range


@dataclass(frozen=True)
class Space:
    """The values that a search may give to a field.

    Parameters
    ----------
    path : str
        The field, as --set names it.
    choices : tuple of str
        Its values, as --set writes them; the ends of a range.
    low, high : float, optional
        The ends of a range of numbers, which belong to it; None: the choices are all there is.
    log : bool
        Whether orders of magnitude are equally likely, instead of numbers.
    """

    path: str
    choices: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    log: bool = False

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.path}={','.join(f'({one})' if ',' in one else one for one in self.choices)}"
        return f"{self.path}={'..'.join(self.choices)}{':log' if self.log else ''}"

    def is_whole(self, experiment: Experiment) -> bool:
        """Whether a range is one of whole numbers: its ends are, and the field of the experiment takes no others."""
        if self.low is None or not all(re.fullmatch(r"[+-]?\d+", end) for end in self.choices):
            return False
        try:
            edit(experiment, f"{self.path}={int(self.low)}.5")
        except InputError:
            return True
        return False

    def distribution(self, experiment: Experiment) -> Any:
        """The values as a distribution of Optuna."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.low is None or self.high is None:
            return CategoricalDistribution(self.choices)
        if self.is_whole(experiment):
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def format(self, value: Any) -> str:
        """A value of the distribution as --set writes it: inside the range, with no more digits than tell it apart.

        >>> Space("lr", ("1e-4", "1e-2"), 1e-4, 1e-2).format(0.00031622776601683794)
        '0.00031623'
        """
        if not isinstance(value, float) or self.low is None or self.high is None:
            return str(value)
        span = self.high - self.low
        digits = _DIGITS - math.floor(math.log10(min(span, abs(value) or span)))
        return repr(min(max(round(value, digits), self.low), self.high))


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
        Why it failed.
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


def parse_spaces(texts: Sequence[str], taken: Collection[str] = (), *, option: str = "--space") -> list[Space]:
    """Read the fields to vary and their values; a grid has no ranges.

    Parameters
    ----------
    texts : sequence of str
        PATH=A,B,C, or of `--space` PATH=LOW..HIGH or PATH=LOW..HIGH:log.
    taken : collection of str
        Paths that other options set.
    option : {"--space", "--grid"}
        Which option says it.

    >>> [space] = parse_spaces(["schedule.initial_lr=1e-4..1e-2:log"])
    >>> space.low, space.high, space.log
    (0.0001, 0.01, True)
    """
    spaces = [_parse_space(text, option) for text in texts]
    paths = [space.path for space in spaces]
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(f"{option} {path} is given {paths.count(path)} times; give all its values in one.")
        if path in taken:
            raise InputError(f"{path} is set and searched at once; leave out one of them.")
    return spaces


def check_spaces(experiment: Experiment, spaces: Sequence[Space]) -> list[Experiment]:
    """The experiments at both ends of every range and at every choice, one field at a time.

    Raises what is wrong with a path or a value before anything runs.
    """
    _check_selectable([experiment])
    first = {space.path: space.choices[0] for space in spaces}
    found = [apply_changes(experiment, first)]
    for space in spaces:
        alone = [edit(experiment, f"{space.path}={choice}") for choice in space.choices]
        if len({one.digest for one in alone}) < len(alone):
            raise InputError(f"--space {space} has a value twice; give each once.")
        found += [apply_changes(experiment, first | {space.path: choice}) for choice in space.choices[1:]]
    return list({one.digest: one for one in found}.values())


def expand_grid(base: Mapping[tuple[str, int], Experiment], spaces: Sequence[Space]) -> list[SearchPoint]:
    """All points of a grid, row by row, the last field fastest; InputError if two of a row are the same experiment.

    Parameters
    ----------
    base : mapping
        Experiments by row and seed, before anything is varied.
    spaces : sequence of Space
        Choices only.
    """
    _check_selectable(base.values())
    if (count := len(base) * math.prod(len(space.choices) for space in spaces)) > _MOST_RUNS:
        raise InputError(f"This grid has {count:,} runs, and more than {_MOST_RUNS:,} are a slip; leave out values.")
    points: dict[str, SearchPoint] = {}
    for row in dict.fromkeys(row for row, _ in base):
        seeds = [experiment for (name, _), experiment in base.items() if name == row]
        for values in product(*(space.choices for space in spaces)):
            changes = {space.path: value for space, value in zip(spaces, values, strict=True)}
            point = SearchPoint(row, changes, tuple(apply_changes(experiment, changes) for experiment in seeds))
            twin = points.setdefault(point.experiments[0].digest, point)
            if twin is not point:
                raise InputError(
                    f"The points {twin.row} {twin} and {row} {point} are the same experiment; give each value once, "
                    "and fields only where they change something."
                )
    return list(points.values())


def grid_results(
    points: Sequence[SearchPoint], results: Sequence[Result], failures: Mapping[str, IblurryError]
) -> list[PointResult]:
    """What came of the points; `results` are those of all their experiments, in order."""
    found, runs = [], iter(results)
    for point in points:
        own = [next(runs) for _ in point.experiments]
        notes = [str(failures[one.name]) for one in point.experiments if one.name in failures]
        found.append(PointResult(point, a_auc_by_seed(own), FAILED if notes else FINISHED, " ".join(notes[:1])))
    return found


def best_points(results: Iterable[PointResult]) -> dict[str, PointResult]:
    """Returns of each row the finished point with the highest mean; the first one where means are equal."""
    best: dict[str, tuple[float, PointResult]] = {}
    for result in results:
        row, score = result.point.row, result.score
        if score is not None and (row not in best or score.mean > best[row][0]):
            best[row] = (score.mean, result)
    return {row: result for row, (_, result) in best.items()}


def a_auc_by_seed(runs: Sequence[Result]) -> dict[int, float]:
    """A_AUC of each run, percent; empty unless all are finished."""
    areas = {run.experiment.seed: run.metrics.a_auc for run in runs if run.summary is not None}
    known = {seed: 100 * area for seed, area in areas.items() if area is not None}
    return known if len(known) == len(runs) else {}


def apply_changes(experiment: Experiment, changes: Mapping[str, str]) -> Experiment:
    """The experiment with these fields changed: slots before the fields of what is put into them."""
    paths = sorted(changes, key=lambda path: path.count("."))
    return edit(experiment, *(f"{path}={changes[path]}" for path in paths))


def _check_selectable(experiments: Iterable[Experiment]) -> None:
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


def _parse_space(text: str, option: str) -> Space:
    path, _, values = (word.strip() for word in text.partition("="))
    if not path or not values:
        raise InputError(f"{option} {text!r} has no values; write {option} PATH=VALUES, such as memory=200,500.")
    if path in _FIXED:
        raise InputError(f"{option} {text}: {path} cannot be searched; use {_FIXED[path]}.")
    low, dots, high = values.removesuffix(":log").partition("..")
    if option == "--space" and dots and (ends := _numbers([low, high])):
        start, end, log = *ends, values.endswith(":log")
        if not start < end:
            raise InputError(f"{option} {text} is not a range; write the smaller number first: {path}=LOW..HIGH.")
        if log and start <= 0:
            raise InputError(f"{option} {text}: a range on a log scale starts above 0.")
        return Space(path, (low.strip(), high.strip()), start, end, log)
    choices = _split_values(values, f"{option} {path}")
    if len(choices) == 1:
        ranges = " or a range LOW..HIGH or LOW..HIGH:log" if option == "--space" else ""
        raise InputError(f"{option} {text} has only one value; give several{ranges}, or write --set {text}.")
    return Space(path, choices)


def _numbers(words: Sequence[str]) -> list[float]:
    """The numbers that words are; none at all if one of them is no finite number."""
    try:
        numbers = list(map(float, words))
    except ValueError:
        return []
    return numbers if all(map(math.isfinite, numbers)) else []


def _split_values(text: str, where: str) -> tuple[str, ...]:
    """Values between commas; those of a value in parentheses are its own."""
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


def search_to_terminal(results: Sequence[PointResult], *, width: int, bold: bool = True) -> str:
    """The table and what its numbers are; paths are shortened where the terminal is too narrow for them."""
    paths = list(dict.fromkeys(path for result in results for path in result.point.changes))
    short = [path.rsplit(".", 1)[-1] for path in paths]
    table = _grid(results, paths, paths)
    if sum(1 + max(map(len, column)) for column in zip(*table, strict=True)) > width and len(set(short)) == len(short):
        table = _grid(results, paths, short)
    titles, *lines = table
    sides = "".join("r" if title in ("n", "A_AUC ↑", "trial") else "l" for title in titles)
    marked = ([f"**{cell}**" if cell and line[-1] == "best" else cell for cell in line] for line in lines)
    grid = rich_grid(titles, marked, width, sides=sides, bold=bold)
    counts = {len(result.values) for result in results if result.score}
    over = "one seed each" if counts <= {1} else "mean ± sample standard deviation (n - 1) over n seeds"
    caption = f"Percent, {over}; on training images held out of the stream, not on test images."
    return f"{grid}\n{textwrap.fill(caption, width)}"


def search_to_json(results: Sequence[PointResult]) -> list[dict[str, Any]]:
    """The points for `json.dumps`, every number in full."""
    best = set(map(id, best_points(results).values()))
    return [
        ({"number": result.number} if result.number is not None else {})
        | {
            "method": result.point.row,
            "fields": dict(result.point.changes),
            "state": result.state,
            "note": result.note,
            "a_auc": {"mean": result.score.mean, "std": result.score.std} if result.score else None,
            "seeds": {str(seed): value for seed, value in result.values.items()},
            "best": id(result) in best,
            "runs": [experiment.name for experiment in result.point.experiments],
        }
        for result in results
    ]


def _grid(results: Sequence[PointResult], paths: Sequence[str], heads: Sequence[str]) -> list[list[str]]:
    """Headings and lines, with the fields under `heads`."""
    best = set(map(id, best_points(results).values()))
    has_rows = len({result.point.row for result in results}) > 1
    has_numbers = any(result.number is not None for result in results)
    table = [[*["trial"] * has_numbers, *["method"] * has_rows, *heads, "n", "A_AUC ↑", ""]]
    for result in results:
        cells = [str(result.number)] * has_numbers + [result.point.row] * has_rows
        cells += [result.point.changes.get(path, NOTHING) for path in paths]
        remark = "best" if id(result) in best else "" if result.state == FINISHED else result.state
        if remark == result.state and result.steps:  # a failure's sentence is said elsewhere
            remark += f" at {max(result.steps):,}"
        table.append([*cells, str(len(result.values)) if result.score else NOTHING, format_value(result.score), remark])
    return table

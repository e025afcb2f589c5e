"""The noise of a run against itself: what other rounding does to the numbers of one experiment and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from iblurry.analysis.describe import describe_noted
from iblurry.analysis.metrics import ACCURACY_METRICS
from iblurry.experiment.environment import LAST_BITS
from iblurry.experiment.result import Result

_NOTED = ("commit", "python", *LAST_BITS, "threads")  # of an environment: what may change a run's rounding
METRICS = ("a_auc", "a_avg", "a_last")


@dataclass(frozen=True)
class RunNoise:
    """Pairs of runs of one experiment and seed, made in places that differ in the same way."""

    differs: str  # in what the places of a pair differ
    rows: tuple[str, ...]  # methods, in order
    pairs: int
    apart: dict[str, list[float]]  # by metric: |first - second| of each pair that has it, in points


def find_noise(runs: Sequence[Result]) -> list[RunNoise]:
    """Every pair of runs of the same experiment, seed, data and order, put together by what differs between them."""
    same: dict[tuple[str, ...], list[Result]] = {}
    for run in runs:
        content = (str(run.environment.get(name, "")) for name in ("data", "order"))
        same.setdefault((run.experiment.digest, *content), []).append(run)
    found: dict[str, list[tuple[Result, Result]]] = {}
    for group in same.values():
        for pair in combinations(group, 2):
            found.setdefault(_differs(*pair), []).append(pair)
    return [_noise(differs, pairs) for differs, pairs in found.items()]


def _differs(first: Result, second: Result) -> str:
    noted = {name: sorted(describe_noted(run, name) for run in (first, second)) for name in _NOTED}
    words = [f"{name} {one} / {other}" for name, (one, other) in noted.items() if one != other]
    return ", ".join(words) or "no recorded setting"


def _noise(differs: str, pairs: Sequence[tuple[Result, Result]]) -> RunNoise:
    apart: dict[str, list[float]] = {name: [] for name in METRICS}
    for (first, second), name in ((pair, name) for pair in pairs for name in METRICS):
        one, other = (ACCURACY_METRICS[name].value(run) for run in (first, second))
        if one is not None and other is not None:
            apart[name].append(abs(one - other))
    rows = dict.fromkeys(first.experiment.method.name for first, _ in pairs)
    return RunNoise(differs, tuple(rows), len(pairs), apart)

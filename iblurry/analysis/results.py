"""What runs say, as two tables of pandas: one line per run, one line per query; all tables and figures start here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iblurry.analysis.describe import experiment_fields, name_runs
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, Query
from iblurry.experiment.result import Result, read_result

if TYPE_CHECKING:
    from pandas import DataFrame

_ALWAYS = ("method", "dataset", "stream", "memory", "network")  # fields that stand in the table though all are alike


def results(*folders: Path | str, metrics: Sequence[str] = (), fields: Sequence[str] = ()) -> DataFrame:
    """Read runs into a table of pandas with one line per run.

    Its columns: `run` (the name of its folder); `row` (what `iblurry show` calls all runs that differ only in their
    seed); `method`, `dataset`, `seed`, `stream`, `memory`, `network` and every other field, by the paths that `--set`
    takes, in which the runs differ; `a_auc`, `a_avg`, `a_last` and `f_last` in
    fractions, not a number where they are not defined; `seen` (samples), `updates` and `queries`; what callbacks
    logged, the last value of each; `training_flops` (floating-point operations of the whole run but its queries),
    `held_bytes`, `seconds`, `device`, `commit`; `finished`, `stopped` (why a callback ended the run before its stream)
    and `folder`. A run that is not finished counts as far as it got.

    Parameters
    ----------
    *folders : Path or str
        Run folders, or folders of them; "runs" unless any is given.
    metrics : sequence of str
        More numbers, as `Result.metric` names them: "aaa", "wc_acc", "forgetting:max".
    fields : sequence of str
        Fields that are columns though they do not differ: "share", "schedule.initial_lr".

    Examples
    --------
    >>> runs = results("runs")  # doctest: +SKIP
    >>> runs[runs.finished].groupby("row")["a_auc"].agg(["count", "mean", "std"])  # doctest: +SKIP
    """
    return results_frame(_read_runs(folders), metrics, fields)


def curves(*folders: Path | str, task_ends: bool = False) -> DataFrame:
    """Read the curves of runs into a table of pandas with one line per query.

    Its columns: `run`, `method`, `dataset`, `seed`; `seen` (samples), `task` (from 0), `accuracy` (a fraction, on the
    classes met so far), `rate` (of learning) and `updates`; `folder`. The mean of a run's `accuracy` is its A_AUC.

    Parameters
    ----------
    *folders : Path or str
        Run folders, or folders of them; "runs" unless any is given.
    task_ends : bool
        Also the evaluations after the ends of tasks, which are no points of a curve; then a column `query` says which
        lines are.

    Examples
    --------
    >>> curves("runs").pivot_table("accuracy", "seen", "method").plot()  # doctest: +SKIP
    """
    import pandas as pd

    columns = ["run", "method", "dataset", "seed", "seen", "task", "query", "accuracy", "rate", "updates", "folder"]
    lines = [
        (
            *(run.folder.name, run.experiment.method.name, run.experiment.dataset, run.experiment.seed),
            *(one.at, one.task, isinstance(one, Query), one.accuracy, one.rate, one.updates, str(run.folder)),
        )
        for run in _read_runs(folders)
        for one in run.records
        if isinstance(one, Evaluation if task_ends else Query)
    ]
    return pd.DataFrame(lines, columns=columns).drop(columns=[] if task_ends else "query")


def find_runs(places: Iterable[Path | str]) -> list[Path]:
    """Find the folders of runs that are meant by their names, or by those of folders of them; each once.

    A folder may also hold data sets of runs, as `iblurry dev collect` makes them.
    """
    first: dict[Path, Path] = {}
    for place in map(Path, places):
        is_run = (place / "experiment.json").exists()
        inside = ([*place.glob("*/experiment.json")] or place.glob("*/*/experiment.json")) if not is_run else ()
        found = [place] if is_run else sorted(path.parent for path in inside)
        if not found:
            raise InputError(f"{place} is not a run and contains none; give a folder that `iblurry run` wrote.")
        for folder in found:
            first.setdefault(folder.resolve(), folder)
    return list(first.values())


def results_frame(runs: Sequence[Result], metrics: Sequence[str] = (), fields: Sequence[str] = ()) -> DataFrame:
    """Make the table of `results` of runs that were read."""
    import pandas as pd

    known = pd.DataFrame([_fields(run) for run in runs])
    for name in fields:
        if name not in known:
            raise UnknownNameError("field of these runs", name, [*known])
    differ = [name for name in known if known[name].nunique(dropna=False) > 1]
    shown = known[list(dict.fromkeys(["method", "dataset", "seed", *_ALWAYS, *fields, *differ]))]
    numbers = pd.DataFrame([asdict(run.metrics) for run in runs]).rename(columns={"samples": "seen"})
    more = pd.DataFrame([{name: run.metric(name) for name in metrics} | _logged(run) for run in runs])
    place = pd.DataFrame([_place(run) for run in runs])
    place = place.astype({"training_flops": float, "held_bytes": float, "seconds": float})
    accuracies = dict.fromkeys(("a_auc", "a_avg", "a_last", "f_last"), float)  # None: not a number
    frame = pd.concat([shown, numbers.astype(accuracies), more.astype(float), place], axis=1)
    frame.insert(0, "run", [run.folder.name for run in runs])
    frame.insert(1, "row", name_runs(runs))
    return frame


def training_flops(run: Result) -> float | None:
    """Count the operations of training in the whole run, queries aside; None for a run that did not count."""
    flops = (run.summary or {}).get("compute", {}).get("flops")
    return None if flops is None else float(sum(flops.values()) - flops["queries"])


def held_bytes(run: Result) -> float | None:
    """Count the bytes that a method keeps from sample to sample; None for a run that did not count."""
    held = (run.summary or {}).get("compute", {}).get("bytes")
    return None if held is None else float(sum(held.values()))


def _read_runs(places: Sequence[Path | str]) -> list[Result]:
    """Read the runs in these folders; those in "runs" where none is given."""
    return [read_result(RunFolder(folder)) for folder in find_runs(places or ["runs"])]


def _fields(run: Result) -> dict[str, Any]:
    """Returns its experiment, field by field, and the fingerprint of its data, which may have changed between two
    runs.
    """
    named = {"method": run.experiment.method.name, "seed": run.experiment.seed}
    return named | experiment_fields(run.experiment) | {"data": run.environment.get("data", "")}


def _logged(run: Result) -> dict[str, float | None]:
    return {name: values[-1][1] for name, values in run.logged.items()}


def _place(run: Result) -> dict[str, Any]:
    """What the run took, where it was run, and how it ended."""
    kept = run.environment | (run.summary or {})
    return {
        "training_flops": training_flops(run),
        "held_bytes": held_bytes(run),
        "seconds": kept.get("seconds"),
        "device": kept.get("device"),
        "commit": kept.get("commit"),
        "finished": run.summary is not None,
        "stopped": run.stopped.reason if run.stopped else None,
        "folder": str(run.folder),
    }

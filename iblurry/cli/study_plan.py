"""What `iblurry study` says before it runs anything: what is to do, what that computes, and how long it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.study_options import RUN_FOLDERS

if TYPE_CHECKING:
    from iblurry.data.dataset import Dataset
    from iblurry.launch.config import LaunchConfig
    from iblurry.studies.forecast import ExpectedRun, Forecast, RunCost
    from iblurry.studies.selection import Selection
    from iblurry.studies.study import PlannedRun


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """Which runs of a study are done, and the forecast of the others."""

    selection: Selection
    done: Sequence[PlannedRun]
    forecast: Forecast
    is_foreseen: bool  # not on a cluster, of which nothing is known

    def rows(self) -> list[dict[str, Any]]:
        """Of each row and column: runs to do and done, what those to do compute, and the seconds of one."""
        cells: dict[tuple[str, str], tuple[list[ExpectedRun], list[PlannedRun]]] = {
            (one.row, one.column): ([], []) for one in self.selection.planned
        }
        for one in self.forecast.runs:
            cells[one.planned.row, one.planned.column][0].append(one)
        for planned in self.done:
            cells[planned.row, planned.column][1].append(planned)
        return [
            {
                "row": row,
                "column": column,
                "to_do": len(runs),
                "done": len(done),
                "training_flops": sum(one.cost.training for one in runs),
                "query_flops": sum(one.cost.queries for one in runs),
                "run_seconds": _mean([one.seconds for one in runs]),
                "basis": runs[0].basis if runs else None,
            }
            for (row, column), (runs, done) in cells.items()
        ]

    def show(self, *, as_json: bool) -> None:
        """The rows on standard output."""
        rows = self.rows()
        if as_json:
            about = {"study": self.selection.study.name, "dataset": self.selection.dataset}
            counts = {"to_do": len(self.forecast.runs), "done": len(self.done)}
            times = {"seconds": self.forecast.left() if self.is_foreseen else None, "at_a_time": self.forecast.places}
            click.echo(json.dumps(about | counts | times | {"rows": rows}, indent=2))
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        heads = ["row", "column", "to do", "done", "training", "answers", "time of a run", "known by"]
        shown = [head for head in heads if head != "column" or any(row["column"] for row in rows)]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for head in shown:
            table.add_column(head, justify="left" if head in ("row", "column", "known by") else "right", no_wrap=True)
        for row in rows:
            cells = dict(zip(heads, _cells(row), strict=True))
            table.add_row(*(Text(cells[head]) for head in shown))
        console = Console(highlight=False)
        console.width = max(console.width, console.measure(table).maximum)  # a number cut short would be a wrong one
        console.print(table)


def plan_study(
    selection: Selection, once: Mapping[str, PlannedRun], done: set[str], config: LaunchConfig, data: Dataset
) -> StudyPlan:
    """The plan of these runs, by name; says on standard error what is to do and how long that takes.

    Methods without finished runs on this device are timed for a moment; on a GPU the cheapest of them.
    """
    from rich.console import Console
    from rich.progress import track

    from iblurry.engine.devices import visible_gpus
    from iblurry.studies.collect import dataset_folder
    from iblurry.studies.forecast import Forecast, expect_runs, finished_seconds, run_cost, seedless, trial_key
    from iblurry.studies.trial import place_of, try_apart

    todo = [one for name, one in once.items() if name not in done]
    experiments = [one.experiment for one in todo]
    costs = {one.name: run_cost(one, data) for one in experiments}
    _say(f"{selection.study.name} on {selection.dataset}: {_describe_work(list(costs.values()), len(done))}.")
    workers = config.worker_count([one.experiment for one in once.values()])
    hardware = {one.name: config.hardware_for(one, workers) for one in experiments}
    gpus = visible_gpus() if any(one.device != "cpu" for one in hardware.values()) else []
    places = max(1, min(config.jobs or len(gpus) or workers, len(gpus) or workers, len(todo)))  # GPUs take turns
    finished, trials, is_local = {}, {}, config.on == "local"
    if experiments and is_local:
        outs = {config.out, *RUN_FOLDERS}
        folders = [place for out in outs for place in (out, dataset_folder(out, selection.dataset))]
        finished = finished_seconds(experiments, folders, place_of(hardware[experiments[0].name]))
        unknown = {trial_key(one): one for one in reversed(experiments) if seedless(one) not in finished}
        if gpus and unknown:  # a trial compiles for a minute: one at most, and the other methods by their operations
            cheapest = min(unknown, key=lambda key: costs[unknown[key].name].flops)
            unknown = {} if finished else {cheapest: unknown[cheapest]}
        if unknown:
            several = "s" * (len(unknown) > 1)
            _say(f"Timing a moment of {len(unknown)} method{several}, to tell how long it takes.")
            jobs = [(one, hardware[one.name]) for one in unknown.values()]
            console = Console(stderr=True)
            tried = track(
                try_apart(jobs, config.data_home, 1 if gpus else places),
                total=len(jobs),
                description="Timing",
                console=console,
                transient=True,
                disable=not console.is_terminal,
            )
            trials = dict(zip(unknown, tried, strict=True))
    forecast = Forecast(expect_runs(todo, costs, finished, trials), places)
    if todo:
        _say(forecast.describe() if is_local else "How long it takes on a cluster is not foreseen.")
    kept = [one for name, one in once.items() if name in done]
    return StudyPlan(selection=selection, done=kept, forecast=forecast, is_foreseen=is_local)


def _describe_work(costs: Sequence[RunCost], done: int) -> str:
    from iblurry.studies.describe import operations

    counts = f"{len(costs)} of {len(costs) + done} runs to do, {done} done and kept"
    if not costs:
        return counts
    training, answers = (operations(sum(getattr(one, name) for one in costs)) for name in ("training", "queries"))
    return f"{counts}; {training} of training and {answers} of answers"


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)


def _mean(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) / len(known) if known else None


def _cells(row: Mapping[str, Any]) -> list[str]:
    from iblurry.launch.progress import duration
    from iblurry.studies.describe import operations

    seconds, some = row["run_seconds"], row["to_do"] > 0
    return [
        row["row"],
        row["column"],
        f"{row['to_do']:,}",
        f"{row['done']:,}",
        operations(row["training_flops"]) if some else "",
        operations(row["query_flops"]) if some else "",
        "" if seconds is None else duration(seconds),
        {"finished": "finished runs", "timed": "a timed moment", "compared": "operations"}.get(row["basis"] or "", ""),
    ]

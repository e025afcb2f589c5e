"""What the report shows, as plain JSON: a pure function of the runs' texts and the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from iblurry.experiment.experiment import Experiment
from iblurry.studies.collect import CollectedRun
from iblurry.studies.compare import Comparison, compare_with_paper
from iblurry.studies.describe import experiment_fields, run_command
from iblurry.studies.paper import COUNTERPARTS
from iblurry.studies.report.charts import chart_data, class_maps, final_accuracies
from iblurry.studies.report.compute import mean_compute
from iblurry.studies.report.runs import (
    ReportBlock,
    ReportRow,
    find_runs,
    group_blocks,
    read_runs,
    select_study,
    stream_length,
)
from iblurry.studies.study import Study
from iblurry.studies.tables.layout import format_value
from iblurry.studies.tables.table import ACCURACY_METRICS, tabulate_runs, to_percent
from iblurry.studies.tables.text import describe_seeds

UNLIKE = ("order", "seconds")  # of an environment: belong to the run, not to the place
HASHES = {"data": 12, "order": 12}  # digits that tell enough

Json = dict[str, Any]


def report_data(place: Path, *, title: str | None = None, study: Study | None = None) -> Json:
    """Everything the page shows.

    Parameters
    ----------
    place : Path
        A folder of runs, or of data sets of them; the page names run folders as they are inside it.
    title : str, optional
        The page's heading; the study's, or the data sets, unless given.
    study : Study, optional
        Only the runs of this study, and what it still lacks.
    """
    runs = read_runs(find_runs(place))
    missing: list[Experiment] = []
    if study is not None:
        runs, missing = select_study(study, runs)
    found = group_blocks(runs)
    datasets = list(dict.fromkeys(block.configuration.dataset for block in found))
    return {
        "title": title or (study.title if study else f"Continual learning on {_listed(datasets)}"),
        "study": {"name": study.name, "question": study.question, "shows": list(study.shows)} if study else None,
        "runs": len(runs),
        "finished": sum(run.result.summary is not None for run in runs),
        "methods": sorted({run.result.experiment.method.name for run in runs}),
        "seeds": sorted({run.result.experiment.seed for run in runs}),
        "seconds": sum(run.environment.get("seconds", 0) for run in runs),
        "devices": sorted({str(run.environment["device"]) for run in runs if "device" in run.environment}),
        "blocks": [_block(number, block, place) for number, block in enumerate(found)],
        "missing": _missing(missing),
    }


def _block(number: int, block: ReportBlock, place: Path) -> Json:
    return {
        "id": f"c{number + 1}",
        "title": str(block.configuration),
        "dataset": block.configuration.dataset,
        "names": [row.name for row in block.rows],
        "table": _table(block),
        "paper": _paper(block),
        "chart": chart_data(block),
        "maps": class_maps(block),
        "final": final_accuracies(block),
        "spent": mean_compute(block),
        "settings": _settings(block),
        "place": _place(block),
        "runs": [_run(name, run, place) for row in block.rows for name, run in ((row.name, run) for run in row.runs)],
        "commands": [_command(row, block) for row in block.rows],
        "lacking": [
            {"row": number, "seeds": seeds} for number, row in enumerate(block.rows) if (seeds := _lacking(row, block))
        ],
    }


def _table(block: ReportBlock) -> Json:
    """All four numbers of finished runs, row by row; a row without any waits below."""
    table = tabulate_runs({row.name: [run.result for run in row.finished] for row in block.rows if row.finished})
    lines, waiting = [], []
    for number, row in enumerate(block.rows):
        if not row.finished:
            waiting.append(number)
            continue
        values = {}
        for name in ACCURACY_METRICS:
            cell = table.cells[row.name, "", name]
            about = {"text": format_value(cell.ours), "best": table.is_best(cell)}
            values[name] = about | (asdict(cell.ours) if cell.ours else {"mean": None, "std": None})
        lines.append({"row": number, "n": len(row.finished), "unfinished": len(row.unfinished)} | values)
    return {"lines": lines, "waiting": waiting, "caption": describe_seeds(table) if lines else ""}


def _paper(block: ReportBlock) -> list[Json]:
    """The paper's numbers beside ours, metric by metric; nothing where it has none for this configuration."""
    names = {_kind(row.experiments[0]): number for number, row in enumerate(block.rows)}
    done = [run for row in block.rows for run in row.finished]
    beside = next((one for one in compare_with_paper(done) if one.configuration == block.configuration), None)
    if beside is None:
        return []
    numbers = {name: names[_kind(group[0].result.experiment)] for name, group in beside.groups.items()}
    found = []
    for metric, comparisons in beside.comparisons.items():
        if any(one.paper for one in comparisons):
            found.append({"metric": metric, "lines": [_comparison(one, numbers) for one in comparisons]})
    return found


def _comparison(one: Comparison, numbers: dict[str, int]) -> Json:
    return {
        "theirs": COUNTERPARTS[one.method] if one.method and one.paper else None,
        "row": numbers[one.row] if one.row is not None else None,
        "method": one.method,
        "n": one.n,
        "paper": asdict(one.paper) | {"tables": list(one.paper.tables)} if one.paper else None,
        "ours": asdict(one.ours) if one.ours else None,
        "difference": one.difference,
        "verdict": one.verdict,
        "misses": one.misses,
    }


def _settings(block: ReportBlock) -> Json:
    """Every field by the path that --set takes: what differs between rows, then what all have."""
    tables = [experiment_fields(row.experiments[0]) for row in block.rows]
    paths = list(dict.fromkeys(path for table in tables for path in table))
    lines = [[path, [_text(table.get(path, "–")) for table in tables]] for path in paths]
    differing = [line for line in lines if len(set(line[1])) > 1]
    return {
        "differ": differing,
        "common": [[path, values[0]] for path, values in lines if [path, values] not in differing],
    }


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _place(block: ReportBlock) -> Json:
    """Versions and hardware: what is the same for all runs, and the names of what is not."""
    all_ = [run.environment for row in block.rows for run in row.runs]
    names = list(dict.fromkeys(name for environment in all_ for name in environment if name not in UNLIKE))
    same = {name: _noted(all_[0], name) for name in names if len({_noted(one, name) for one in all_}) == 1}
    return {"same": same, "differ": [name for name in names if name not in same]}


def _run(row: str, run: CollectedRun, place: Path) -> Json:
    found, whole = run.result, stream_length(run)
    seconds = run.environment.get("seconds")
    return {
        "row": row,
        "seed": found.experiment.seed,
        "state": "finished" if found.summary is not None else "unfinished" if found.records else "not begun",
        "samples": found.metrics.samples,
        "of": whole,
        "updates": found.metrics.updates,
        "seconds": seconds,
        "so_far": {name: to_percent(getattr(found.metrics, name)) for name in ACCURACY_METRICS},
        "environment": {name: _noted(run.environment, name) for name in run.environment if name != "seconds"},
        "folder": found.folder.relative_to(place).as_posix(),
    }


def _noted(environment: Json, name: str) -> str:
    value = str(environment.get(name, "not noted"))
    return value[: HASHES.get(name)] if name in environment else value


def _command(row: ReportRow, block: ReportBlock) -> Json:
    """What ran the row, and what finishes it, with the seeds that it lacks; None where nothing is left to do."""
    lacking = [replace(row.experiments[0], seed=seed) for seed in _lacking(row, block)]
    todo = run_command([*row.experiments, *lacking]) if lacking or row.unfinished else None
    return {"row": row.name, "command": run_command(row.experiments), "todo": todo}


def _lacking(row: ReportRow, block: ReportBlock) -> list[int]:
    """Seeds that other rows of the configuration have and this one has not."""
    return sorted(
        {one.seed for other in block.rows for one in other.experiments} - {one.seed for one in row.experiments}
    )


def _missing(experiments: Iterable[Experiment]) -> list[Json]:
    """What a study plans and nobody began, row by row, with what to run."""
    alike: dict[str, list[Experiment]] = {}
    for one in experiments:
        alike.setdefault(_kind(one), []).append(one)
    return [
        {"method": group[0].method.name, "seeds": [one.seed for one in group], "command": run_command(group)}
        for group in alike.values()
    ]


def _kind(experiment: Experiment) -> str:
    return replace(experiment, seed=0).digest


def _listed(words: Sequence[str]) -> str:
    return " and ".join(", ".join(words).rsplit(", ", 1)) if len(words) < 4 else f"{len(words)} data sets"

"""The table of a study, and its page: the finished runs of what it plans, the paper's numbers, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from iblurry.analysis.describe import describe_settings, run_command
from iblurry.analysis.figures.draw import draw_study
from iblurry.analysis.formats import markdown_notes, to_markdown, to_ranking
from iblurry.analysis.significance import PairedComparison
from iblurry.analysis.table import TABLE_METRICS, Runs, Table, TableMetric, find_metrics, logged_names, make_frames
from iblurry.data.load import parse_spec
from iblurry.storage.files import replacing
from iblurry.studies.paper import PAPER_METRICS, configuration_of, find_counterpart, load_paper, paper_number
from iblurry.studies.selection import Selection
from iblurry.studies.study import PlannedRun, find_finished, find_other_orders

PAGE_FIGURES = {  # of its page: kinds, and what each shows
    "curves": "Accuracy to samples seen",
    "flops": "{metric} against what training computes",
}
_PAPER_NAMES = {ours: theirs for theirs, ours in PAPER_METRICS.items()}


def tabulate_study(
    selection: Selection,
    folders: Sequence[Path],
    *,
    metrics: Sequence[str] | None = None,
    paper: bool = True,
    known: Mapping[str, TableMetric] = TABLE_METRICS,
) -> Table:
    """Make the table of a study, or of a part of it, from finished runs in the first of `folders` that has each.

    `metrics` are names in `known` or of what callbacks logged, the study's unless given; `paper` says whether to look
    up the paper's numbers. A cell without runs on the planned orders takes those on others, unless the selection names
    its orders.
    """
    study, planned = selection.study, selection.planned
    finished = find_finished(planned, folders)
    if not finished:
        parse_spec(selection.dataset)  # raises if the name of the data set was mistyped
    groups: dict[tuple[str, str], list[PlannedRun]] = {}
    for one in planned:
        groups.setdefault((one.row, one.column), []).append(one)
    runs: dict[tuple[str, str], dict[int, Any]] = {
        place: {one.experiment.seed: finished[one] for one in group if one in finished}
        for place, group in groups.items()
    }
    lacking = {place: group for place, group in groups.items() if not runs[place]}
    others = {} if selection.names_orders else find_other_orders(lacking, folders)
    runs |= others
    logged = logged_names(run for seeds in runs.values() for run in seeds.values())
    chosen = find_metrics(tuple(metrics or study.metrics), logged, known)
    missing = tuple(one for one in planned if one not in finished and (one.row, one.column) not in others)
    rows, columns = selection.row_names, tuple(dict.fromkeys(one.column for one in planned))
    common = [describe_settings([one.experiment for one in planned]), selection.equal]
    settings = ", ".join(filter(None, common))
    printed_in = f" ({', '.join(study.shows)} of the paper)" if study.shows else ""
    lacks = {one.row for one in missing}
    to_run = tuple(row for row in rows if row in lacks)  # a whole row would be run again where --out is another folder
    chosen_runs = selection if to_run == rows else replace(selection, rows=to_run)
    content = load_paper()
    return Table(
        rows=rows,
        columns=columns,
        metrics=chosen,
        runs=runs,
        **make_frames(rows, columns, chosen, runs, _paper_numbers(groups, chosen) if paper else None),
        title=f"{study.title}{printed_in}: {settings}",
        caption=f"{study.title}: {settings}",
        label=selection.slug,
        other_orders=frozenset(others),
        order_notes=_describe_orders(selection, runs, others),
        missing_words=_describe_missing(selection, missing, len(columns)),
        commands=[chosen_runs.command()] if missing else [],
        about={
            "study": study.name,
            "title": study.title,
            "shows": study.shows,
            "question": study.question,
            "dataset": selection.dataset,
            "settings": settings,
            "equal_compute": selection.equal_compute,
            "equal_bytes": selection.equal_bytes,
            "paper": content["paper"],
            "paper_units": content["units"],
            "seeds": selection.seeds,
            "missing": [
                {"row": one.row, "column": one.column, "seed": one.experiment.seed, "run": one.experiment.name}
                for one in missing
            ],
            "other_orders": [{"row": row, "column": column} for row, column in sorted(others)],
        },
    )


def write_page(table: Table, path: Path, pairs: Sequence[PairedComparison] | None = None) -> list[Path]:
    """Write a study as a page of Markdown, from finished runs alone; returns all files.

    It has the question, figures in a folder `images` beside it, the table and the commands; of `pairs`, those of the
    first metric.
    """
    first, figures = table.metrics[0], {}
    for kind in PAGE_FIGURES:
        figures[kind] = path.parent / "images" / f"{path.stem}-{kind}.png"
        figures[kind].parent.mkdir(parents=True, exist_ok=True)
        with replacing(figures[kind]) as part:
            draw_study(table, kind, part)
    shown = [
        f"![{PAGE_FIGURES[kind].format(metric=first.heading)}](images/{place.name})" for kind, place in figures.items()
    ]
    commands = [run_command([run.experiment for run in runs.values()]) for runs in table.runs.values() if runs]
    rankings = []
    for column in table.columns:
        if table.by_seed(column, first.name):
            rankings += [f"## {column.capitalize() or first.heading}", to_ranking(table, column)]
    by_first = None if pairs is None else [pair for pair in pairs if pair.metric == first.name]
    below = [to_markdown(table, by_first).strip()] if table.has_paper else markdown_notes(table, by_first)
    parts = [
        f"# {table.about['title']}",
        f"{table.about['question']} Here: {table.about['settings']}.",
        f"Made by `iblurry table {table.about['study']} --page` from finished runs; nothing is typed by hand.",
        *shown,
        *rankings,
        *below,
        "### The runs",
        "\n".join(["```console", *dict.fromkeys(commands), "```"]),
    ]
    with replacing(path) as part:
        part.write_text("\n\n".join(parts) + "\n", "utf-8")
    return [path, *figures.values()]


def _paper_numbers(
    groups: Mapping[tuple[str, str], Sequence[PlannedRun]], metrics: Sequence[TableMetric]
) -> dict[tuple[str, str, str], Any]:
    """Returns the paper's numbers by row, column and metric; None where the paper prints nothing."""
    numbers = {}
    for (row, column), (one, *_) in groups.items():
        if (method := find_counterpart(one.experiment)) is not None:
            where = configuration_of(one.experiment)
            for name in (metric.name for metric in metrics if metric.name in _PAPER_NAMES):
                numbers[row, column, name] = paper_number(method, _PAPER_NAMES[name], where)
    return numbers


def _describe_orders(selection: Selection, runs: Runs, others: Mapping[tuple[str, str], Any]) -> list[str]:
    """Sentences on the rows whose runs are on other orders than the study's command draws, if any."""
    titles: dict[str, list[str]] = {}
    for place in (place for place in runs if place in others):
        title = next(iter(runs[place].values())).experiment.stream.title
        titles.setdefault(title, []).append(" ".join(filter(None, place)))
    command, whole = replace(selection, out=None).command(), sum(map(bool, runs.values()))
    which = {title: "All rows" if len(rows) == whole else ", ".join(rows) for title, rows in titles.items()}
    return [
        f"{rows}: our runs are on the orders of {title}; `{command}` draws others." for title, rows in which.items()
    ]


def _describe_missing(selection: Selection, missing: Sequence[PlannedRun], columns: int) -> list[str]:
    """The runs that are not finished: a row that has none by its name, else its columns, else its seeds."""
    groups: dict[str, dict[str, list[int]]] = {}
    for one in missing:
        groups.setdefault(one.row, {}).setdefault(one.column, []).append(one.experiment.seed)
    words = []
    for row, lacks in groups.items():
        expected = selection.study.seeds_of(row, selection.seeds)
        whole = {column: tuple(seeds) == expected for column, seeds in lacks.items()}
        if len(lacks) == columns and all(whole.values()):
            words.append(row)
            continue
        for column, seeds in lacks.items():
            which = "" if whole[column] else f"seed {', '.join(map(str, seeds))}"
            words.append(" ".join(filter(None, [row, column, which])))
    return words

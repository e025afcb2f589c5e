"""The report of `iblurry report`: the runs of a folder by configuration and row, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from iblurry.analysis.metrics import ACCURACY_METRICS
from iblurry.analysis.report.html import Html, cell, join, metric, numeric, row_head, table, tag
from iblurry.analysis.report.report import Report, ReportBlock, ReportRow
from iblurry.analysis.results import find_runs
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.result import Result, read_result
from iblurry.studies.compare import NOT_RUN, Comparison, ComparisonBlock, find_warnings, group_by_configuration
from iblurry.studies.paper import COUNTERPARTS, PAPER_METRICS, Configuration, configuration_of, load_paper
from iblurry.studies.study import SEEDS, Study


def report_data(place: Path, *, title: str | None = None, study: Study | None = None) -> Report:
    """Read the runs of a report.

    Parameters
    ----------
    place : Path
        A folder of runs, or of data sets of them.
    title : str, optional
        The page's heading; the study's, or the data sets, unless given.
    study : Study, optional
        Only the runs of this study, and what it still lacks.
    """
    runs = [read_result(RunFolder(folder)) for folder in find_runs([place])]
    missing: list[Experiment] = []
    if study is not None:
        runs, missing = select_study(study, runs)
    blocks = [
        _block(f"c{number}", where, sorted(map(_row, groups, groups.values()), key=lambda row: row.name))
        for number, (where, groups) in enumerate(group_by_configuration(runs).items(), start=1)
    ]
    if title is None:
        datasets = list(dict.fromkeys(configuration_of(run.experiment).dataset for run in runs))
        title = study.title if study else f"Continual learning on {_join_words(datasets)}"
    alike = [list(group) for _, group in groupby(missing, key=lambda planned: replace(planned, seed=0).digest)]
    shows = f" ({', '.join(study.shows)} of the paper)" if study and study.shows else ""
    question = f"{study.question}{shows}" if study else None
    about = f"The paper: {load_paper()['paper']}. Its numbers: {load_paper()['units']}."
    return Report(title, question, place, runs, blocks, alike, study.name if study else None, about)


def select_study(study: Study, runs: Sequence[Result]) -> tuple[list[Result], list[Experiment]]:
    """The runs that belong to a study, and what it plans on their data, at their scale, that was not begun."""
    streams = dict.fromkeys((run.experiment.dataset, run.experiment.share) for run in runs)
    seeds = sorted({*SEEDS, *(run.experiment.seed for run in runs)})
    planned = {
        stream: {run.experiment.digest: run.experiment for run in study.plan(stream[0], seeds=seeds, scale=stream[1])}
        for stream in streams
    }
    known = {digest for experiments in planned.values() for digest in experiments}
    selected = [run for run in runs if run.experiment.digest in known]
    if not selected:
        raise InputError(
            f"None of the {len(runs)} runs belongs to the study {study.name}; run one of its rows, such as "
            f"`iblurry run {study.rows[-1]} --dataset {next(iter(streams))[0]}`, or leave --study out."
        )
    begun = {run.experiment.digest for run in selected}
    missing = [
        experiment
        for experiments in planned.values()
        if begun & experiments.keys()
        for digest, experiment in experiments.items()
        if digest not in begun and experiment.seed in SEEDS
    ]
    return selected, missing


def beside_paper(block: ComparisonBlock, names: Sequence[str]) -> Html | None:
    """Show the paper's numbers and ours, one table per metric; None where it has none for this configuration."""
    found = block.comparisons.items()
    return join([_compare(names, name, made) for name, made in found if any(one.paper for one in made)]) or None


def _compare(names: Sequence[str], name: str, comparisons: Sequence[Comparison]) -> Html:
    """Our runs with the paper's numbers; its rows that were not run wait below."""
    lines, rest = [], []
    for one in comparisons:
        paper, ours, difference, error = one.texts
        paper_cell = cell(paper, one.paper.mean if one.paper else None, class_="n")
        theirs = COUNTERPARTS[one.method] if one.method and one.paper else "–"
        if one.row is None or one.ours is None:
            rest.append([tag("th", theirs, scope="row"), cell(tag("code", one.method)), paper_cell])
            continue
        line = [row_head(one.row, names.index(one.row)), cell(theirs), numeric(one.n), paper_cell]
        line += [cell(ours, one.ours.mean, class_="n"), cell(difference, one.difference, class_="n")]
        line.append(cell(error, one.standard_error, class_="n"))
        lines.append([*line, cell(one.verdict, class_="miss" if one.misses else None)])
    heads = ["our method", "paper's row", "n", "paper", "ours", "difference", "standard error", "verdict"]
    arrow = ACCURACY_METRICS[PAPER_METRICS[name]].heading.partition(" ")[2]
    caption = f"{name.replace('final_', 'Final ')} {arrow} in percent, the paper's and ours"
    count = f"{len(rest)} more {'row' if len(rest) == 1 else 'rows'} of the paper, {NOT_RUN}"
    rest_heads = ["paper's row", "our name for it", "paper"]
    not_run = table(rest_heads, rest, caption="The paper's numbers, percent", sides="llr")
    return join(
        [
            tag("h4", metric(name)),
            table(heads, lines, caption=caption, sides="llrrrrrl") if lines else None,
            tag("details", tag("summary", count), not_run) if rest else None,
            *(tag("p", f"⚠ {warning}.", class_="note") for warning in find_warnings(comparisons)),
        ]
    )


def _block(anchor: str, where: Configuration, rows: list[ReportRow]) -> ReportBlock:
    ours = ComparisonBlock(where, {row.name: row.finished for row in rows if row.finished})
    return ReportBlock(anchor, str(where), rows, beside_paper(ours, [row.name for row in rows]))


def _row(name: str, runs: Sequence[Result]) -> ReportRow:
    runs = sorted(runs, key=lambda run: run.experiment.seed)
    return ReportRow(
        name, [run for run in runs if run.summary is not None], [run for run in runs if run.summary is None]
    )


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(", ".join(words).rsplit(", ", 1)) if len(words) < 4 else f"{len(words)} data sets"

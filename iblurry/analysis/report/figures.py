"""The figures of a report: those of `iblurry figure`, as SVG pictures inside the page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from iblurry.analysis.describe import display_name
from iblurry.analysis.figures.classes import class_accuracies, find_evaluations
from iblurry.analysis.figures.curves import draw_curves, draw_rates
from iblurry.analysis.figures.flops import draw_flops
from iblurry.analysis.figures.forgetting import draw_forgetting
from iblurry.analysis.report.html import Html, tag
from iblurry.analysis.report.report import ReportBlock
from iblurry.analysis.results import training_flops
from iblurry.experiment.journal import Evaluation, Query, Record
from iblurry.experiment.metrics import a_last
from iblurry.experiment.result import Result

Journals = dict[str, list[list[Record]]]  # by row, seed by seed


def draw_figures(block: ReportBlock) -> dict[str, Html]:
    """Draw what the runs of a configuration have to show, by heading."""
    lines = {name: runs for name, runs in _journals(block) if _share_a_point(runs)}
    found: dict[str, Html] = {}
    if lines:
        ends = [f"{name} {100 * np.mean([_last(run).accuracy for run in runs]):.1f} %" for name, runs in lines.items()]
        found["Accuracy while learning"] = _figure(
            lambda path: draw_curves({"": lines}, path, arrivals=True),
            f"Curves of accuracy to samples seen. Latest accuracy: {', '.join(ends)}.",
            "Accuracy on the classes seen so far: lines are means over seeds, bands ± one sample standard deviation. "
            "Ticks below: the first sample of a class. Open markers: accuracy after the end of a task, if it changed.",
        )
    if runs := _first_runs(block):
        lost = [
            f"{name} {100 * run.metrics.f_last:.1f}" for name, run in runs.items() if run.metrics.f_last is not None
        ]
        found["Class by class"] = _figure(
            lambda path: draw_forgetting({name: class_accuracies(run.records) for name, run in runs.items()}, path),
            "A map of accuracy by class and samples seen for each method, and the points each class lost. "
            + (f"Mean points lost: {', '.join(lost)}." if lost else "No points lost are defined."),
            "One run of each method. Each line is a class, in order of arrival; brighter means higher accuracy. "
            "Bars: points of accuracy lost since the best earlier end of a task, in the colour of the first task.",
        )
    rates = {name: runs for name, runs in lines.items() if any(_last(run).rate > 0 for run in runs)}
    if rates:
        found["Learning rate"] = _figure(
            lambda path: draw_rates({"": rates}, path),
            f"Curves of the learning rate to samples seen, of {', '.join(rates)}.",
            "The learning rate at each query: the line is the geometric mean over seeds, the band the range.",
        )
    points = {row.name: _spent(row.finished) for row in block.rows}
    if points := {name: pairs for name, pairs in points.items() if pairs}:
        means = [f"{name} {np.mean(pairs, axis=0)[0]:.3g} TFLOP" for name, pairs in points.items()]
        found["Accuracy and compute"] = _figure(
            lambda path: draw_flops({"": points}, path),
            f"Points of A_AUC against the operations of training: {', '.join(means)}.",
            "Means over seeds, bars ± one sample standard deviation. The line joins methods that no other one beats "
            "with as few operations.",
        )
    return found


def _figure(draw: Callable[[Path], None], text: str, caption: str) -> Html:
    """A picture that cannot mix its ids and styles with the page's; `text` is for those who do not see it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        draw(path)
        data = base64.b64encode(path.read_bytes()).decode()
    return tag("figure", tag("img", src=f"data:image/svg+xml;base64,{data}", alt=text), tag("figcaption", caption))


def _journals(block: ReportBlock) -> Iterator[tuple[str, list[list[Record]]]]:
    """Finished runs by row, and those under way as a row of their own."""
    for row in block.rows:
        for name, runs in ((row.name, row.finished), (f"{row.name} (unfinished)", row.unfinished)):
            asked = [run.records for run in runs if any(isinstance(record, Query) for record in run.records)]
            yield name, asked or [run.records for run in runs if a_last(run.records) is not None]


def _share_a_point(runs: list[list[Record]]) -> bool:
    points = [{record.at for record in find_evaluations(run)} for run in runs]
    return bool(points) and bool(set.intersection(*points))


def _last(run: list[Record]) -> Evaluation:
    return find_evaluations(run)[-1]


def _first_runs(block: ReportBlock) -> dict[str, Result]:
    """One run of each row: seeds meet classes in another order, so they cannot be laid upon each other."""
    found = {}
    for row in block.rows:
        if asked := [run for run in row.runs if find_evaluations(run.records)]:
            found[f"{display_name(row.name)}, seed {asked[0].experiment.seed}"] = asked[0]
    return found


def _spent(runs: list[Result]) -> list[tuple[float, float]]:
    """TFLOP of training and A_AUC (percent) of each run; nothing unless every one has both."""
    pairs = [(training_flops(run), run.metrics.a_auc) for run in runs]
    known = [(flops / 1e12, 100 * area) for flops, area in pairs if flops and area is not None]
    return known if len(known) == len(runs) else []

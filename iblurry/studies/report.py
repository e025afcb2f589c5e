"""The report of `iblurry report`: one HTML page of the runs in a folder, in one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from iblurry.analysis.describe import display_name, experiment_fields, format_setting, seed_ranges
from iblurry.analysis.figures.classes import draw_forgetting, find_evaluations
from iblurry.analysis.figures.curves import draw_curves, draw_rates
from iblurry.analysis.figures.metrics import draw_flops
from iblurry.analysis.results import find_runs
from iblurry.analysis.table import (
    ACCURACY_METRICS,
    PAPER_SEEDS,
    RULE,
    MeanStd,
    Table,
    find_warnings,
    format_value,
    tabulate_runs,
    training_tflops,
)
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, NewClass, Query, Record, Spent, Start, TaskEnd
from iblurry.experiment.metrics import a_last
from iblurry.experiment.result import Result, read_result
from iblurry.launch.progress import duration
from iblurry.studies.html import Html, cell, definitions, join, metric, numeric, table, tag
from iblurry.studies.paper import (
    COUNTERPARTS,
    NOT_RUN,
    PAPER_METRICS,
    ComparisonBlock,
    configuration_of,
    format_comparison,
    group_by_configuration,
    load_paper,
)
from iblurry.studies.study import SEEDS, Study
from iblurry.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TERMS = {
    "A_AUC ↑": "area under the curve of accuracy to samples: the mean accuracy over the whole stream.",
    "A_avg ↑": "mean accuracy at the ends of the tasks; – without task boundaries.",
    "A_last ↑": "accuracy at the end of the stream.",
    "F_last ↓": "how much the accuracy of each class fell from its best task end to the last, on average; – "
    "without task boundaries.",
    "±": "one sample standard deviation (n - 1) over n runs that differ only in their seed.",
    "bold": "the best mean of its column; this is not a test of significance.",
    "verdict": f"{RULE}. With fewer than {PAPER_SEEDS} seeds a verdict is provisional.",
}
COUNTED = "counted"  # where the page explains what is counted
PURPOSES = {  # of the journal's records: heading, and what is counted under it
    "training": ("batches", "batches to learn from, forwards and backwards; those of refits too (RM, GDumb, joint)."),
    "losses": ("memory's loss", "the loss of every row of the memory, if a method needs it (CLIB)."),
    "distillation": (
        "distillation",
        "a teacher's outputs for the batch (BiC). Its backward pass is counted under batches. Runs of "
        "an older version count it under other parts.",
    ),
    "parts": (
        "other parts",
        "candidates and a virtual step (MIR), reference gradients (A-GEM, GSS), a validation set at the end of a task "
        "(BiC).",
    ),
    "features": (
        "features",
        "samples whose features were computed by a frozen body; the other passes are of the head only.",
    ),
    "queries": ("queries", "test images, and what a method computes before it can predict them."),
}
HOLDINGS = {
    "memory": ("memory", "every row: its image, its label and what the method stores with it."),
    "stream": ("stream", "samples that wait until they are trained on."),
    "aside": ("set aside", "samples that a method holds outside the memory (BiC's validation set)."),
    "parts": ("other models", "what else a method keeps: a teacher (BiC), an anchor and Fisher values (EWC++)."),
    "network": ("network", "weights and statistics; twice if a second network answers."),
    "optimizer": ("optimizer", "two numbers per weight for Adam, one for SGD with momentum."),
}
COUNTS = {"forward": PURPOSES, "backward": PURPOSES, "flops": PURPOSES, "bytes": HOLDINGS}  # fields of Spent
SHORT = {"iblurry": "iblurry", "python": "Python", "torch": "PyTorch", "numpy": "NumPy"}
UNLIKE = ("order", "seconds")  # of an environment: belong to the run, not to the place
HASHES = {"data": 12, "order": 12}  # digits that tell enough


@dataclass(frozen=True)
class ReportBlock:
    """One configuration of stream and memory, with its runs by row in the order of their seeds."""

    id: str  # its anchor on the page
    about: str  # the configuration in words, the data set first
    rows: dict[str, list[Result]]
    paper: ComparisonBlock  # its finished runs beside the paper's numbers

    @property
    def runs(self) -> list[tuple[str, Result]]:
        """Every run with its row."""
        return [(row, run) for row, runs in self.rows.items() for run in runs]

    @property
    def finished(self) -> Mapping[str, Sequence[Result]]:
        """Finished runs by row, of rows that have any."""
        return self.paper.groups

    @cached_property
    def table(self) -> Table:
        """The accuracies of the finished runs, and A_AUC per TFLOP."""
        return tabulate_runs(self.finished, [*ACCURACY_METRICS, "per_compute"])

    def row_head(self, name: str) -> Html:
        """Make the first cell of a row, which is sorted by its place."""
        return tag("th", name, scope="row", data_value=[*self.rows].index(name))


@dataclass(frozen=True)
class Report:
    """Everything the page shows."""

    title: str
    folder: Path  # the page names run folders as they are inside it
    runs: list[Result]  # all of them, finished or not
    blocks: list[ReportBlock]  # the paper's configurations in its order, then others by name
    missing: list[list[Experiment]]  # what the study plans and nobody began, row by row
    study: Study | None = None

    @property
    def finished(self) -> int:
        """Number of finished runs."""
        return sum(run.summary is not None for run in self.runs)


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
        runs, missing = _select_study(study, runs)
    blocks = []
    for number, (where, groups) in enumerate(group_by_configuration(runs).items(), start=1):
        rows = {row: sorted(groups[row], key=lambda run: run.experiment.seed) for row in sorted(groups)}
        finished = {row: [run for run in some if run.summary is not None] for row, some in rows.items()}
        paper = ComparisonBlock(where, {row: some for row, some in finished.items() if some})
        blocks.append(ReportBlock(f"c{number}", str(where), rows, paper))
    if title is None:
        datasets = list(dict.fromkeys(configuration_of(run.experiment).dataset for run in runs))
        title = study.title if study else f"Continual learning on {_join_words(datasets)}"
    alike = [list(group) for _, group in groupby(missing, key=lambda planned: replace(planned, seed=0).digest)]
    return Report(title, place, runs, blocks, alike, study)


def render_page(report: Report, beside: Path | None = None) -> str:
    """Make the HTML page of what `report_data` returned; the same bytes for the same runs.

    Parameters
    ----------
    report : Report
        What the page shows.
    beside : Path, optional
        The folder that the page will lie in, for its links to the runs; by default that of the runs.
    """
    code = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()  # only it may run, whatever a label says
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="generator", content=f"iblurry {__version__}"),
        tag("title", report.title),
        tag("style", Html(_asset("report.css"))),
    ]
    made = f"Made by iblurry {__version__} from the runs' journals; no number is typed by hand. It needs no network."
    body = [
        tag("a", "Skip to the results", href="#main", class_="skip"),
        _header(report),
        tag(
            "main",
            *(_block(block, report.folder, beside or report.folder) for block in report.blocks),
            _missing(report),
            _reading(),
            _counting(report),
            id="main",
        ),
        tag("footer", tag("p", made)),
        tag("script", Html(code)),
    ]
    return f'<!doctype html>\n<html lang="en">\n<head>{join(head)}</head>\n<body>{join(body)}</body>\n</html>\n'


def _select_study(study: Study, runs: Sequence[Result]) -> tuple[list[Result], list[Experiment]]:
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


def _header(report: Report) -> Html:
    runs, study = report.runs, report.study
    methods = {run.experiment.method.name for run in runs}
    seeds = {run.experiment.seed for run in runs}
    devices = sorted({str(run.environment["device"]) for run in runs if "device" in run.environment})
    facts = {
        "runs finished": f"{report.finished} of {len(runs)}",
        "method" if len(methods) == 1 else "methods": str(len(methods)),
        "seeds" if len(seeds) > 1 else "seed": seed_ranges(seeds),
        "time spent": duration(sum(run.environment.get("seconds", 0) for run in runs)),
        "on": ", ".join("CPU" if name == "cpu" else name for name in devices) or "not recorded",
    }
    shows = f" ({', '.join(study.shows)} of the paper)" if study and study.shows else ""
    links = [tag("a", block.about, href=f"#{block.id}") for block in report.blocks]
    return tag(
        "header",
        tag("h1", report.title),
        tag("p", f"{study.question}{shows}", class_="lead") if study else None,
        definitions(facts, "cards"),
        tag("nav", *links, aria_label="Configurations") if len(links) > 1 else None,
    )


def _block(block: ReportBlock, folder: Path, beside: Path) -> Html:
    figures = draw_figures(block)
    parts: dict[str, Html | None] = {
        "Results": _results(block),
        "Not finished or missing": _unfinished(block),
        "Accuracy while learning": figures.get("Accuracy while learning"),
        "Compared with the paper": _beside_paper(block),
        "Class by class": join([figures.get("Class by class"), _by_class(block)]) or None,
        "Learning rate": figures.get("Learning rate"),
        "Compute and memory": join([figures.get("Accuracy and compute"), _compute(block)]) or None,
        "Settings": _settings(block),
        "Runs, versions, hardware": _runs(block, folder, beside),
    }
    shown = [
        tag("section", tag("h3", name, id=f"{block.id}-{re.sub('[^a-z0-9]', '-', name.lower())}"), content)
        for name, content in parts.items()
        if content is not None
    ]
    title, rest = block.about.split(", ", 1)
    return tag("section", tag("h2", title, tag("small", rest)), *shown, id=block.id, class_="block")


def _missing(report: Report) -> Html | None:
    """What a study plans and nobody began."""
    if not report.missing or report.study is None:
        return None
    items = [
        tag("li", tag("b", group[0].method.name), f", seed {seed_ranges({one.seed for one in group})}")
        for group in report.missing
    ]
    count, name = sum(map(len, report.missing)), report.study.name
    words = f"{count} experiments of the study {name} have not been started here; `iblurry study` runs them."
    return tag("section", tag("h2", "Missing from the study"), tag("p", words), tag("ul", *items), class_="block")


def _reading() -> Html:
    """What the words and signs mean, and where the paper's numbers come from."""
    shown = definitions({metric(name): text for name, text in TERMS.items()}, "terms")
    note = f"The paper: {load_paper()['paper']}. Its numbers: {load_paper()['units']}."
    return tag("section", tag("h2", "How to read this"), shown, tag("p", note, class_="note"), class_="block")


def _results(block: ReportBlock) -> Html:
    """Our numbers, row by row; a row without a finished run waits below."""
    waiting = ", ".join(row for row in block.rows if row not in block.finished)
    note = tag("p", f"No finished run yet: {waiting}.", class_="note") if waiting else None
    if not block.finished:
        return join([note])
    lines = [
        [
            block.row_head(row),
            numeric(len(runs)),
            *(
                _number(block.table.ours(row, "", name), is_best=block.table.cells.loc[(row, "", name), "best"])
                for name in ACCURACY_METRICS
            ),
        ]
        for row, runs in block.finished.items()
    ]
    heads = ["method", "n", *(metric(one.heading) for one in ACCURACY_METRICS.values())]
    caption = "Percent; mean ± sample standard deviation over n seeds"
    return join([table(heads, lines, caption=caption, sides="lrrrrr"), note])


def _number(number: MeanStd | None, *, is_best: bool = False) -> Html:
    """A cell with a mean and its deviation, such as 70.26 ± 1.28; a dash where there is no number."""
    text = format_value(number)
    return cell(tag("strong", text) if is_best else text, None if number is None else number.mean, class_="n")


def _beside_paper(block: ReportBlock) -> Html | None:
    """The paper's numbers and ours, one table per metric; None where it has none for this configuration."""
    found = block.paper.comparisons.groupby("metric", sort=False)
    return join([_compare(block, name, lines) for name, lines in found if lines["paper"].notna().any()]) or None


def _compare(block: ReportBlock, name: str, comparisons: DataFrame) -> Html:
    """Our runs with the paper's numbers; its rows that were not run wait below."""
    lines, rest = [], []
    for one in comparisons.itertuples():
        paper, ours, difference, error = format_comparison(one)
        paper_cell = cell(paper, one.paper.mean if one.paper else None, class_="n")
        theirs = COUNTERPARTS[one.method] if one.method and one.paper else "–"
        if one.row is None or one.ours is None:
            rest.append([tag("th", theirs, scope="row"), cell(tag("code", one.method)), paper_cell])
            continue
        line = [block.row_head(one.row), cell(theirs), numeric(one.n), paper_cell]
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
            *(tag("p", f"⚠ {warning}.", class_="note") for warning in find_warnings(comparisons["paper"])),
        ]
    )


def _settings(block: ReportBlock) -> Html:
    """Every field by the path that --set takes: what differs between the rows first."""
    fields = [experiment_fields(runs[0].experiment) for runs in block.rows.values()]
    paths = dict.fromkeys(path for own in fields for path in own)
    values = {path: [format_setting(own.get(path, "–")) for own in fields] for path in paths}
    differ = {path: found for path, found in values.items() if len(set(found)) > 1}
    parts: list[Html] = []
    if differ:
        lines = [[_path(path), *map(cell, found)] for path, found in differ.items()]
        parts.append(table(["field", *block.rows], lines, caption="What differs between the rows"))
    lines = [[_path(path), cell(found[0])] for path, found in values.items() if path not in differ]
    heading = f"{len(lines)} more: every field, the same in all rows" if differ else "every field"
    same = table(["field", "value"], lines, caption="In all")
    return join([*parts, tag("details", tag("summary", heading), same)])


def _path(path: str) -> Html:
    """Makes a heading of a path that may be folded after its dots and lines."""
    pieces = [part for piece in re.split("(?<=[._])", path) for part in (piece, tag("wbr"))]
    return tag("th", tag("code", *pieces), scope="row", data_value=path)


def _runs(block: ReportBlock, folder: Path, beside: Path) -> Html:
    """Each run: how far, how long, where; linked to its folder, whose experiment.json says how to run it again."""
    names = dict.fromkeys(name for _, run in block.runs for name in run.environment if name not in UNLIKE)
    noted = {name: {_noted(run, name) for _, run in block.runs} for name in names}
    facts = {SHORT.get(name, name): "".join(texts) or "none" for name, texts in noted.items() if len(texts) == 1}
    differ = [name for name, texts in noted.items() if len(texts) > 1]
    heads = ["method", "seed", "state", "samples", "updates", "seconds", "samples/s", *differ, "folder", "order"]
    lines = []
    for name, run in block.runs:
        samples, seconds = run.metrics.samples, run.environment.get("seconds")
        place = tag("code", run.folder.relative_to(folder).as_posix())
        link = Path(os.path.relpath(run.folder.resolve(), beside.resolve())).as_posix()
        line = [
            tag("th", name, scope="row"),
            numeric(run.experiment.seed),
            cell(_state(run), class_=None if run.summary is not None else "miss"),
            numeric(samples, ","),
            numeric(run.metrics.updates, ","),
            numeric(seconds, ",.0f"),
            numeric(samples / seconds if seconds else None, ",.0f"),
            *(cell(_noted(run, key)) for key in differ),
            cell(tag("a", place, href=f"{link}/")),
            cell(tag("code", _noted(run, "order"))),
        ]
        lines.append(line)
    shown = table(heads, lines, caption=f"{len(lines)} runs", sides="lrlrrrr")
    return join([definitions(facts, "facts"), shown])


def _noted(run: Result, name: str) -> str:
    return str(run.environment[name])[: HASHES.get(name)] if name in run.environment else "not recorded"


def _state(run: Result) -> str:
    if run.summary is None:
        return f"unfinished, {run.metrics.samples:,} of {_stream_length(run):,}" if run.records else "not started"
    return "finished" if run.stopped is None else f"stopped early at {run.stopped.at:,}: {run.stopped.reason}"


def _stream_length(run: Result) -> int:
    """Samples of its whole stream; 0 before it was begun."""
    return next((record.samples for record in run.records if isinstance(record, Start)), 0)


def _unfinished(block: ReportBlock) -> Html | None:
    """What is under way, and which seeds a row lacks that others have."""
    items = [_progress(row, run) for row, run in block.runs if run.summary is None]
    note = tag("p", "Unfinished runs continue where they stopped, by the command that began them.") if items else None
    seeds = {run.experiment.seed for _, run in block.runs}
    for row, runs in block.rows.items():
        if lacking := seed_ranges(seeds - {run.experiment.seed for run in runs}):
            items.append(tag("li", tag("b", row), f" has no run with seed {lacking}, but others have."))
    return join([tag("ul", *items, class_="going"), note]) if items else None


def _progress(row: str, run: Result) -> Html:
    label = f"{row}, seed {run.experiment.seed}"
    if not run.records:
        return tag("li", tag("b", label), " is not started.")
    samples, whole = run.metrics.samples, _stream_length(run)
    bar = tag("progress", value=samples, max=whole, aria_label=label)
    area = run.metrics.a_auc
    so_far = "" if area is None else f"; A_AUC {100 * area:.2f} so far"
    share = f"{samples:,} of {whole:,} samples ({100 * samples / whole:.0f} %){so_far}"
    return tag("li", tag("b", label), bar, tag("span", share))


def _by_class(block: ReportBlock) -> Html | None:
    """The numbers behind the last column of the maps."""
    rows = {row: _final_accuracies(runs) for row, runs in block.finished.items()}
    labels = sorted({label for found in rows.values() for label in found})
    if not labels:
        return None
    lines = [
        [tag("th", label, scope="row"), *(numeric(found.get(label), ".1f") for found in rows.values())]
        for label in labels
    ]
    caption = "Accuracy at the end in percent, mean over seeds"
    shown = table(["class", *rows], lines, caption=caption, sides="l" + "r" * len(rows))
    return tag("details", tag("summary", "The numbers at the end of the stream"), shown)


def _final_accuracies(runs: Sequence[Result]) -> dict[str, float]:
    """Accuracy (percent) of each class at the last task end, mean over runs."""
    found: dict[str, list[float]] = {}
    for run in runs:
        ends = [record for record in run.records if isinstance(record, TaskEnd)]
        labels = [record.label for record in run.records if isinstance(record, NewClass)]
        for last in ends[-1:]:  # a class met since has no answers yet
            for label, correct, total in zip(labels, last.correct, last.total, strict=False):
                if total:
                    found.setdefault(label, []).append(100 * correct / total)
    return {label: round(float(np.mean(values)), 2) for label, values in found.items()}


def mean_compute(runs: Sequence[Result]) -> Series[float] | None:
    """Average the last accounts of runs, by field of Spent and name; `updates`, too. None unless every run has one."""
    import pandas as pd

    accounts = [[record for record in run.records if isinstance(record, Spent)] for run in runs]
    if not accounts or not all(accounts):
        return None
    last = [found[-1] for found in accounts]
    counts = {  # older journals lack what was not counted apart yet: that is 0
        (field, name): np.mean([getattr(one, field).get(name, 0) for one in last])
        for field, names in COUNTS.items()
        for name in names
    }
    return pd.Series(counts | {("updates", ""): np.mean([one.updates for one in last])})


def _compute(block: ReportBlock) -> Html | None:
    """Operations, images and bytes, row by row; None where nothing was counted."""
    found = {row: mean_compute(runs) for row, runs in block.finished.items()}
    rows = {row: counts for row, counts in found.items() if counts is not None}
    if not rows:
        return None
    missing = ", ".join(row for row in found if row not in rows)
    purposes, holdings = ([heading for heading, _ in texts.values()] for texts in (PURPOSES, HOLDINGS))

    def show(caption: str, heads: list[str], cells: Callable[[str, Series[float]], list[Html]]) -> Html:
        lines = [[block.row_head(row), *cells(row, counts)] for row, counts in rows.items()]
        return table(["method", *heads], lines, caption=caption, sides="l" + "r" * len(heads))

    def operations(row: str, counts: Series[float]) -> list[Html]:
        area, flops = block.table.ours(row, "", "per_compute"), counts["flops"]
        spent = [flops.sum() - flops["queries"], *flops]
        return [numeric(None) if area is None else _amount(area.mean, 1), *(_amount(one, 1e12) for one in spent)]

    def images(row: str, counts: Series[float]) -> list[Html]:
        pairs = zip(counts["forward"], counts["backward"], strict=True)
        both = [cell(f"{out:,.0f} / {back:,.0f}" if out or back else "0", out, class_="n") for out, back in pairs]
        return [numeric(counts["updates", ""], ",.0f"), *both]

    def kept(row: str, counts: Series[float]) -> list[Html]:
        return [_amount(one, 1e6) for one in (counts["bytes"].sum(), *counts["bytes"])]

    about = (
        "All images that pass through a network in a whole run, by purpose, and all bytes that a method keeps "
        "between samples; means over seeds. "
    )
    older = f"Runs of an older version, which counted nothing: {missing}."
    return join(
        [
            tag("p", about, tag("a", "What is counted", href=f"#{COUNTED}")),
            show(
                "Operations of a whole run in TFLOP, 10¹² floating-point operations",
                [metric("A_AUC per TFLOP"), "training in all", *purposes],
                operations,
            ),
            show(
                "Images forward / backward through a network in a whole run, and the optimizer's updates",
                ["updates", *purposes],
                images,
            ),
            show("Kept between samples, in MB, 10⁶ bytes", ["in all", *holdings], kept),
            tag("p", older, class_="note") if missing else None,
        ]
    )


def _counting(report: Report) -> Html | None:
    """Explains the words in the tables of compute; None where there are none."""
    if all(mean_compute(runs) is None for block in report.blocks for runs in block.finished.values()):
        return None
    about = (
        "The forward pass of an image counts the multiplications and additions of convolutions and linear layers, "
        "each as one operation; a backward pass counts twice that. Batch norm, augmentation, the optimizer's "
        "arithmetic and BiC's two numbers per task are not counted, nor are empty rows while the memory fills. "
        f"The journal of a run calls the purposes {', '.join(PURPOSES)}, in this order."
    )
    images = dict(PURPOSES.values()) | {
        "training in all": "everything except queries; studies of equal compute make this equal.",
        "A_AUC per TFLOP": "A_AUC in percent, divided by the training operations in units of 10¹².",
    }
    return tag(
        "section",
        tag("h2", "What is counted"),
        tag("p", about),
        tag("h3", "Operations and images, by purpose"),
        definitions({metric(name): text for name, text in images.items()}, "terms wide"),
        tag("h3", "Bytes, by content"),
        definitions(dict(HOLDINGS.values()), "terms wide"),
        class_="block",
        id=COUNTED,
    )


def _amount(value: float, size: float) -> Html:
    """A cell in units of `size`, with three significant digits."""
    return cell(f"{float(f'{value / size:.3g}'):,g}", value, class_="n")


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
            lambda path: draw_forgetting({name: run.records for name, run in runs.items()}, path),
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
    points = {row: _spent(runs) for row, runs in block.finished.items()}
    if points := {row: pairs for row, pairs in points.items() if pairs}:
        means = [f"{row} {np.mean(pairs, axis=0)[0]:.3g} TFLOP" for row, pairs in points.items()]
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
    for row, runs in block.rows.items():
        for name, some in (
            (row, [run.records for run in runs if run.summary is not None]),
            (f"{row} (unfinished)", [run.records for run in runs if run.summary is None]),
        ):
            asked = [records for records in some if any(isinstance(record, Query) for record in records)]
            yield name, asked or [records for records in some if a_last(records) is not None]


def _share_a_point(runs: list[list[Record]]) -> bool:
    points = [{record.at for record in find_evaluations(run)} for run in runs]
    return bool(points) and bool(set.intersection(*points))


def _last(run: list[Record]) -> Evaluation:
    return find_evaluations(run)[-1]


def _first_runs(block: ReportBlock) -> dict[str, Result]:
    """One run of each row: seeds meet classes in another order, so they cannot be laid upon each other."""
    found = {}
    for row, runs in block.rows.items():
        order = sorted(runs, key=lambda run: run.summary is None)  # finished ones first
        if asked := [run for run in order if find_evaluations(run.records)]:
            found[f"{display_name(row)}, seed {asked[0].experiment.seed}"] = asked[0]
    return found


def _spent(runs: Sequence[Result]) -> list[tuple[float, float]]:
    """TFLOP of training and A_AUC (percent) of each run; nothing unless every one has both."""
    pairs = [(training_tflops(run), run.metrics.a_auc) for run in runs]
    known = [(tflops, 100 * area) for tflops, area in pairs if tflops and area is not None]
    return known if len(known) == len(runs) else []


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(", ".join(words).rsplit(", ", 1)) if len(words) < 4 else f"{len(words)} data sets"


def _asset(name: str) -> str:
    return resources.files("iblurry.studies").joinpath(name).read_text("utf-8")

"""The sections of the page: tables and texts of one configuration."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from iblurry.analysis.describe import experiment_fields, format_setting, is_bound, seed_ranges
from iblurry.analysis.report.html import Html, cell, definitions, join, metric, numeric, table, tag
from iblurry.analysis.report.report import ReportBlock, stream_length
from iblurry.analysis.results import results_frame
from iblurry.experiment.journal import NewClass, TaskEnd
from iblurry.experiment.result import Result

ACCURACIES = {"a_auc": "A_AUC ↑", "a_avg": "A_avg ↑", "a_last": "A_last ↑", "f_last": "F_last ↓"}
SHORT = {"iblurry": "iblurry", "python": "Python", "torch": "PyTorch", "numpy": "NumPy"}
UNLIKE = ("order", "seconds")  # of an environment: belong to the run, not to the place
HASHES = {"data": 12, "order": 12}  # digits that tell enough


def results(block: ReportBlock) -> Html:
    """Show our numbers, row by row; a row without a finished run waits below."""
    waiting = ", ".join(row.name for row in block.rows if not row.finished)
    note = tag("p", f"No finished run yet: {waiting}.", class_="note") if waiting else None
    rows = [row for row in block.rows if row.finished]
    if not rows:
        return join([note])
    frame = results_frame([run for row in rows for run in row.finished])
    frame["row"] = [row.name for row in rows for _ in row.finished]
    groups = frame.groupby("row")[[*ACCURACIES]]
    means, stds = (100 * groups.agg(how, skipna=False) for how in ("mean", "std"))  # of all seeds, or none
    contenders = means[[not is_bound(name) for name in means.index]].round(2)
    lines = []
    for row in rows:
        line = [block.row_head(row.name), numeric(len(row.finished))]
        for name in ACCURACIES:
            mean, std = means.loc[row.name, name], stds.loc[row.name, name]
            text = _mean_std(mean, std)
            best = contenders[name].min() if name == "f_last" else contenders[name].max()
            is_best = row.name in contenders.index and len(contenders[name].dropna()) > 1 and round(mean, 2) == best
            line.append(cell(tag("strong", text) if is_best else text, None if mean != mean else mean, class_="n"))
        lines.append(line)
    heads = ["method", "n", *map(metric, ACCURACIES.values())]
    caption = "Percent; mean ± sample standard deviation over n seeds"
    return join([table(heads, lines, caption=caption, sides="lrrrrr"), note])


def settings(block: ReportBlock) -> Html:
    """Show every field by the path that --set takes: what differs between the rows first."""
    differ, common = compare_settings(block)
    parts: list[Html] = []
    if differ:
        lines = [[_path(path), *map(cell, values)] for path, values in differ.items()]
        parts.append(table(["field", *block.names], lines, caption="What differs between the rows"))
    lines = [[_path(path), cell(value)] for path, value in common.items()]
    heading = f"{len(common)} more: every field, the same in all rows" if differ else "every field"
    same = table(["field", "value"], lines, caption="In all")
    return join([*parts, tag("details", tag("summary", heading), same)])


def compare_settings(block: ReportBlock) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Find the fields that differ, each with its value in every row, and those that all rows share."""
    tables = [experiment_fields(row.experiments[0]) for row in block.rows]
    paths = dict.fromkeys(path for fields in tables for path in fields)
    values = {path: [format_setting(fields.get(path, "–")) for fields in tables] for path in paths}
    differ = {path: found for path, found in values.items() if len(set(found)) > 1}
    return differ, {path: found[0] for path, found in values.items() if path not in differ}


def runs(block: ReportBlock, folder: Path, beside: Path) -> Html:
    """Show each run: how far, how long, where; linked to its folder, whose experiment.json says how to run it again."""
    same, differ = compare_environments(block)
    facts = {SHORT.get(name, name): text or "none" for name, text in same.items()}
    heads = ["method", "seed", "state", "samples", "updates", "seconds", "samples/s", *differ, "folder", "order"]
    lines = []
    for name, run in [(row.name, run) for row in block.rows for run in row.runs]:
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


def compare_environments(block: ReportBlock) -> tuple[dict[str, str], list[str]]:
    """Find versions and hardware that are the same for all runs, and the names of those that are not."""
    names = dict.fromkeys(name for run in block.runs for name in run.environment if name not in UNLIKE)
    noted = {name: {_noted(run, name) for run in block.runs} for name in names}
    same = {name: found.pop() for name, found in noted.items() if len(found) == 1}
    return same, [name for name in names if name not in same]


def unfinished(block: ReportBlock) -> Html | None:
    """Show what is under way, and which seeds a row lacks that others have."""
    items = [_progress(row.name, run) for row in block.rows for run in row.unfinished]
    for row in block.rows:
        if seeds := seed_ranges(block.lacking_seeds(row)):
            items.append(tag("li", tag("b", row.name), f" has no run with seed {seeds}, but others have."))
    if not items:
        return None
    note = "Unfinished runs continue where they stopped, by the command that began them."
    is_begun = any(row.unfinished for row in block.rows)
    return join([tag("ul", *items, class_="going"), tag("p", note) if is_begun else None])


def by_class(block: ReportBlock) -> Html | None:
    """Show the numbers behind the last column of the maps."""
    rows = final_accuracies(block)
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


def final_accuracies(block: ReportBlock) -> dict[str, dict[str, float]]:
    """Average accuracy (percent) at the last evaluation of finished runs over seeds, by row and class."""
    rows = {}
    for row in (row for row in block.rows if row.finished):
        found: dict[str, list[float]] = {}
        for run in row.finished:
            ends = [record for record in run.records if isinstance(record, TaskEnd)]
            labels = [record.label for record in run.records if isinstance(record, NewClass)]
            for last in ends[-1:]:  # a class met since has no answers yet
                for label, correct, total in zip(labels, last.correct, last.total, strict=False):
                    if total:
                        found.setdefault(label, []).append(100 * correct / total)
        rows[row.name] = {label: round(float(np.mean(values)), 2) for label, values in found.items()}
    return rows


def _mean_std(mean: float, std: float) -> str:
    """Writes mean and deviation, such as 70.26 ± 1.28; a dash where there is no number."""
    return "–" if mean != mean else f"{mean:z.2f}" + (f" ± {std:.2f}" if std == std else "")


def _path(path: str) -> Html:
    """Makes a heading of a path that may be folded after its dots and lines."""
    pieces = [part for piece in re.split("(?<=[._])", path) for part in (piece, tag("wbr"))]
    return tag("th", tag("code", *pieces), scope="row", data_value=path)


def _noted(run: Result, name: str) -> str:
    return str(run.environment[name])[: HASHES.get(name)] if name in run.environment else "not recorded"


def _state(run: Result) -> str:
    if run.summary is None:
        return f"unfinished, {run.metrics.samples:,} of {stream_length(run):,}" if run.records else "not started"
    return "finished" if run.stopped is None else f"stopped early at {run.stopped.at:,}: {run.stopped.reason}"


def _progress(row: str, run: Result) -> Html:
    label = f"{row}, seed {run.experiment.seed}"
    if not run.records:
        return tag("li", tag("b", label), " is not started.")
    samples, whole = run.metrics.samples, stream_length(run)
    bar = tag("progress", value=samples, max=whole, aria_label=label)
    area = run.metrics.a_auc
    so_far = "" if area is None else f"; A_AUC {100 * area:.2f} so far"
    share = f"{samples:,} of {whole:,} samples ({100 * samples / whole:.0f} %){so_far}"
    return tag("li", tag("b", label), bar, tag("span", share))

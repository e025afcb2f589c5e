"""The sections of the page: tables and texts of one configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from iblurry.analysis.describe import describe_command, experiment_fields, format_setting, run_command
from iblurry.analysis.formats import describe_seeds
from iblurry.analysis.metrics import ACCURACY_METRICS, format_value
from iblurry.experiment.result import Result
from iblurry.studies.compare import NOT_RUN, Comparison, find_warnings
from iblurry.studies.paper import COUNTERPARTS, PAPER_METRICS
from iblurry.studies.report.charts import final_accuracies
from iblurry.studies.report.data import ReportBlock, stream_length
from iblurry.studies.report.html import Html, cell, definitions, dots, join, metric, numeric, table, tabs, tag

SHORT = {"iblurry": "iblurry", "python": "Python", "torch": "PyTorch", "numpy": "NumPy"}
UNLIKE = ("order", "seconds")  # of an environment: belong to the run, not to the place
HASHES = {"data": 12, "order": 12}  # digits that tell enough


def results(block: ReportBlock) -> Html:
    """Our numbers, row by row; a row without a finished run waits below."""
    ours = block.finished.table
    waiting = ", ".join(row.name for row in block.rows if not row.finished)
    note = tag("p", f"No finished run yet: {waiting}.", class_="note") if waiting else None
    if not ours.rows:
        return join([note])
    lines = []
    for name in ours.rows:
        line = [row_head(block, name), numeric(len(block.finished.groups[name]))]
        for key in ACCURACY_METRICS:
            text, found = format_value(ours.ours(name, "", key)), ours.ours(name, "", key)
            is_best = ours.cells.loc[(name, "", key), "best"]
            line.append(cell(tag("strong", text) if is_best else text, found.mean if found else None, class_="n"))
        lines.append(line)
    heads = ["method", "n", *(metric(shown.heading) for shown in ACCURACY_METRICS.values())]
    return join([_headline(block), table(heads, lines, caption=describe_seeds(ours), sides="lrrrrr"), note])


def beside_paper(block: ReportBlock) -> Html | None:
    """The paper's numbers and ours, one table per metric; None where it has none for this configuration."""
    shown = {
        name: _comparisons(block, name, found)
        for name, found in block.finished.comparisons.items()
        if any(one.paper for one in found)
    }
    return tabs("Metric", shown) if shown else None


def settings(block: ReportBlock) -> Html:
    """Every field by the path that --set takes: what differs between the rows first."""
    differ, common = compare_settings(block)
    parts: list[Html] = []
    if differ:
        lines = [[_path(path), *map(cell, values)] for path, values in differ.items()]
        heads = ["field", *(named(block, name) for name in block.names)]
        parts.append(table(heads, lines, caption="What differs between the rows"))
    lines = [[_path(path), cell(value)] for path, value in common.items()]
    heading = f"{len(common)} more: every field, the same in all rows" if differ else "every field"
    same = table(["field", "value"], lines, caption="In all")
    return join([*parts, tag("details", tag("summary", heading), same)])


def compare_settings(block: ReportBlock) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The fields that differ, each with its value in every row, and those that all rows share."""
    tables = [experiment_fields(row.experiments[0]) for row in block.rows]
    paths = dict.fromkeys(path for fields in tables for path in fields)
    values = {path: [format_setting(fields.get(path, "–")) for fields in tables] for path in paths}
    differ = {path: found for path, found in values.items() if len(set(found)) > 1}
    return differ, {path: found[0] for path, found in values.items() if path not in differ}


def runs(block: ReportBlock, folder: Path) -> Html:
    """Each run: how far, how long, where."""
    same, differ = compare_environments(block)
    facts = {SHORT.get(name, name): text or "none" for name, text in same.items()}
    heads = ["method", "seed", "state", "samples", "updates", "seconds", "samples/s", *differ, "folder", "order"]
    lines = [_run(block, row.name, run, differ, folder) for row in block.rows for run in row.runs]
    shown = table(heads, lines, caption=f"{len(lines)} runs", sides="lrlrrrr")
    return join([definitions(facts, "facts"), shown])


def compare_environments(block: ReportBlock) -> tuple[dict[str, str], list[str]]:
    """Versions and hardware: what is the same for all runs, and the names of what is not."""
    names = dict.fromkeys(name for run in block.runs for name in run.environment if name not in UNLIKE)
    noted = {name: {_noted(run, name) for run in block.runs} for name in names}
    same = {name: found.pop() for name, found in noted.items() if len(found) == 1}
    return same, [name for name in names if name not in same]


def commands(block: ReportBlock) -> Html:
    """How to run it again."""
    return copied(describe_command(row.name, row.experiments) for row in block.rows)


def unfinished(block: ReportBlock) -> Html | None:
    """What is under way, and which seeds a row lacks that others have."""
    items = [_progress(row.name, run) for row in block.rows for run in row.unfinished]
    for row in block.rows:
        if seeds := ", ".join(map(str, block.lacking_seeds(row))):
            items.append(tag("li", tag("b", row.name), f" has no run with seed {seeds}, but others have."))
    if not items:
        return None
    note = tag("p", "Unfinished runs continue where they stopped; finished runs are not run again:")
    todo = commands_left(block)
    return join([tag("ul", *items, class_="going"), join([note, copied(todo)]) if todo else None])


def commands_left(block: ReportBlock) -> list[str]:
    """What finishes the rows, with the seeds that they lack; nothing for what only Python can build."""
    found = []
    for row in block.rows:
        lacking = [replace(row.experiments[0], seed=seed) for seed in block.lacking_seeds(row)]
        if lacking or row.unfinished:
            found.append(run_command([*row.experiments, *lacking]))
    return [command for command in found if command]


def by_class(block: ReportBlock) -> Html | None:
    """The numbers behind the last column of the maps."""
    rows = final_accuracies(block)
    labels = sorted({label for found in rows.values() for label in found})
    if not labels:
        return None
    lines = [
        [tag("th", label, scope="row"), *(numeric(found.get(label), ".1f") for found in rows.values())]
        for label in labels
    ]
    heads = ["class", *(named(block, name) for name in rows)]
    caption = "Accuracy at the end in percent, mean over seeds"
    shown = table(heads, lines, caption=caption, sides="l" + "r" * len(rows))
    return tag("details", tag("summary", "The numbers at the end of the stream"), shown)


def named(block: ReportBlock, name: str) -> Html:
    """A row's name with its mark in the charts."""
    mark = tag("i", class_=f"key {_style(block, name)}", aria_hidden="true")
    return tag("span", mark, tag("span", name), class_="named")


def row_head(block: ReportBlock, name: str) -> Html:
    """The first cell of a row, which is sorted by its place."""
    return tag("th", named(block, name), scope="row", data_value=block.names.index(name))


def copied(lines: Iterable[str]) -> Html:
    """Commands, with a button that copies them."""
    code = tag("pre", tag("code", "\n".join(lines)), tabindex=0)
    return tag("div", code, tag("button", "Copy", type="button", class_="copy"), class_="commands")


def _headline(block: ReportBlock) -> Html | None:
    """Which row is best at any time, and by how much."""
    table = block.finished.table
    found = [(row, ours) for row in table.rows if (ours := table.ours(row, "", "a_auc"))]
    known = sorted(found, key=lambda pair: -pair[1].mean)
    if len(known) < 2:
        return None
    (best, first), (next_best, second) = known[:2]
    apart = first.mean - second.mean
    words = "."  # a single seed has no spread to compare with
    if first.std is not None and second.std is not None:
        further = "not more" if apart <= first.std + second.std else "more"
        words = f", {further} than the sum of both standard deviations."
    return tag(
        "p",
        *("Best at any time: ", tag("strong", best), ", ", metric("A_AUC"), " "),
        f"{format_value(first)}. The next, {next_best}, is {apart:.2f} points lower{words}",
    )


def _comparisons(block: ReportBlock, name: str, comparisons: Sequence[Comparison]) -> Html:
    """Our runs with the paper's numbers; its rows that were not run wait below."""
    numbers = [number for one in comparisons for number in (one.paper, one.ours) if number]
    low = min(number.mean - (number.std or 0) for number in numbers)
    high = max(number.mean + (number.std or 0) for number in numbers)
    lines, rest = [], []
    for one in comparisons:
        paper, ours, difference, error = one.texts
        paper_cell = cell(paper, one.paper.mean if one.paper else None, class_="n")
        theirs = COUNTERPARTS[one.method] if one.method and one.paper else "–"
        if one.row is None or one.ours is None:
            rest.append([tag("th", theirs, scope="row"), cell(tag("code", one.method)), paper_cell])
            continue
        line = [row_head(block, one.row), cell(theirs), numeric(one.n), paper_cell]
        line += [cell(ours, one.ours.mean, class_="n"), cell(difference, one.difference, class_="n")]
        line.append(cell(error, one.standard_error, class_="n"))
        line.append(cell(dots(one.paper, one.ours, low, high, style=_style(block, one.row)), class_="dots"))
        lines.append([*line, cell(one.verdict, class_="miss" if one.misses else None)])
    heads = ["our method", "paper's row", "n", "paper", "ours", "difference", "standard error"]
    heads += ["◇ paper  ● ours", "verdict"]
    arrow = ACCURACY_METRICS[PAPER_METRICS[name]].heading.partition(" ")[2]
    caption = f"{name.replace('final_', 'Final ')} {arrow} in percent, the paper's and ours"
    count = f"{len(rest)} more {'row' if len(rest) == 1 else 'rows'} of the paper, {NOT_RUN}"
    rest_heads = ["paper's row", "our name for it", "paper"]
    not_run = table(rest_heads, rest, caption="The paper's numbers, percent", sides="llr")
    return join(
        [
            table(heads, lines, caption=caption, sides="llrrrrrll") if lines else None,
            tag("details", tag("summary", count), not_run) if rest else None,
            *(tag("p", f"⚠ {warning}.", class_="note") for warning in find_warnings(comparisons)),
        ]
    )


def _style(block: ReportBlock, name: str) -> str:
    """Classes of the style sheet: its colour and its kind of line."""
    style = block.styles[name]
    return f"c{style.colour_number} d{style.line_number}"


def _path(path: str) -> Html:
    """It may be folded after its dots and lines."""
    pieces = [part for piece in re.split("(?<=[._])", path) for part in (piece, tag("wbr"))]
    return tag("th", tag("code", *pieces), scope="row", data_value=path)


def _noted(run: Result, name: str) -> str:
    return str(run.environment[name])[: HASHES.get(name)] if name in run.environment else "not recorded"


def _run(block: ReportBlock, name: str, run: Result, differ: Sequence[str], folder: Path) -> list[Html]:
    samples, seconds = run.metrics.samples, run.environment.get("seconds")
    state = "finished" if run.stopped is None else f"stopped early at {run.stopped.at:,}: {run.stopped.reason}"
    if run.summary is None:
        state = f"unfinished, {samples:,} of {stream_length(run):,}" if run.records else "not started"
    return [
        tag("th", named(block, name), scope="row"),
        numeric(run.experiment.seed),
        cell(state, class_=None if run.summary is not None else "miss"),
        numeric(samples, ","),
        numeric(run.metrics.updates, ","),
        numeric(seconds, ",.0f"),
        numeric(samples / seconds if seconds else None, ",.0f"),
        *(cell(_noted(run, key)) for key in differ),
        cell(tag("code", run.folder.relative_to(folder).as_posix())),
        cell(tag("code", _noted(run, "order"))),
    ]


def _progress(row: str, run: Result) -> Html:
    label = f"{row}, seed {run.experiment.seed}"
    if not run.records:
        return tag("li", tag("b", label), " is not started.")
    samples, whole = run.metrics.samples, stream_length(run)
    bar = tag("progress", value=samples, max=whole, aria_label=label)
    known = {name: one.value(run) for name, one in ACCURACY_METRICS.items()}
    numbers = [
        part
        for name, value in known.items()
        if value is not None
        for part in ("; ", metric(ACCURACY_METRICS[name].heading), f" {value:.2f}")
    ]
    share = f"{samples:,} of {whole:,} samples ({100 * samples / whole:.0f} %)"
    return tag("li", tag("b", label), bar, tag("span", share, " so far" if numbers else None, *numbers))

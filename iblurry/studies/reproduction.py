"""The page that sets our runs beside the paper's tables: a pure function of collected results and its numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from iblurry.files import replacing
from iblurry.studies.collect import CollectedRun
from iblurry.studies.compare import MAIN, NOT_RUN, SEEDS, TARGETS, Comparison, ComparisonBlock
from iblurry.studies.describe import make_slug, run_command
from iblurry.studies.figures.curves import draw_curves
from iblurry.studies.paper import (
    COUNTERPARTS,
    Configuration,
    load_paper,
    paper_configurations,
    paper_number,
    paper_rows,
)
from iblurry.studies.tables.layout import format_value
from iblurry.studies.tables.text import markdown_grid, runs_to_markdown

HEADINGS = {
    "A_AUC": "A_AUC",
    "A_avg": "A_avg",
    "F_last": "F_last (less is better)",
    "final_accuracy": "Final accuracy of joint training",
}


def reproduction_page(
    blocks: Sequence[ComparisonBlock], *, notes: str | None = None, stem: str = "reproduction"
) -> str:
    """The whole page in Markdown; `notes` are written by people and included as they are."""
    sections = [_head(), *(_block(block, stem) for block in blocks), _notes(blocks, notes), _rest(blocks), _text()]
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


def draw_blocks(blocks: Sequence[ComparisonBlock], folder: Path, *, stem: str = "reproduction") -> list[Path]:
    """The figure of each configuration that has runs, where the page beside `folder` looks for it."""
    drawn = []
    for block in (block for block in blocks if block.groups):
        path = folder / figure_name(block.configuration, stem)
        runs = {name: [run.result.records for run in group] for name, group in block.groups.items()}
        with replacing(path) as part:
            groups = {textwrap.fill(name, 80): run for name, run in runs.items()}
            draw_curves({"": groups}, part, title=str(block.configuration))
        drawn.append(path)
    return drawn


def figure_name(where: Configuration, stem: str) -> str:
    """The name of a configuration's figure; the plain one for that of Table 1."""
    first = next((one for one in paper_configurations() if one.dataset == where.dataset), None)
    rest = "" if where == first else f"-n{where.disjoint:g}-m{where.blur:g}-k{where.memory}-t{where.tasks}"
    return f"{stem}-{make_slug(where.dataset)}{rest}.png"


def _head() -> str:
    targets = ", ".join(f"{points:g} points for {COUNTERPARTS[name]}" for name, points in TARGETS.items())
    made = """
        Made by `iblurry reproduction` from the journals under `results/` and from the numbers of the paper's tables; it
        needs no GPU. Nothing here is typed by hand but the notes, which come from a file of their own."""
    paper = load_paper()
    numbers = f"""
        The paper: {paper["paper"]}. Its numbers: {paper["units"]}. Ours: percent, mean ± sample standard deviation
        (n - 1) over n seeds; the commands of the runs stand below."""
    verdict = f"""
        **Verdict.** The project set itself targets for A_AUC and A_avg on {MAIN}: {targets}. *Within* such a number:
        the two means are no further apart. *Within the spreads*: no further apart than the paper's spread and ours
        together; *beyond* says that a target was missed nevertheless. Otherwise *above* or *below* the paper. Three
        seeds bound a mean loosely, so within the spreads is no proof of being equal; with fewer than {SEEDS} a verdict
        is *provisional*. Numbers of the paper that are probably copy errors are shown (⚠) and not judged. A run is set
        beside the paper's only if every field of its method and its settings is the usual one."""
    paragraphs = [textwrap.fill(" ".join(text.split()), 120) for text in (made, numbers, verdict)]
    return "\n\n".join(["# The paper's tables, run again", *paragraphs])


def _block(block: ComparisonBlock, stem: str) -> str:
    parts = [f"## {block.configuration}"]
    if not block.groups:
        parts.append("No run has been collected for this configuration yet.")
    for metric, comparisons in block.comparisons.items():
        if comparisons:
            parts += [f"### {HEADINGS[metric]}", _table(comparisons)]
    if block.groups:
        image = f"images/{figure_name(block.configuration, stem)}"
        parts += ["### Curves", f"![Accuracy to samples seen, {block.configuration}]({image})"]
        parts += ["### All numbers of our runs", runs_to_markdown(block.table).strip()]
        parts += ["### The runs", _runs(block)]
    return "\n\n".join(parts)


def _table(comparisons: Sequence[Comparison]) -> str:
    lines = [
        [
            COUNTERPARTS[one.method] if one.method else "–",
            f"`{one.row or one.method}`",
            str(one.n) if one.n else "–",
            format_value(one.paper) + (" ⚠" if one.paper and one.paper.warning else ""),
            format_value(one.ours),
            "–" if one.difference is None else f"{one.difference:+z.2f}",
            one.verdict,
        ]
        for one in comparisons
    ]
    warnings = dict.fromkeys(one.paper.warning for one in comparisons if one.paper and one.paper.warning)
    table = markdown_grid(
        ["paper's row", "our method", "n", "paper", "ours", "difference", "verdict"], lines, sides="llrrrrl"
    )
    return "\n\n".join([table, *(f"⚠ {warning}." for warning in warnings)])


def _runs(block: ComparisonBlock) -> str:
    lines, commands = [], []
    for name, runs in block.groups.items():
        seconds = [run.environment["seconds"] for run in runs]
        seeds = ", ".join(map(str, sorted(run.result.experiment.seed for run in runs)))
        spent = f"{sum(seconds) / len(seconds):,.0f}" + (
            f" ({min(seconds):,.0f} to {max(seconds):,.0f})" * (len(runs) > 1)
        )
        where = [_device(runs), _all(runs, "precision"), _all(runs, "machine"), _versions(runs)]
        lines.append([f"`{name}`", seeds, spent, *where])
        commands.append(
            run_command([run.result.experiment for run in runs])
            or f"# {name} was built in Python: experiment.json of its runs has every field"
        )
    table = markdown_grid(
        ["row", "seeds", "seconds a run", "device", "precision", "machine", "versions"], lines, sides="llrllll"
    )
    return f"{table}\n\n```console\n" + "\n".join(commands) + "\n```"


def _device(runs: Sequence[CollectedRun]) -> str:
    """Of each kind which: a GPU has a name of its own."""
    names = {run.environment["device"] for run in runs}
    return " / ".join(sorted("CPU" if name == "cpu" else f"GPU: {name}" for name in names))


def _versions(runs: Sequence[CollectedRun]) -> str:
    return ", ".join(f"{name} {_all(runs, name)}" for name in ("iblurry", "torch", "numpy", "python"))


def _all(runs: Sequence[CollectedRun], name: str) -> str:
    """What was noted of all of them; what an older run did not note is not guessed."""
    return " / ".join(sorted({str(run.environment.get(name, "not noted")) for run in runs}))


def _notes(blocks: Sequence[ComparisonBlock], notes: str | None) -> str:
    misses = [
        f"- {block.configuration}: `{one.row}`, {metric} {one.difference:+z.2f}, {one.verdict}"
        for block in blocks
        for metric, comparisons in block.comparisons.items()
        for one in comparisons
        if one.misses
    ]
    heading = "## What differs, and why"
    if misses:
        heading += "\n\nThe misses, all of them:\n\n" + "\n".join(misses)
        notes = notes or "No reason has been written down yet."
    return f"{heading}\n\n{notes.strip()}" if notes else ""


def _rest(blocks: Sequence[ComparisonBlock]) -> str:
    """Rows of the paper without a run, outside the configurations shown."""
    shown = [block.configuration for block in blocks]
    lines = []
    for where in paper_configurations():
        methods = paper_rows(where)
        if where not in shown:
            tables = sorted({table for method in methods for table in _tables(method, where)})
            rows = "; ".join(COUNTERPARTS[method] for method in methods)
            lines.append([str(where), ", ".join(map(str, tables)), rows, NOT_RUN])
    return "## The rest of the tables\n\n" + markdown_grid(["configuration", "tables", "rows", ""], lines, sides="llll")


def _tables(method: str, where: Configuration) -> Iterable[int]:
    numbers = [paper_number(method, metric, where) for metric in HEADINGS]
    return (table for number in numbers if number for table in number.tables)


def _text() -> str:
    lines = [[one["claim"], one["table"]] for one in load_paper()["contradictions"]]
    table = markdown_grid(["the paper's text", "its tables"], lines, sides="ll")
    return f"## Where the paper's text and its tables disagree\n\nThe tables are what we compare with.\n\n{table}"

"""A study as a page of Markdown: its question, figures, table and the commands behind it, from finished runs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from iblurry.analysis.describe import run_command
from iblurry.analysis.figures.draw import draw_study
from iblurry.analysis.formats import markdown_notes, to_markdown, to_ranking
from iblurry.analysis.significance import PairedComparison
from iblurry.storage.files import replacing
from iblurry.studies.table import StudyTable

FIGURES = {  # kinds, and what each shows
    "curves": "Accuracy to samples seen",
    "flops": "{metric} against what training computes",
}


def write_page(table: StudyTable, path: Path, pairs: Sequence[PairedComparison] | None = None) -> list[Path]:
    """Write the page of a study, and its figures into a folder `images` beside it; returns all files."""
    figures = {kind: path.parent / "images" / f"{path.stem}-{kind}.png" for kind in FIGURES}
    for kind, place in figures.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as part:
            draw_study(table, kind, part)
    with replacing(path) as part:
        part.write_text(study_page(table, figures, pairs), "utf-8")
    return [path, *figures.values()]


def study_page(table: StudyTable, figures: Mapping[str, Path], pairs: Sequence[PairedComparison] | None = None) -> str:
    """The page of a study; `figures`, by kind, lie in the folder `images` beside it; of `pairs`, the first metric's."""
    shown = [
        f"![{FIGURES[kind].format(metric=table.metrics[0].heading)}](images/{place.name})"
        for kind, place in figures.items()
    ]
    commands = [run_command([run.experiment for run in runs.values()]) for runs in table.runs.values() if runs]
    rankings = []
    for column in table.columns:
        if table.by_seed(column, table.metrics[0].name):
            rankings += [f"## {column.capitalize() or table.metrics[0].heading}", to_ranking(table, column)]
    by_first = None if pairs is None else [pair for pair in pairs if pair.metric == table.metrics[0].name]
    below = [to_markdown(table, by_first).strip()] if table.has_paper else markdown_notes(table, by_first)
    parts = [
        f"# {table.study.title}",
        f"{table.study.question} Here: {table.settings}.",
        f"Made by `iblurry table {table.study.name} --page` from finished runs; nothing is typed by hand.",
        *shown,
        *rankings,
        *below,
        "### The runs",
        "\n".join(["```console", *dict.fromkeys(commands), "```"]),
    ]
    return "\n\n".join(parts) + "\n"

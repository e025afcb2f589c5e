"""A study's table as text: for the terminal, a page, a paper, a spreadsheet or a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iblurry.studies.formats.data import to_csv, to_json
from iblurry.studies.formats.latex import to_latex
from iblurry.studies.formats.markdown import to_markdown
from iblurry.studies.formats.terminal import to_terminal
from iblurry.studies.significance import Pair
from iblurry.studies.table import StudyTable

Format = Callable[[StudyTable, Sequence[Pair] | None], str]  # without pairs: they were not asked for
FORMATS: dict[str, Format] = {
    "terminal": to_terminal,
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}

"""Tables: what they hold, and as text for the terminal, a page, a paper, a spreadsheet or a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from iblurry.studies.significance import PairedComparison
from iblurry.studies.tables.data import to_csv, to_json
from iblurry.studies.tables.latex import to_latex
from iblurry.studies.tables.table import StudyTable
from iblurry.studies.tables.text import to_markdown, to_terminal

FORMATS: dict[str, Callable[[StudyTable, Sequence[PairedComparison] | None], str]] = {  # None: no pairs were asked for
    "terminal": to_terminal,
    "text": partial(to_terminal, bold=False),
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}

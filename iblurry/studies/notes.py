"""Why numbers of ours differ from the paper's: notes that people write into results/<data set>/notes.toml."""

from __future__ import annotations

import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path

from iblurry.errors import DataError, UnknownNameError
from iblurry.studies.paper import PAPER_METRICS, Configuration

FILE = "notes.toml"


@dataclass(frozen=True, kw_only=True)
class Note:
    """Why some numbers of a data set differ from the paper's, a [[note]] of the file.

    Parameters
    ----------
    dataset : str
        The folder that the file is in.
    methods : list of str
        Rows, as the page names them.
    metrics : list of str
        The paper's names of metrics.
    text : str
        The reason, in Markdown.
    tested : bool
        Whether an experiment has confirmed it; if not, the difference stays open.
    stream : str
        The only stream that it is about, such as "i-Blurry-50-10"; "" is all.
    """

    dataset: str
    methods: list[str]
    metrics: list[str]
    text: str
    tested: bool = False
    stream: str = ""

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if metric not in PAPER_METRICS:
                raise UnknownNameError("metric of the paper", metric, PAPER_METRICS)

    def __str__(self) -> str:
        where = ", ".join(filter(None, [self.dataset, self.stream]))
        head = f"- **{', '.join(f'`{one}`' for one in self.methods)} in {', '.join(self.metrics)} on {where}: "
        text = " ".join(f"{head}{'tested' if self.tested else 'open'}.** {self.text}".split())
        return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)

    def explains(self, row: str, metric: str, configuration: Configuration) -> bool:
        """Whether it is the tested reason for a number."""
        where = f"{configuration.column},".startswith(", ".join(filter(None, [self.dataset, self.stream])) + ",")
        return self.tested and where and row in self.methods and metric in self.metrics


def read_notes(results: Path) -> list[Note]:
    """All notes under results/, by data set; DataError names the file that has one without a meaning."""
    notes = []
    for path in sorted(results.glob(f"*/{FILE}")):
        try:
            notes += [Note(dataset=path.parent.name, **one) for one in tomllib.loads(path.read_text("utf-8"))["note"]]
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, UnknownNameError) as error:
            raise DataError(
                f"{path}: {error}. Write [[note]] with methods, metrics, text, and tested = true where an experiment "
                "has confirmed it."
            ) from error
    return notes

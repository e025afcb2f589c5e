"""Tested reasons for differences from the paper, as people write them into the notes beside the page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from iblurry.errors import InputError, UnknownNameError
from iblurry.studies.paper import PAPER_METRICS, Configuration

START = "**Why "  # of an item that gives a reason; other items are notes
NAMES = r"`[^`]+`(?:, `[^`]+`)*"
METRICS = r"\w+(?:, \w+)*"
HEAD = re.compile(rf"\*\*Why (?P<rows>{NAMES}) differs?(?: in (?P<metrics>{METRICS}))?(?: on (?P<where>[^*]+))?\.\*\*")


@dataclass(frozen=True)
class Reason:
    """What a reason is for."""

    rows: tuple[str, ...]  # our names of them
    metrics: tuple[str, ...]  # the paper's names; () is all
    where: str  # a configuration, or its first words, such as the data set; "" is all

    def covers(self, row: str, metric: str, configuration: Configuration) -> bool:
        is_there = not self.where or f"{configuration.column},".startswith(f"{self.where},")
        return row in self.rows and (not self.metrics or metric in self.metrics) and is_there


def read_reasons(notes: str) -> list[Reason]:
    """The reasons among the items of a list in Markdown, by how these begin; InputError for one that cannot be read.

    >>> read_reasons("- **Why `gdumb` differs in A_avg, F_last on cifar10.** ...")
    [Reason(rows=('gdumb',), metrics=('A_avg', 'F_last'), where='cifar10')]
    """
    found = []
    for item in re.split(r"^- ", notes, flags=re.MULTILINE):
        head = " ".join(item.split())
        if not head.startswith(START):
            continue
        if (read := HEAD.match(head)) is None:
            raise InputError(
                f"{head[:60]!r} in the notes is not a reason; write **Why `gdumb` differs in A_avg on cifar10.** "
                "or the like, with rows as the page names them; metrics and data set may be left out."
            )
        metrics = tuple(read["metrics"].split(", ")) if read["metrics"] else ()
        for metric in metrics:
            if metric not in PAPER_METRICS:
                raise UnknownNameError("metric of the paper", metric, PAPER_METRICS)
        found.append(Reason(tuple(re.findall("`([^`]+)`", read["rows"])), metrics, read["where"] or ""))
    return found

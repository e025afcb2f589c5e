"""Tables for spreadsheets and programs: CSV and JSON, every number in full."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from iblurry.errors import InputError
from iblurry.studies.paper import load_paper
from iblurry.studies.significance import PairedComparison, caveats
from iblurry.studies.tables.layout import missing_commands
from iblurry.studies.tables.table import ResultTable, StudyTable, TableCell

HEAD = (
    *("study", "dataset", "row", "column", "metric"),
    *("n", "mean", "std", "seeds", "paper_mean", "paper_std", "difference", "verdict"),
    *("equal_compute", "equal_bytes"),  # the rows whose compute and bytes all were given; empty: their own
)


def runs_to_json(table: ResultTable) -> dict[str, Any]:
    """A table of runs for `json.dumps`."""
    return {
        "unit": "percent",
        "units": {metric.name: metric.unit for metric in table.metrics},
        "stopped": _stopped(table),
        "std": "sample standard deviation (n - 1)",
        "rows": [_run_row(row, table) for row in table.rows],
    }


def _run_row(row: str, table: ResultTable) -> dict[str, Any]:
    cells = {metric.name: table.cells[row, "", metric.name] for metric in table.metrics}
    numbers = {name: asdict(cell.ours) if cell.ours else None for name, cell in cells.items()}
    return {"method": row, "n": len(next(iter(cells.values())).runs)} | numbers


def to_csv(table: StudyTable, pairs: Sequence[PairedComparison] | None = None) -> str:
    """A study's table as CSV: one line per cell; what there is not is empty. Refuses `pairs`, which are no cells."""
    if pairs is not None:
        raise InputError("A CSV table cannot show pairs; use --pairs with --format terminal, markdown or json.")
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(HEAD)
    for cell in table.cells.values():
        ours, paper = cell.ours, cell.paper
        seeds = " ".join(map(str, cell.values))
        facts = [table.study.name, table.selection.dataset, cell.row, cell.column, cell.metric.name, len(cell.values)]
        facts += [ours.mean if ours else None, ours.std if ours else None, seeds]
        facts += [paper.mean if paper else None, paper.std if paper else None, cell.difference, cell.verdict]
        facts += [table.selection.equal_compute, table.selection.equal_bytes]
        writer.writerow(facts)
    return written.getvalue()


def to_json(table: StudyTable, pairs: Sequence[PairedComparison] | None = None) -> str:
    """A study's table as JSON: every number, with the folders it comes from, and the `pairs` if there are any."""
    study, paper = table.study, load_paper()
    content: dict[str, Any] = {
        "study": study.name,
        "title": study.title,
        "shows": study.shows,
        "question": study.question,
        "dataset": table.selection.dataset,
        "settings": table.settings,
        "equal_compute": table.selection.equal_compute,
        "equal_bytes": table.selection.equal_bytes,
        "units": {metric.name: metric.unit for metric in table.metrics},
        "std": "sample standard deviation (n - 1)",
        "paper": paper["paper"],
        "paper_units": paper["units"],
        "seeds": table.selection.seeds,
        "rows": table.rows,
        "columns": table.columns,
        "metrics": [metric.name for metric in table.metrics],
        "cells": [_cell(table, cell) for cell in table.cells.values()],
        "missing": [
            {"row": run.row, "column": run.column, "seed": run.experiment.seed, "run": run.experiment.name}
            for run in table.missing
        ],
        "other_orders": [{"row": row, "column": column} for row, column in sorted(table.other_orders)],
        "stopped": _stopped(table),
        "commands": missing_commands(table),
    }
    if pairs is not None:
        content["pairs"] = [_pair(pair) for pair in pairs]
        content["caveats"] = caveats(pairs)
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _stopped(table: ResultTable) -> list[dict[str, Any]]:
    """Runs that a callback ended before their stream."""
    runs = table.stopped().items()
    return [{"run": name, "at": run.stopped.at, "reason": run.stopped.reason} for name, run in runs if run.stopped]


def _cell(table: StudyTable, cell: TableCell) -> dict[str, Any]:
    ours = cell.ours
    return {
        "row": cell.row,
        "column": cell.column,
        "metric": cell.metric.name,
        "n": len(cell.values),
        "mean": ours.mean if ours else None,
        "std": ours.std if ours else None,
        "best": table.is_best(cell),
        "values": cell.values,  # by seed
        "folders": [str(run.folder) for run in cell.runs.values()],
        "paper": asdict(cell.paper) if cell.paper else None,
        "difference": cell.difference,
        "verdict": cell.verdict,
    }


def _pair(pair: PairedComparison) -> dict[str, Any]:
    names = {"column": pair.column, "metric": pair.metric, "first": pair.first, "second": pair.second}
    return names | {"n": pair.paired.n} | asdict(pair.paired) | {"words": str(pair)}

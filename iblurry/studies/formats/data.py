"""For spreadsheets and programs: every number in full."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from iblurry.errors import InputError
from iblurry.studies.formats.layout import commands
from iblurry.studies.paper import about
from iblurry.studies.significance import Pair, caveats
from iblurry.studies.table import Cell, StudyTable

HEAD = (
    *("study", "dataset", "row", "column", "metric"),
    *("n", "mean", "std", "seeds", "paper_mean", "paper_std", "difference", "standing"),
)


def to_csv(table: StudyTable, pairs: Sequence[Pair] | None = None) -> str:
    """One line per cell; what there is not is empty."""
    if pairs is not None:
        raise InputError(
            "A csv table holds cells and no pairs; ask for --pairs with --format terminal, markdown or json."
        )
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(HEAD)
    for cell in table.cells.values():
        ours, paper = cell.ours, cell.paper
        seeds = " ".join(map(str, cell.values))
        facts = [table.study.name, table.dataset, cell.row, cell.column, cell.measure.name, len(cell.values)]
        facts += [ours.mean if ours else None, ours.std if ours else None, seeds]
        facts += [paper.mean if paper else None, paper.std if paper else None, cell.difference, cell.standing]
        writer.writerow(facts)
    return written.getvalue()


def to_json(table: StudyTable, pairs: Sequence[Pair] | None = None) -> str:
    """Everything, with the folders the numbers come from."""
    study = table.study
    content: dict[str, Any] = {
        "study": study.name,
        "title": study.title,
        "shows": study.shows,
        "question": study.question,
        "dataset": table.dataset,
        "settings": table.settings,
        "units": {measure.name: measure.unit for measure in table.measures},
        "std": "sample standard deviation (n - 1)",
        "paper": about()["paper"],
        "paper_units": about()["units"],
        "seeds": table.seeds,
        "rows": table.rows,
        "columns": table.columns,
        "metrics": [measure.name for measure in table.measures],
        "cells": [_cell(table, cell) for cell in table.cells.values()],
        "missing": [
            {"row": one.row, "column": one.column, "seed": one.experiment.seed, "run": one.experiment.name}
            for one in table.missing
        ],
        "commands": commands(table),
    }
    if pairs is not None:
        content["pairs"] = [_pair(pair) for pair in pairs]
        content["caveats"] = caveats(pairs)
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _cell(table: StudyTable, cell: Cell) -> dict[str, Any]:
    ours = cell.ours
    return {
        "row": cell.row,
        "column": cell.column,
        "metric": cell.measure.name,
        "n": len(cell.values),
        "mean": ours.mean if ours else None,
        "std": ours.std if ours else None,
        "best": table.is_best(cell),
        "values": cell.values,  # by seed
        "folders": [str(run.folder) for run in cell.runs.values()],
        "paper": asdict(cell.paper) if cell.paper else None,
        "difference": cell.difference,
        "standing": cell.standing,
    }


def _pair(pair: Pair) -> dict[str, Any]:
    names = {"column": pair.column, "metric": pair.metric, "first": pair.first, "second": pair.second}
    return names | {"n": pair.paired.n} | asdict(pair.paired) | {"words": str(pair)}

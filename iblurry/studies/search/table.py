"""The table of a search: a line for each point, its fields, A_AUC over seeds, and which is best; also as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from iblurry.analysis.formats import rich_grid
from iblurry.analysis.metrics import NOTHING, format_value
from iblurry.studies.search.points import FINISHED, PointResult, best_points


def search_to_terminal(results: Sequence[PointResult], *, width: int, bold: bool = True) -> str:
    """The table and what its numbers are; paths are shortened where the terminal is too narrow for them."""
    paths = list(dict.fromkeys(path for result in results for path in result.point.changes))
    short = [path.rsplit(".", 1)[-1] for path in paths]
    for heads in [paths, short] if len(set(short)) == len(short) else [paths]:
        table = _grid(results, paths, heads)
        if sum(1 + max(map(len, column)) for column in zip(*table, strict=True)) <= width:
            break
    else:
        table = _grid(results, paths, None)
    titles, *lines = table
    sides = "".join("r" if title in ("n", "A_AUC ↑", "trial") else "l" for title in titles)
    marked = ([(cell, line[-1] == "best") for cell in line] for line in lines)
    grid = rich_grid(titles, marked, width, sides=sides, bold=bold)
    counts = {len(result.values) for result in results if result.score}
    over = "one seed each" if counts <= {1} else "mean ± sample standard deviation (n - 1) over n seeds"
    caption = f"Percent, {over}; on training images held out of the stream, not on test images."
    return f"{grid}\n{textwrap.fill(caption, width)}"


def search_to_json(results: Sequence[PointResult]) -> list[dict[str, Any]]:
    """The points for `json.dumps`, every number in full."""
    best = set(map(id, best_points(results).values()))
    return [
        ({"number": result.number} if result.number is not None else {})
        | {
            "method": result.point.row,
            "fields": dict(result.point.changes),
            "state": result.state,
            "note": result.note,
            "a_auc": {"mean": result.score.mean, "std": result.score.std} if result.score else None,
            "seeds": {str(seed): value for seed, value in result.values.items()},
            "best": id(result) in best,
            "runs": [experiment.name for experiment in result.point.experiments],
        }
        for result in results
    ]


def _grid(results: Sequence[PointResult], paths: Sequence[str], heads: Sequence[str] | None) -> list[list[str]]:
    """Headings and lines; without `heads` all that tells a point is in the first column, which can be folded."""
    best = set(map(id, best_points(results).values()))
    has_rows = len({result.point.row for result in results}) > 1
    has_numbers = any(result.number is not None for result in results)
    firsts = ["trial"] * has_numbers + ["method"] * has_rows
    table = [[*(["point"] if heads is None else [*firsts, *heads]), "n", "A_AUC ↑", ""]]
    for result in results:
        cells = [str(result.number)] * has_numbers + [result.point.row] * has_rows
        if heads is None:
            cells = [" ".join([*cells, str(result.point)])]
        else:
            cells += [result.point.changes.get(path, NOTHING) for path in paths]
        remark = "best" if id(result) in best else "" if result.state == FINISHED else result.state
        if remark == result.state and result.steps:  # a failure's sentence is said elsewhere
            remark += f" at {max(result.steps):,}"
        table.append([*cells, str(len(result.values)) if result.score else NOTHING, format_value(result.score), remark])
    return table

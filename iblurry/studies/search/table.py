"""The table of a search: a line for each point, its fields, A_AUC over seeds, and which is best; also as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from iblurry.analysis.formats import rich_grid
from iblurry.analysis.metrics import NOTHING, format_value
from iblurry.studies.search.point import FINISHED, PointResult, best_points

BEST = "best"
Lines = list[list[tuple[str, bool]]]  # text, and whether it is of the best point


def search_to_terminal(results: Sequence[PointResult], *, width: int, bold: bool = True) -> str:
    """The table and what its numbers are; paths are shortened where the terminal is too narrow for them."""
    best = list(best_points(results).values())
    paths = list(dict.fromkeys(path for result in results for path in result.point.changes))
    short = [path.rsplit(".", 1)[-1] for path in paths]
    forms = [paths, short] if len(set(short)) == len(short) else [paths]
    for heads in forms:
        titles, lines = _grid(results, best, heads, paths)
        if _width(titles, lines) <= width:
            break
    else:
        titles, lines = _grid(results, best, None, paths)
    sides = "".join("r" if title in ("n", "A_AUC ↑", "trial") else "l" for title in titles)
    grid = rich_grid(titles, iter(lines), width, sides=sides, bold=bold)
    counts = {len(result.values) for result in results if result.score}
    over = "one seed each" if counts <= {1} else "mean ± sample standard deviation (n - 1) over n seeds"
    caption = f"Percent, {over}; on training images held out of the stream, not on test images."
    return f"{grid}\n{textwrap.fill(caption, width)}"


def search_to_json(results: Sequence[PointResult]) -> list[dict[str, Any]]:
    """The points for `json.dumps`, every number in full."""
    best = list(best_points(results).values())
    return [
        ({"number": result.number} if result.number is not None else {})
        | {
            "method": result.point.row,
            "fields": dict(result.point.changes),
            "state": result.state,
            "note": result.note,
            "a_auc": {"mean": result.score.mean, "std": result.score.std} if result.score else None,
            "seeds": {str(seed): value for seed, value in result.values.items()},
            "best": any(result is one for one in best),
            "runs": [experiment.name for experiment in result.point.experiments],
        }
        for result in results
    ]


def _grid(
    results: Sequence[PointResult], best: Sequence[PointResult], heads: Sequence[str] | None, paths: Sequence[str]
) -> tuple[list[str], Lines]:
    """Headings and lines; without `heads` all that tells a point is in the first column, which can be folded."""
    has_rows = len({result.point.row for result in results}) > 1
    has_numbers = any(result.number is not None for result in results)
    firsts = ["trial"] * has_numbers + ["method"] * has_rows
    titles = [*(["point"] if heads is None else [*firsts, *heads]), "n", "A_AUC ↑", ""]
    lines = []
    for result in results:
        is_best = any(result is one for one in best)
        cells = [str(result.number)] * has_numbers + [result.point.row] * has_rows
        if heads is None:
            cells = [" ".join([*cells, str(result.point)])]
        else:
            cells += [result.point.changes.get(path, NOTHING) for path in paths]
        count = str(len(result.values)) if result.score else NOTHING
        cells += [count, format_value(result.score), BEST if is_best else _remark(result)]
        lines.append([(cell, is_best) for cell in cells])
    return titles, lines


def _remark(result: PointResult) -> str:
    """State and, of a pruned trial, where; a failure's sentence is said elsewhere."""
    if result.state == FINISHED:
        return ""
    return f"{result.state} at {max(result.steps):,}" if result.steps else result.state


def _width(titles: Sequence[str], lines: Lines) -> int:
    columns = zip(*[titles, *([text for text, _ in line] for line in lines)], strict=True)
    return sum(1 + max(map(len, column)) for column in columns)


def describe_failures(results: Sequence[PointResult]) -> Mapping[str, str]:
    """Why points failed, by their names."""
    return {f"{result.point.row} {result.point}": result.note for result in results if result.note}

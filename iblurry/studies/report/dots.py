"""Two numbers with their spreads on one line: the paper's and ours, drawn small enough for a cell."""

from __future__ import annotations

from typing import Any

from iblurry.studies.report.html import Html, tag

WIDTH, HEIGHT, EDGE = 150, 26, 7
UPPER, LOWER = 8, 18  # the paper's line and ours


def dots(paper: dict[str, Any] | None, ours: dict[str, Any] | None, low: float, high: float, *, style: int) -> Html:
    """From `low` to `high`, the same in all cells of a column."""

    def across(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.5
        return f"{EDGE + share * (WIDTH - 2 * EDGE):.1f}"

    parts = [tag("line", x1=0, x2=WIDTH, y1=HEIGHT // 2, y2=HEIGHT // 2, class_="axis")]
    for number, y, kind in ((paper, UPPER, "paper"), (ours, LOWER, f"ours s{style}")):
        if number is not None:
            x, std = across(number["mean"]), number["std"] or 0
            ends = {"x1": across(number["mean"] - std), "x2": across(number["mean"] + std)}
            parts.append(tag("line", **ends, y1=y, y2=y, class_=kind))
            parts.append(
                tag("circle", cx=x, cy=y, r=4, class_=kind)
                if number is ours
                else tag("path", d=f"M{x} {y - 5}l5 5l-5 5l-5 -5z", class_=kind)
            )
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH, height=HEIGHT, aria_hidden="true")

"""HTML from Python, where every text is escaped unless it is HTML already."""

from __future__ import annotations

import html
from collections.abc import Sequence

from iblurry.analysis.metrics import MeanStd
from iblurry.analysis.verdict import PaperNumber

WIDTH, HEIGHT, EDGE = 150, 26, 7  # pixels of a cell with two dots
UPPER, LOWER = 8, 18  # the paper's line and ours
VOID = ("br", "col", "input", "meta", "wbr")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str | int | None, **attributes: str | float | bool | None) -> Html:
    """An element; `class_` and `data_row` are written class and data-row, None and False are left out.

    >>> tag("td", "<b>", class_="n", data_value=3)
    '<td class="n" data-value="3">&lt;b&gt;</td>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            label = key.rstrip("_").replace("_", "-")
            words.append(label if value is True else f'{label}="{html.escape(str(value))}"')
    opening = f"<{' '.join(words)}>"
    return Html(opening) if name in VOID else Html(f"{opening}{join(children)}</{name}>")


def join(children: Sequence[str | int | None]) -> Html:
    """One after the other; None is nothing."""
    texts = (child if isinstance(child, Html) else html.escape(str(child)) for child in children if child is not None)
    return Html("".join(texts))


def cell(text: str | int | None, value: float | str | None = None, *, class_: str | None = None) -> Html:
    """A cell of a table that can be sorted: by `value`, else by its text."""
    return tag("td", text, class_=class_, data_value=value)


def table(heads: Sequence[str], lines: Sequence[Sequence[Html]], *, caption: str, sides: str = "") -> Html:
    """A table in a box of its own that scrolls; headings sort it. `sides` has an r for each column of numbers."""
    columns = [
        tag("th", tag("button", head, type="button"), scope="col", class_="n" if side == "r" else None)
        for head, side in zip(heads, sides.ljust(len(heads), "l"), strict=True)
    ]
    body = [tag("tr", *line) for line in lines]
    inner = tag("table", tag("caption", caption), tag("thead", tag("tr", *columns)), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def numeric(value: float | str | None, form: str = "") -> Html:
    """A cell with a number in a format, or with a dash."""
    return cell("–" if value is None else format(value, form), value, class_="n")


def tabs(label: str, contents: dict[str, Html]) -> Html:
    """Contents of which a script shows one at a time."""
    shown = [
        tag("div", tag("h4", metric(name)), inner, class_="tab", data_name=name) for name, inner in contents.items()
    ]
    return tag("div", *shown, class_="tabs", data_label=label)


def definitions(texts: dict[str, str], class_: str) -> Html:
    """A list of terms and what they mean."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in texts.items()), class_=class_)


def metric(text: str) -> Html:
    """A_AUC with its index below.

    >>> metric("A_AUC ↑")
    'A<sub>AUC</sub> ↑'
    """
    symbol, space, arrow = text.partition(" ")
    letter, low, index = symbol.partition("_")
    if not low or len(letter) > 1:
        return join([text.replace("_", " ")])
    return join([letter, tag("sub", index), space + arrow])


def dots(paper: PaperNumber | None, ours: MeanStd, low: float, high: float, *, style: str) -> Html:
    """The paper's number and ours with their spreads, drawn into a cell on an axis from `low` to `high`."""

    def across(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.5
        return f"{EDGE + share * (WIDTH - 2 * EDGE):.1f}"

    def spread(number: PaperNumber | MeanStd, y: int, kind: str) -> Html:
        ends = [across(number.mean + sign * (number.std or 0)) for sign in (-1, 1)]
        return tag("line", x1=ends[0], x2=ends[1], y1=y, y2=y, class_=kind)

    parts = [tag("line", x1=0, x2=WIDTH, y1=HEIGHT // 2, y2=HEIGHT // 2, class_="axis")]
    if paper is not None:
        diamond = f"M{across(paper.mean)} {UPPER - 5}l5 5l-5 5l-5 -5z"
        parts += [spread(paper, UPPER, "paper"), tag("path", d=diamond, class_="paper")]
    kind = f"ours {style}"
    parts += [spread(ours, LOWER, kind), tag("circle", cx=across(ours.mean), cy=LOWER, r=4, class_=kind)]
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH, height=HEIGHT, aria_hidden="true")

"""HTML from Python, where every text is escaped unless it is HTML already."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

VOID = ("br", "col", "img", "input", "meta", "wbr")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str | int | None, **attributes: str | float | bool | None) -> Html:
    """Make an element; `class_` and `data_row` are written class and data-row, None and False are left out.

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
    """Put one after the other; None is nothing."""
    texts = (child if isinstance(child, Html) else html.escape(str(child)) for child in children if child is not None)
    return Html("".join(texts))


def cell(text: str | int | None, value: float | str | None = None, *, class_: str | None = None) -> Html:
    """Make a cell of a table that can be sorted: by `value`, else by its text."""
    return tag("td", text, class_=class_, data_value=value)


def numeric(value: float | str | None, form: str = "") -> Html:
    """Make a cell with a number in a format, or with a dash."""
    return cell("–" if value is None else format(value, form), value, class_="n")


def table(heads: Sequence[str], lines: Sequence[Sequence[Html]], *, caption: str, sides: str = "") -> Html:
    """Make a table in a box that scrolls; headings sort it. `sides` has an r for each column of numbers."""
    columns = [
        tag("th", tag("button", head, type="button"), scope="col", class_="n" if side == "r" else None)
        for head, side in zip(heads, sides.ljust(len(heads), "l"), strict=True)
    ]
    body = [tag("tr", *line) for line in lines]
    inner = tag("table", tag("caption", caption), tag("thead", tag("tr", *columns)), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def definitions(texts: Mapping[str, str], class_: str) -> Html:
    """Make a list of terms and what they mean."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in texts.items()), class_=class_)


def metric(text: str) -> Html:
    """Write A_AUC with its index below.

    >>> metric("A_AUC ↑")
    'A<sub>AUC</sub> ↑'
    """
    symbol, space, arrow = text.partition(" ")
    letter, low, index = symbol.partition("_")
    if not low or len(letter) > 1:
        return join([text.replace("_", " ")])
    return join([letter, tag("sub", index), space + arrow])

"""How every figure looks: a palette for any colour vision, and files that are the same bytes whenever drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iblurry.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any colour vision, without its yellow, which is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
LINES = ("-", (0, (6, 2)), (0, (6, 2, 1.5, 2)), (0, (1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")  # line styles and markers carry it in black and white
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "|||", "ooo", "---", "++")
OPEN: dict[str, Any] = {"markersize": 5, "markerfacecolor": "white", "markeredgewidth": 1.1}
WIDTH = 6.6  # inches, that of a page's text
LETTERS = 112  # that fit below the axes, side by side
METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # publishers refuse Type 3
    "svg.hashsalt": "iblurry",  # else the ids in the file are random
}


@dataclass(frozen=True)
class Look:
    """What tells one method from the others, in colour and without."""

    colour: str
    line: Any
    marker: str
    hatch: str


def look(number: int) -> Look:
    """Of the method at this position."""
    return Look(
        COLOURS[number % len(COLOURS)],
        LINES[number % len(LINES)],
        MARKERS[number % len(MARKERS)],
        HATCHES[number % len(HATCHES)],
    )


@contextmanager
def sheet(path: Path | str, height: float) -> Iterator[Figure]:
    """An empty figure as wide as a page's text; what is on it at the end goes into a PNG, SVG or PDF file."""
    import matplotlib
    from matplotlib.figure import Figure

    path = Path(path)
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in METADATA:
        raise InputError(f"The figure {path.name!r} ends in {path.suffix!r}; end it in .png, .svg or .pdf.")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the same figure whatever the reader's own settings
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format=suffix, dpi=200, metadata=METADATA[suffix])


def side_by_side(letters: int) -> int:
    """How many names of so many letters a line of the legend has room for."""
    return min(3, max(1, LETTERS // letters))


def legend_below(figure: Figure, columns: int) -> None:
    """Everything with a name, each once; below, not inside: with many methods no corner is free."""
    named = [axes.get_legend_handles_labels() for axes in figure.axes]
    first: dict[str, Any] = {}
    for handle, label in ((handle, label) for pair in named for handle, label in zip(*pair, strict=True)):
        first.setdefault(label, handle)
    figure.legend(
        list(first.values()),
        list(first),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=3.2,
        fontsize=8,
    )


def plain(text: str) -> str:
    """A name as it is, also where a dollar would begin a formula."""
    return text.replace("$", r"\$")


def panels(figure: Figure, count: int, *, columns: int, **shared: Any) -> list[Axes]:
    """So many axes, row by row; what is free at the end stays empty."""
    columns = min(columns, count)
    table = figure.subplots(-(-count // columns), columns, squeeze=False, **shared)
    for place, axes in enumerate(table.flat):
        if place >= count:
            axes.remove()
        else:
            axes.tick_params(labelbottom=True)  # matplotlib hides it on shared axes, also above an empty place
    return list(table.flat[:count])


def outer(places: Sequence[Axes], columns: int) -> tuple[list[Axes], list[Axes]]:
    """Those with nothing to their left, and those with nothing below."""
    return list(places[::columns]), list(places[-columns:])

"""How figures look: a colour, line and marker for each method, panels, legend, marks on an axis of samples.

A figure has the same bytes whenever it is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.describe import display_name
from iblurry.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette without its yellow, which is faint on white; then colours of Tol's schemes that are far from
# it.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00"),
    *("#882255", "#999933", "#777777"),
    *("#332288", "#D01C8B", "#7A4419", "#7CAE00"),
    *("#3333DD", "#D6203C", "#A63AD6", "#0B4D1F", "#1B7F86", "#5C5470"),
)
LINES = (  # with the markers, they carry it in black and white
    *("-", (0, (6, 2)), (0, (6, 2, 1.5, 2)), (0, (1.5, 1.5))),
    *((0, (6, 2, 1.5, 2, 1.5, 2)), (0, (3, 3)), (0, (10, 3))),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
FILLS = ("left", "right", "bottom", "top")  # of a variant's marker; an empty one stands for the paper's numbers
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "|||", "ooo", "---", "++")
FAMILIES: dict[str, tuple[str, ...]] = {  # by its place here a method has its colour; after it, its named variants
    "clib": ("clib-reservoir", "clib-stream", "clib-exponential", "clib-balanced", "clib-averaged"),
    "er": ("er-constant", "er-averaged"),
    "mir": (),
    "bic": (),
    "rm": (),
    "ewc": ("ewc schedule=Constant",),
    "gdumb": (),
    "agem": (),
    "gss": (),
    "joint": (),
    "sdp": (),
    "mkd": (),
    "derpp": (),
    "sar": (),
    "er-ace": (),
    "balm": (),
    "slda": ("ncm", "ranpac", "randumb"),  # closed forms: one colour
}
OPEN: dict[str, Any] = {"markersize": 5, "markerfacecolor": "white", "markeredgewidth": 1.1}
TASK_COLOURS = COLOURS[:7]  # of tasks, in turn
WIDTH = 6.6  # inches, that of a page's text
LETTERS = 112  # that fit below the axes, side by side
_WRAPPED = 80  # of a single name
METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # publishers refuse Type 3
    "svg.hashsalt": "iblurry",  # else the ids in the file are random
}
ACROSS = 2  # panels beside each other: wide enough for the names of five tasks


@dataclass(frozen=True)
class MethodStyle:
    """What tells a row of a table from the others, in colour and without.

    Parameters
    ----------
    family : int
        The method's place in FAMILIES; those that are not the package's are numbered on.
    variant : int
        0 for the method itself; variants have its colour and marker with another line, fill and hatch.
    """

    family: int
    variant: int

    @property
    def colour(self) -> str:
        """The family's; methods beyond the built-in share the colours that those leave."""
        own = self.family - len(FAMILIES)
        return COLOURS[self.family if own < 0 else len(FAMILIES) + own % (len(COLOURS) - len(FAMILIES))]

    @property
    def line(self) -> Any:
        return LINES[(self.family + self.variant) % len(LINES)]

    @property
    def marker(self) -> str:
        return MARKERS[self.family % len(MARKERS)]

    @property
    def fill(self) -> Any:
        return FILLS[(self.variant - 1) % len(FILLS)] if self.variant else "full"  # all pairs with a line occur

    @property
    def hatch(self) -> str:
        return HATCHES[(self.family + self.variant) % len(HATCHES)]


def method_styles(rows: Iterable[str]) -> dict[str, MethodStyle]:
    """The styles of rows that are shown together, such as "clib", "clib-released" or "clib admission=Balanced".

    Built-in methods and their named variants have fixed styles. Others take the next colour that is left, other
    variants the next line and fill, in the order they come.

    >>> alone, beside = method_styles(["clib"]), method_styles(["er", "mine", "clib"])
    >>> alone["clib"] == beside["clib"], beside["clib"].colour
    (True, '#0072B2')
    """
    rows = list(dict.fromkeys(rows))
    families = dict.fromkeys([*FAMILIES, *map(family_name, rows)])
    styles: dict[str, MethodStyle] = {}
    for number, family in enumerate(families):
        named = [family, f"{family}-released", *FAMILIES.get(family, ())]
        named += [f"{row}-released" for row in named[2:]]
        variants = dict.fromkeys([*named, *(row for row in rows if family_name(row) == family)])
        styles |= {row: MethodStyle(number, variant) for variant, row in enumerate(variants)}
    return {row: styles[row] for row in rows}


def family_name(row: str) -> str:
    """The method that a row is a variant of.

    >>> family_name("clib-balanced memory=200"), family_name("er-ace-released")
    ('clib', 'er-ace')
    """
    name = row.split()[0].removesuffix("-released") if row.split() else row
    return next((family for family, variants in FAMILIES.items() if name in variants), name)


@contextmanager
def open_figure(path: Path | str, height: float) -> Iterator[Figure]:
    """An empty figure as wide as a page's text, saved to a PNG, SVG or PDF file at the end; `height` in inches."""
    import matplotlib
    from matplotlib.figure import Figure

    path = Path(path)
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in METADATA:
        raise InputError(f"The figure {path.name!r} ends in {path.suffix!r}; end it in .png, .svg or .pdf.")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the same figure whatever the reader's own settings
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        _set_canvas(figure)
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format=suffix, dpi=200, metadata=METADATA[suffix])


def _set_canvas(figure: Figure) -> None:
    """One whose PNG files are opaque, as figures are, and small: of 256 colours, unless a colour scale needs more.

    Lines, bands and letters of 256 colours look the same in a third of the size.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from PIL import Image

    def has_colour_scale(artist: object) -> bool:
        return isinstance(artist, ScalarMappable) and artist.get_array() is not None

    class SmallCanvas(FigureCanvasAgg):
        def print_png(self, filename_or_obj: Any, **_: Any) -> None:
            self.draw()  # type: ignore[no-untyped-call]
            image = Image.fromarray(np.asarray(self.buffer_rgba())[..., :3])  # type: ignore[no-untyped-call]
            if not self.figure.findobj(has_colour_scale):
                image = image.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=5, dither=Image.Dither.NONE)
            image.save(filename_or_obj, "PNG", optimize=True, dpi=(self.figure.dpi,) * 2)

    SmallCanvas(figure)


def legend_columns(letters: int) -> int:
    """How many names of so many letters a line of the legend has room for."""
    return min(3, max(1, LETTERS // letters))


def legend_names(counts: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Rows as the legend names them: as the paper does, and with n where that differs, as `counts` has it by row.

    >>> legend_names({"er": [3, 3], "clib": [2, 3]})
    {'er': 'ER, n = 3', 'clib': 'CLIB, n = 2 to 3'}
    """
    differ = len({n for found in counts.values() for n in found}) > 1
    names = {row: display_name(row) + (f", {_describe_n(found)}" if differ else "") for row, found in counts.items()}
    return {row: textwrap.fill(escape_math(name), _WRAPPED) for row, name in names.items()}


def _describe_n(counts: Iterable[int], unit: str = "") -> str:
    """How many seeds, such as "n = 3 seeds"; of several counts, from the least to the most.

    >>> _describe_n([3, 3], "seed"), _describe_n([1], "seed"), _describe_n([2, 1])
    ('n = 3 seeds', 'n = 1 seed', 'n = 1 to 2')
    """
    low, high = min(counts := list(counts)), max(counts)
    number = f"{low}" if low == high else f"{low} to {high}"
    return f"n = {number}" + (f" {unit}{'s' if high > 1 else ''}" if unit else "")


def describe_spread(counts: Mapping[str, Sequence[int]], spread: str) -> str:
    """What a figure shows: `spread` in words, unless there are only single seeds, and n; `counts` are seeds by row."""
    found = [n for row in counts.values() for n in row]
    return ", ".join([spread] * (max(found) > 1) + [_describe_n(found, "seed")])


def add_legend_below(figure: Figure, columns: int, note: str) -> None:
    """Everything with a name, each once, and a line that says what is drawn.

    Below, not inside: with many methods no corner is free.
    """
    named = [axes.get_legend_handles_labels() for axes in figure.axes]
    first: dict[str, Any] = {}
    for handle, label in ((handle, label) for pair in named for handle, label in zip(*pair, strict=True)):
        first.setdefault(label, handle)
    figure.legend(
        list(first.values()),
        list(first),
        loc="outside lower center",
        title=note,
        title_fontsize=8,
        ncols=columns,
        frameon=False,
        handlelength=3.2,
        fontsize=8,
    )


def escape_math(text: str) -> str:
    """A name that matplotlib shows as it is: a dollar sign would begin a formula."""
    return text.replace("$", r"\$")


@contextmanager
def open_panels(
    path: Path | str,
    height: float,
    titles: Sequence[str] = ("",),
    *,
    note: str,
    names: Iterable[str] | None = None,
    more: int = 1,
    letters: int = 12,
    x: str | None = None,
    y: str | None = None,
    title: str | None = None,
    **shared: Any,
) -> Iterator[list[Axes]]:
    """A figure of panels, saved to a file at the end, when a legend of everything with a name was put below them.

    Parameters
    ----------
    path : Path or str
        A PNG, SVG or PDF file.
    height : float
        Of a panel, in inches.
    titles : sequence of str
        One for each panel.
    note : str
        A line below the legend that says what is drawn.
    names : iterable of str, optional
        The methods in the legend; None: there are few short words.
    more : int
        Other entries of the legend.
    letters : int
        Room that each of the names has beside it, for its line and more words.
    x, y, title : str, optional
        Labels where no other panel is to the left or below, and a title above all.
    **shared : object
        For matplotlib: sharex, sharey.
    """
    names = None if names is None else list(names)
    columns = 4 if names is None else legend_columns(letters + max(map(len, names)))
    lines = -(-(len(names or ()) + more) // columns) + note.count("\n")
    across = min(ACROSS, len(titles))
    with open_figure(path, height * -(-len(titles) // across) + 0.78 + 0.18 * lines) as figure:
        panels = add_panels(figure, len(titles), columns=across, **shared)
        for axes, text in zip(panels, titles, strict=True):
            axes.set_title(text, fontsize=9, parse_math=False)
        yield panels
        if len(panels) == 1:
            panels[0].set_title(textwrap.fill(title or titles[0], 90), fontsize=10, parse_math=False)
        label_panels(figure, panels, across, x=x, y=y, title=title if len(panels) > 1 else None)
        add_legend_below(figure, columns, note)


def add_panels(figure: Figure, count: int, *, columns: int, **shared: Any) -> list[Axes]:
    """Adds so many axes, row by row; what is free at the end stays empty."""
    columns = min(columns, count)
    table = figure.subplots(-(-count // columns), columns, squeeze=False, **shared)
    for place, axes in enumerate(table.flat):
        if place >= count:
            axes.remove()
        else:
            axes.tick_params(labelbottom=True)  # matplotlib hides it on shared axes, also above an empty place
    return list(table.flat[:count])


def label_panels(
    figure: Figure, panels: Sequence[Axes], columns: int, *, x: str | None, y: str | None, title: str | None
) -> None:
    """Axis labels where no other panel is to the left or below, and a title above all."""
    for axes in panels[::columns] if y is not None else ():
        axes.set_ylabel(y or "")
    for axes in panels[-columns:] if x is not None else ():
        axes.set_xlabel(x or "")
    if title is not None:
        figure.suptitle(title, fontsize=10, parse_math=False)


def add_grid(axes: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Faint lines behind everything."""
    axes.grid(axis=axis, color="0.92", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def marker_looks(style: MethodStyle, *, size: float = 4.0) -> dict[str, Any]:
    """What matplotlib is told of a method's marker."""
    return {
        "marker": style.marker,
        "markersize": size * (1.4 if style.marker == "*" else 1.0),  # a star is smaller than it should be
        "fillstyle": style.fill,
        "markerfacecoloralt": "white",
    }


def draw_line(
    axes: Axes, style: MethodStyle, x: Any, y: Any, low: Any, high: Any, *, label: str, markers: int = 12
) -> None:
    """A method's line with a band from `low` to `high` (None: no band) and about so many markers.

    Markers are staggered by method, so that those of near lines do not cover each other.
    """
    step = max(1, round(len(x) / markers))
    axes.plot(
        x,
        y,
        color=style.colour,
        linestyle=style.line,
        linewidth=1.3,
        markeredgecolor="white" if style.fill == "full" else style.colour,
        markeredgewidth=0.5,
        markevery=(((style.family + style.variant) * step // 3) % step, step),
        **marker_looks(style),
        clip_on=False,  # the last marker lies on the edge
        label=label,
        zorder=3,
    )
    if low is not None:
        axes.fill_between(x, low, high, color=style.colour, alpha=0.18, linewidth=0, zorder=2)


def count_seeds(columns: Mapping[str, Mapping[str, Sized]], what: str = "runs") -> dict[str, list[int]]:
    """Count by row how many seeds each column has that has the row; InputError where there is none."""
    rows = dict.fromkeys(row for rows in columns.values() for row in rows)
    if not rows:
        raise InputError(f"There are no {what} to draw; finish some runs first.")
    return {row: [len(rows[row]) for rows in columns.values() if row in rows] for row in rows}


def format_sample_axis(axes: Axes, *, narrow: bool = False) -> None:
    """Samples seen, in thousands; on a narrow panel few of them, so that none runs into the next."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if narrow:
        axes.xaxis.set_major_locator(MaxNLocator(3))


def _shared_task_ends(ends: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Mean samples at the end of each task; none unless all runs agree, give or take 2 % of the stream.

    Classes of unequal size shift the ends a little.
    """
    if len({len(run) for run in ends}) != 1:
        return np.zeros(0)
    table = np.array(ends, dtype=np.float64)  # (runs, tasks)
    return table.mean(axis=0) if np.ptp(table, axis=0).max() <= 0.02 * table.max() else np.zeros(0)


def mark_tasks(axes: Axes, ends: Sequence[Sequence[int]], *, word: str = "task ") -> None:
    """Dashed lines where tasks end and their names above, and the axis as long as the stream; `ends` are each run's."""
    axes.set_xlim(0, max(run[-1] for run in ends))
    means = _shared_task_ends(ends)
    if len(means) < 2:
        return
    for end in means[:-1]:
        axes.axvline(end, color="0.65", linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
    every = -(-len(means) // 10)  # more than ten names would run into each other
    middles = (np.array([0, *means[:-1]]) + np.array(means)) / 2
    names = axes.secondary_xaxis("top")
    names.set_xticks(middles[::every], [f"{word}{t}" for t in range(1, len(means) + 1, every)], color="0.4", fontsize=8)
    names.tick_params(length=0, pad=1)
    names.spines["top"].set_visible(False)


def mark_arrivals(axes: Axes, at: Iterable[int]) -> None:
    """A tick on the lower edge wherever a run met a class."""
    places = sorted(set(at))
    edge = axes.get_xaxis_transform()
    axes.plot(
        places, [0.012] * len(places), "|", color="0.3", markersize=5, transform=edge, label="first sample of a class"
    )

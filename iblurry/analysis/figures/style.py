"""How every figure looks: panels, legend, marks on an axis of samples; the same bytes whenever drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.describe import display_name
from iblurry.analysis.method_style import COLOURS, MethodStyle
from iblurry.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    figure: Figure, panels: Sequence[Axes], columns: int, *, x: str, y: str | None, title: str | None
) -> None:
    """Axis labels where no other panel is to the left or below, and a title above all."""
    if y is not None:
        for axes in panels[::columns]:
            axes.set_ylabel(y)
    for axes in panels[-columns:]:
        axes.set_xlabel(x)
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


def all_rows(columns: Mapping[str, Mapping[str, object]], what: str = "runs") -> list[str]:
    """Every row that some column has, each once; InputError where there is none."""
    found = list(dict.fromkeys(row for rows in columns.values() for row in rows))
    if not found:
        raise InputError(f"There are no {what} to draw; finish some runs first.")
    return found


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

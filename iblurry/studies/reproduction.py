"""The page that compares our runs with the paper's tables: a pure function of collected results and its numbers.

Beside the numbers it has notes on why some differ, which people write into results/<data set>/notes.toml, and the noise
of a run against itself: what other rounding does to the numbers of one experiment and seed.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from iblurry.analysis.describe import describe_noted, make_slug, run_command
from iblurry.analysis.figures.curves import draw_curves
from iblurry.analysis.formats import markdown_grid, runs_to_markdown
from iblurry.analysis.results import results_frame
from iblurry.analysis.table import ABOVE, ACCURACY_METRICS, AGREES, BELOW, ERRORS, NOTHING, PAPER_SEEDS, find_warnings
from iblurry.errors import DataError, UnknownNameError
from iblurry.experiment.environment import LAST_BITS
from iblurry.experiment.result import Result
from iblurry.storage.files import replacing
from iblurry.studies.paper import (
    COUNTERPARTS,
    NOT_RUN,
    PAPER_METRICS,
    PROVISIONAL,
    ComparisonBlock,
    Configuration,
    format_comparison,
    load_paper,
    paper_configurations,
    paper_number,
    paper_rows,
)

if TYPE_CHECKING:
    from pandas import DataFrame

HEADINGS = {
    "A_AUC": "A_AUC",
    "A_avg": "A_avg",
    "F_last": "F_last (less is better)",
    "final_accuracy": "Final accuracy of joint training",
}
TESTED, OPEN = "tested", "open"  # a miss that a test has explained, and one that none has
PUBLISHED = "Orders: the paper's own, from its published split files."
DRAWN = "Orders: drawn here; not the paper's own."
_NOTED = ("commit", "python", *LAST_BITS, "threads")  # of an environment: what may change a run's rounding


@dataclass(frozen=True, kw_only=True)
class Note:
    """Why some numbers of a data set differ from the paper's, a [[note]] of the file.

    Parameters
    ----------
    dataset : str
        The folder that the file is in.
    methods : list of str
        Rows, as the page names them.
    metrics : list of str
        The paper's names of metrics.
    text : str
        The reason, in Markdown.
    tested : bool
        Whether an experiment has confirmed it; if not, the difference stays open.
    stream : str
        The only stream that it is about, such as "i-Blurry-50-10"; "" is all.
    """

    dataset: str
    methods: list[str]
    metrics: list[str]
    text: str
    tested: bool = False
    stream: str = ""

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if metric not in PAPER_METRICS:
                raise UnknownNameError("metric of the paper", metric, PAPER_METRICS)

    def __str__(self) -> str:
        where = ", ".join(filter(None, [self.dataset, self.stream]))
        head = f"- **{', '.join(f'`{one}`' for one in self.methods)} in {', '.join(self.metrics)} on {where}: "
        text = " ".join(f"{head}{'tested' if self.tested else 'open'}.** {self.text}".split())
        return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)

    def explains(self, row: str, metric: str, configuration: Configuration) -> bool:
        """Whether it is the tested reason for a number."""
        where = f"{configuration.column},".startswith(", ".join(filter(None, [self.dataset, self.stream])) + ",")
        return self.tested and where and row in self.methods and metric in self.metrics


def read_notes(results: Path) -> list[Note]:
    """All notes under results/, by data set; DataError names the file that has one without a meaning."""
    notes = []
    for path in sorted(results.glob("*/notes.toml")):
        try:
            notes += [Note(dataset=path.parent.name, **one) for one in tomllib.loads(path.read_text("utf-8"))["note"]]
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, UnknownNameError) as error:
            raise DataError(
                f"{path}: {error}. Write [[note]] with methods, metrics, text, and tested = true where an experiment "
                "has confirmed it."
            ) from error
    return notes


def reproduction_page(
    blocks: Sequence[ComparisonBlock],
    *,
    repeats: Sequence[Result] = (),
    notes: Sequence[Note] = (),
    prose: str = "",
    stem: str = "reproduction",
) -> str:
    """The whole page in Markdown.

    Parameters
    ----------
    blocks : sequence of ComparisonBlock
        Our runs beside the paper's numbers.
    repeats : sequence of Result
        Runs of which some are of the same experiment and seed: what lies between those is the noise of a run.
    notes : sequence of Note
        Why numbers differ.
    prose : str
        What people wrote; it stands below the notes as it is.
    stem : str
        The page's name, which those of its figures begin with.
    """
    misses = _misses(blocks, notes)
    sections = [_head(), _summary(blocks, misses), *(_block(block, stem) for block in blocks)]
    sections += [_notes(misses, notes, prose), _noise(repeats), _rest(blocks), _text()]
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


def draw_blocks(blocks: Sequence[ComparisonBlock], folder: Path, *, stem: str = "reproduction") -> list[Path]:
    """The figure of each configuration that has runs, where the page beside `folder` looks for it."""
    drawn = []
    for block in (block for block in blocks if block.groups):
        path = folder / figure_name(block.configuration, stem)
        groups = {name: [run.records for run in runs] for name, runs in block.groups.items()}
        with replacing(path) as part:
            draw_curves({"": groups}, part, title=str(block.configuration))
        drawn.append(path)
    return drawn


def figure_name(where: Configuration, stem: str) -> str:
    """The name of a configuration's figure; the plain one for that of Table 1."""
    first = next((one for one in paper_configurations() if one.dataset == where.dataset), None)
    rest = "" if where.column == first else f"-n{where.disjoint:g}-m{where.blur:g}-k{where.memory}-t{where.tasks}"
    return f"{stem}-{make_slug(where.dataset)}{rest}{'-published' * where.published}.png"


def _head() -> str:
    made = """
        Made by `iblurry dev reproduction` from the journals under `results/` and from the numbers of the paper's
        tables; it needs no GPU. Nothing here is typed by hand but the notes, which come from files of their own."""
    paper = load_paper()
    numbers = f"""
        The paper: {paper["paper"]}. Its numbers: {paper["units"]}. Ours: percent, mean ± sample standard deviation
        (n - 1) over n seeds; the commands of the runs stand below."""
    verdict = f"""
        **Verdict.** The standard error of a difference is √(s_paper²/{PAPER_SEEDS} + s_ours²/n): the paper's spread,
        taken to be by n - 1, is over {PAPER_SEEDS} seeds. *Agrees*: the means are no further apart than {ERRORS}
        standard errors. Otherwise ours is *above* or *below* (of F_last, below is better). A side with a single run has
        no spread and is taken to vary as the other does; without any spread nothing is judged. With fewer than
        {PAPER_SEEDS} seeds of ours a verdict is *provisional*. Numbers of the paper that are probably copy errors are
        shown (⚠) and not judged. A run is set beside the paper's only if every field of its method and its settings is
        the usual one."""
    why = f"""
        **Why {ERRORS}.** With {PAPER_SEEDS} seeds on each side, {ERRORS} standard errors hold 82 to 88 % of what chance
        alone does (Student's t with 2 to 4 degrees of freedom, by Welch): of ten numbers that differ in nothing, one or
        two come out above or below. A 95 % interval would reach 2.8 to 4.3 standard errors, which is five points of
        A_AUC or more where both sides spread as the paper's Baseline-ER does: better a miss too many than that. Nor
        does *agrees* mean equal; differences below {ERRORS} standard errors cannot be seen."""
    orders = """
        **Orders.** Runs on the paper's own orders (*published*) and on orders that were drawn are never averaged. Where
        there are both, the published ones are judged. Orders make part of a spread. Published ones are the same on both
        sides, so that part does not set the means apart: the standard error is too large there, and agreement easier.
        """
    paragraphs = [textwrap.fill(" ".join(text.split()), 120) for text in (made, numbers, verdict, why, orders)]
    return "\n\n".join(["# The paper's tables, run again", *paragraphs])


def _block(block: ComparisonBlock, stem: str) -> str:
    parts = [f"## {block.configuration}"]
    if block.groups:
        parts.append(PUBLISHED if block.configuration.published else DRAWN)
    else:
        parts.append("No run has been collected for this configuration yet.")
    for metric, lines in block.comparisons.groupby("metric", sort=False):
        parts += [f"### {HEADINGS[metric]}", _table(lines)]
    if block.groups:
        image = f"images/{figure_name(block.configuration, stem)}"
        parts += ["### Curves", f"![Accuracy to samples seen, {block.configuration}]({image})"]
        parts += ["### All numbers of our runs", runs_to_markdown(block.table).strip()]
        parts += ["### The runs", _runs(block)]
    return "\n\n".join(parts)


def _table(comparisons: DataFrame) -> str:
    lines = [
        [
            COUNTERPARTS[one.method] if one.method else "–",
            f"`{one.row or one.method}`",
            str(one.n) if one.n else "–",
            *format_comparison(one),
            one.verdict,
        ]
        for one in comparisons.itertuples()
    ]
    heads = ["paper's row", "our method", "n", "paper", "ours", "difference", "standard error", "verdict"]
    table = markdown_grid(heads, lines, sides="llrrrrrl")
    return "\n\n".join([table, *(f"⚠ {warning}." for warning in find_warnings(comparisons["paper"]))])


def _runs(block: ComparisonBlock) -> str:
    lines, commands = [], []
    for name, runs in block.groups.items():
        seconds = [run.environment["seconds"] for run in runs]
        seeds = ", ".join(str(run.experiment.seed) for run in sorted(runs, key=lambda run: run.experiment.seed))
        spent = f"{sum(seconds) / len(seconds):,.0f}"
        if len(runs) > 1:
            spent += f" ({min(seconds):,.0f} to {max(seconds):,.0f})"
        devices = {run.environment["device"] for run in runs}
        device = " / ".join(sorted("CPU" if device == "cpu" else f"GPU: {device}" for device in devices))
        versions = ", ".join(
            f"{package} {_noted(runs, package)}" for package in ("iblurry", "torch", "numpy", "python")
        )
        line = [f"`{name}`", seeds, spent, device, _noted(runs, "precision"), _noted(runs, "machine"), versions]
        lines.append([*line, _noted(runs, "commit")])
        commands.append(run_command([run.experiment for run in runs]))
    heads = ["row", "seeds", "seconds a run", "device", "precision", "machine", "versions", "commit"]
    return "\n".join([markdown_grid(heads, lines, sides="llrlllll"), "", "```console", *commands, "```"])


def _noted(runs: Sequence[Result], name: str) -> str:
    return " / ".join(sorted({describe_noted(run, name) for run in runs}))


def _misses(blocks: Sequence[ComparisonBlock], notes: Sequence[Note]) -> list[list[str]]:
    """Each number above or below the paper's, in words; the last is TESTED or OPEN."""
    return [
        [
            *(str(block.configuration), f"`{one.row}`", one.metric, *format_comparison(one)[2:], one.verdict),
            TESTED if any(note.explains(one.row, one.metric, block.configuration) for note in notes) else OPEN,
        ]
        for block in blocks
        for one in block.comparisons[block.comparisons["misses"]].itertuples()
    ]


def _summary(blocks: Sequence[ComparisonBlock], misses: Sequence[Sequence[str]]) -> str:
    """How many numbers agree; nothing where none is judged."""
    shown = [verdict for block in blocks for verdict in block.comparisons["verdict"]]
    counts = {word: sum(verdict.startswith(word) for verdict in shown) for word in (AGREES, ABOVE, BELOW)}
    if not sum(counts.values()):
        return ""
    is_open, provisional = sum(miss[-1] == OPEN for miss in misses), sum(PROVISIONAL in verdict for verdict in shown)
    text = f"**So far.** Of {sum(counts.values())} numbers that are judged, {counts[AGREES]} agree, "
    text += f"{counts[ABOVE]} are above and {counts[BELOW]} below."
    still = "is" if is_open == 1 else "are"
    text += f" Of these {len(misses)} misses, {is_open or 'none'} {still} open." if misses else ""
    return text + (f" Provisional verdicts: {provisional}." if provisional else "")


def _notes(misses: Sequence[Sequence[str]], notes: Sequence[Note], prose: str) -> str:
    parts = []
    if misses:
        heads = ["configuration", "our method", "metric", "difference", "standard error", "verdict", "reason"]
        said = (
            "Every miss. *Tested*: a note below gives its reason, which an experiment has confirmed; else it is *open*."
        )
        parts += [said, markdown_grid(heads, misses, sides="lllrrll")]
    parts += ["\n".join(map(str, notes)), prose.strip()]
    return "\n\n".join(["## What differs, and why", *filter(None, parts)]) if any(parts) else ""


def _noise(runs: Sequence[Result]) -> str:
    """Every pair of runs of the same experiment, seed, data and order, put together by what differs between them."""

    same: dict[tuple[str, ...], list[Result]] = {}
    for run in runs:
        content = (str(run.environment.get(name, "")) for name in ("data", "order"))
        same.setdefault((run.experiment.digest, *content), []).append(run)
    pairs = [(first, second) for group in same.values() for first, second in combinations(group, 2)]
    if not pairs:
        return ""
    names = ["a_auc", "a_avg", "a_last"]
    frames = [results_frame(side) for side in zip(*pairs, strict=True)]
    apart = 100 * (frames[0][names] - frames[1][names]).abs()
    apart["differs"] = [_differs(*pair) for pair in pairs]
    lines = []
    for differs, found in apart.groupby("differs", sort=False):
        rows = ", ".join(f"`{row}`" for row in frames[0]["method"][found.index].unique())
        shown = [f"{found[name].mean():.2f} ({found[name].max():.2f})".replace("nan (nan)", NOTHING) for name in names]
        lines.append([str(differs), rows, str(len(found)), *shown])
    heads = ["what differs", "methods", "pairs", *(ACCURACY_METRICS[name].heading.split()[0] for name in names)]
    said = """
        The same experiment, seed, data and order, run in two places: mean and, in brackets, largest absolute difference
        in points. Other precision, threads, devices or kernels (of another commit) round differently, and training
        amplifies that: a difference between two runs that is smaller than these says nothing."""
    text = textwrap.fill(" ".join(said.split()), 120)
    return f"## The noise of a run against itself\n\n{text}\n\n" + markdown_grid(heads, lines, sides="llrrrr")


def _differs(first: Result, second: Result) -> str:
    noted = {name: sorted(describe_noted(run, name) for run in (first, second)) for name in _NOTED}
    words = [f"{name} {one} / {other}" for name, (one, other) in noted.items() if one != other]
    return ", ".join(words) or "no recorded setting"


def _rest(blocks: Sequence[ComparisonBlock]) -> str:
    """Rows of the paper without a run, outside the configurations shown."""
    shown = [block.configuration.column for block in blocks]
    lines = []
    for where in paper_configurations():
        if where not in shown:
            methods = paper_rows(where)
            numbers = [paper_number(method, metric, where) for method in methods for metric in HEADINGS]
            tables = sorted({table for number in numbers if number for table in number.tables})
            rows = "; ".join(COUNTERPARTS[method] for method in methods)
            lines.append([str(where), ", ".join(map(str, tables)), rows, NOT_RUN])
    return "## The rest of the tables\n\n" + markdown_grid(["configuration", "tables", "rows", ""], lines, sides="llll")


def _text() -> str:
    lines = [[one["claim"], one["table"]] for one in load_paper()["contradictions"]]
    table = markdown_grid(["the paper's text", "its tables"], lines, sides="ll")
    return f"## Where the paper's text and its tables disagree\n\nThe tables are what we compare with.\n\n{table}"

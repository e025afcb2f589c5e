"""What pages say of methods that is counted or measured: the cost of each, and its rows among the collected runs.

python -m benchmarks.method_pages    # after `iblurry dev collect`; writes docs/methods/*.md and docs/faq.md again
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import fmean

from iblurry.analysis.describe import describe_settings, group_runs
from iblurry.analysis.formats import runs_to_markdown
from iblurry.analysis.results import find_runs
from iblurry.analysis.table import tabulate_runs
from iblurry.cli.methods import chosen, details
from iblurry.experiment.result import Result
from iblurry.methods import METHODS
from iblurry.streams import Published
from iblurry.studies.collect import read_run

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "methods"
FAQ = ROOT / "docs" / "faq.md"
COLLECTED = ("results/cifar10", "results/leaderboard/cifar10")
METRICS = ("a_auc", "a_avg", "a_last", "f_last", "compute")
CHOICE_METRICS = ("a_auc", "a_last", "wc_acc", "compute")
REFERENCE = "er"
ARXIV = {  # of each method's paper
    "agem": "1812.00420",
    "bic": "1905.13260",
    "clib": "2110.10031",
    "derpp": "2004.07211",
    "er": "1811.11682",
    "er-ace": "2104.05025",
    "ewc": "1801.10112",
    "gss": "1903.08671",
    "joint": "2110.10031",
    "mir": "1908.04742",
    "mkd": "2309.02870",
    "randumb": "2402.08823",
    "ranpac": "2307.02251",
    "rm": "2103.17230",
    "sar": "2410.15143",
    "slda": "1909.01520",
}
PAPERS = {name: f"https://arxiv.org/abs/{number}" for name, number in ARXIV.items()} | {
    "balm": "../balm.md",
    "gdumb": "https://doi.org/10.1007/978-3-030-58536-5_31",
    "ncm": "https://doi.org/10.1109/TPAMI.2013.83",
    "sdp": "https://openreview.net/forum?id=qco4ekz2Epm",
}
BLOCK = "<!-- {name}: python -m benchmarks.method_pages -->\n\n{text}\n\n<!-- /{name} -->"


def written(page: Path) -> str:
    """The page with its blocks of today; what lies outside of these is written by hand."""
    text = page.read_text("utf-8")
    name = page.stem
    blocks = (
        {"choice": choice()} if page == FAQ else {"paper": paper(name), "cost": cost(name), "evidence": evidence(name)}
    )
    for block, made in blocks.items():
        start, end = BLOCK.format(name=block, text="@").split("@")
        assert text.count(start) == text.count(end) == 1, f"{page.name} needs one block of {block}: {start}{end}"
        text = text[: text.index(start)] + start + made + text[text.index(end) :]
    return text


def paper(name: str) -> str:
    """Its citation, with a link."""
    return (
        f"Paper: [{METHODS[name].paper}]({PAPERS[name]})."
        if name != "balm"
        else "Our own: [how it was chosen](../balm.md)."
    )


def cost(name: str) -> str:
    """As `iblurry methods` prints it."""
    ((recipe, method),) = chosen([name]).values()
    told = details(recipe, method, fields=False)
    tasks = "not needed" if method.task_free else "needed"
    return "\n".join(
        [
            "| images through the network | keeps | task boundaries |",
            "|---|---|---|",
            f"| {told['cost']} | {told['stores']} | {tasks} |",
        ]
    )


def evidence(name: str) -> str:
    """Its rows and its variants' beside ER's."""
    rows = {row: group for row, group in _collected().items() if row == REFERENCE or _page_of(row) == name}
    if all(_page_of(row) != name for row in rows):
        command = f"iblurry run {name} --dataset cifar10 --stream Published:folder=splits"
        return f"Not measured yet on CIFAR-10 with the paper's orders; `{command}` does it."
    title = describe_settings([result.experiment for group in rows.values() for result in group])
    return f"{title}; `iblurry show {' '.join(COLLECTED)}`:\n\n{runs_to_markdown(tabulate_runs(rows, METRICS))}".strip()


def choice() -> str:
    """Every method that answers at any time and was measured, the best first; variants are on their methods' pages."""
    rows = {row: group for row, group in _collected().items() if _page_of(row) == row}
    found = {row: [result.metrics.a_auc for result in group] for row, group in rows.items()}
    means = {row: fmean(values) for row, values in found.items() if None not in values}
    best = sorted(means, key=means.__getitem__, reverse=True)
    return runs_to_markdown(tabulate_runs({row: rows[row] for row in best}, CHOICE_METRICS)).strip()


@cache
def _collected() -> dict[str, list[Result]]:
    """Runs on the paper's orders as methods have them, by their rows; those with changes of their own are left out."""
    results = [read_run(folder) for folder in find_runs(ROOT / place for place in COLLECTED)]
    groups = group_runs([result for result in results if isinstance(result.experiment.stream, Published)])
    return {row: group for row, group in groups.items() if " " not in row}


def _page_of(row: str) -> str:
    """The page that has this row: that of the longest name with which it begins."""
    return max((page.stem for page in PAGES.glob("*.md") if f"{row}-".startswith(f"{page.stem}-")), key=len, default="")


if __name__ == "__main__":
    for page in [FAQ, *sorted(PAGES.glob("*.md"))]:
        if page.stem != "index":
            page.write_text(written(page), "utf-8")

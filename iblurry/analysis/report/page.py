"""The page itself: sections, figures and style in one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources
from pathlib import Path

from iblurry.analysis.describe import seed_ranges
from iblurry.analysis.report import sections
from iblurry.analysis.report.compute import compute_section, counting_section
from iblurry.analysis.report.figures import draw_figures
from iblurry.analysis.report.html import Html, definitions, join, metric, tag
from iblurry.analysis.report.report import Report, ReportBlock
from iblurry.analysis.verdict import PAPER_SEEDS, RULE
from iblurry.launch.progress import duration
from iblurry.version import __version__

TERMS = {
    "A_AUC ↑": "area under the curve of accuracy to samples: the mean accuracy over the whole stream.",
    "A_avg ↑": "mean accuracy at the ends of the tasks; – without task boundaries.",
    "A_last ↑": "accuracy at the end of the stream.",
    "F_last ↓": "how much the accuracy of each class fell from its best task end to the last, on average; – "
    "without task boundaries.",
    "±": "one sample standard deviation (n - 1) over n runs that differ only in their seed.",
    "bold": "the best mean of its column; this is not a test of significance.",
    "verdict": f"{RULE}. With fewer than {PAPER_SEEDS} seeds a verdict is provisional.",
}


def render_page(report: Report, beside: Path | None = None) -> str:
    """Make the HTML page of what `report_data` returned; the same bytes for the same runs.

    Parameters
    ----------
    report : Report
        What the page shows.
    beside : Path, optional
        The folder that the page will lie in, for its links to the runs; by default that of the runs.
    """
    code = _asset("table.js")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()  # only it may run, whatever a label says
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="generator", content=f"iblurry {__version__}"),
        tag("title", report.title),
        tag("style", Html(_asset("style.css"))),
    ]
    made = f"Made by iblurry {__version__} from the runs' journals; no number is typed by hand. It needs no network."
    body = [
        tag("a", "Skip to the results", href="#main", class_="skip"),
        _header(report),
        tag(
            "main",
            *(_block(block, report.folder, beside or report.folder) for block in report.blocks),
            _missing(report),
            _reading(report.note),
            counting_section(report),
            id="main",
        ),
        tag("footer", tag("p", made)),
        tag("script", Html(code)),
    ]
    return f'<!doctype html>\n<html lang="en">\n<head>{join(head)}</head>\n<body>{join(body)}</body>\n</html>\n'


def _header(report: Report) -> Html:
    runs = report.runs
    methods = {run.experiment.method.name for run in runs}
    seeds = {run.experiment.seed for run in runs}
    devices = sorted({str(run.environment["device"]) for run in runs if "device" in run.environment})
    facts = {
        "runs finished": f"{report.finished} of {len(runs)}",
        "method" if len(methods) == 1 else "methods": str(len(methods)),
        "seeds" if len(seeds) > 1 else "seed": seed_ranges(seeds),
        "time spent": duration(sum(run.environment.get("seconds", 0) for run in runs)),
        "on": ", ".join("CPU" if name == "cpu" else name for name in devices) or "not recorded",
    }
    links = [tag("a", block.about, href=f"#{block.id}") for block in report.blocks]
    return tag(
        "header",
        tag("h1", report.title),
        tag("p", report.question, class_="lead") if report.question else None,
        definitions(facts, "cards"),
        tag("nav", *links, aria_label="Configurations") if len(links) > 1 else None,
    )


def _block(block: ReportBlock, folder: Path, beside: Path) -> Html:
    figures = draw_figures(block)
    parts: dict[str, Html | None] = {
        "Results": sections.results(block),
        "Not finished or missing": sections.unfinished(block),
        "Accuracy while learning": figures.get("Accuracy while learning"),
        "Compared with the paper": block.beside_paper,
        "Class by class": join([figures.get("Class by class"), sections.by_class(block)]) or None,
        "Learning rate": figures.get("Learning rate"),
        "Compute and memory": join([figures.get("Accuracy and compute"), compute_section(block)]) or None,
        "Settings": sections.settings(block),
        "Runs, versions, hardware": sections.runs(block, folder, beside),
    }
    shown = [
        tag("section", tag("h3", name, id=f"{block.id}-{re.sub('[^a-z0-9]', '-', name.lower())}"), content)
        for name, content in parts.items()
        if content is not None
    ]
    title, rest = block.about.split(", ", 1)
    return tag("section", tag("h2", title, tag("small", rest)), *shown, id=block.id, class_="block")


def _missing(report: Report) -> Html | None:
    """What a study plans and nobody began."""
    if not report.missing or report.study is None:
        return None
    items = [
        tag("li", tag("b", group[0].method.name), f", seed {seed_ranges({one.seed for one in group})}")
        for group in report.missing
    ]
    count = sum(map(len, report.missing))
    words = f"{count} experiments of the study {report.study} have not been started here; `iblurry study` runs them."
    return tag("section", tag("h2", "Missing from the study"), tag("p", words), tag("ul", *items), class_="block")


def _reading(note: str) -> Html:
    """What the words and signs mean."""
    shown = definitions({metric(name): text for name, text in TERMS.items()}, "terms")
    return tag("section", tag("h2", "How to read this"), shown, tag("p", note, class_="note"), class_="block")


def _asset(name: str) -> str:
    return resources.files("iblurry.analysis.report").joinpath(name).read_text("utf-8")

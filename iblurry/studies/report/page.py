"""The page itself: sections, style, scripts and data in one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from typing import Any

from iblurry import web
from iblurry.analysis.describe import display_name, run_command
from iblurry.analysis.figures.style import describe_n
from iblurry.analysis.method_style import COLOURS
from iblurry.analysis.verdict import PAPER_SEEDS, RULE
from iblurry.launch.progress import duration
from iblurry.studies.paper import load_paper
from iblurry.studies.report import sections
from iblurry.studies.report.charts import chart_data, class_maps
from iblurry.studies.report.compute import compute_section, counting_section
from iblurry.studies.report.data import Report, ReportBlock
from iblurry.studies.report.html import Html, definitions, join, metric, tag
from iblurry.version import __version__

SHARED = ("uplot/uPlot.min.css", "style.css", "table.css", "chart.css")
STYLES = ("parts.css", "print.css")
COLOUR_CLASSES = " ".join(f".c{number} {{ --c: var(--c{number}); }}" for number in range(len(COLOURS)))  # of rows
RATE = "The learning rate at each query: the line is the geometric mean over seeds, the band the range."
MAPS = "Each line is a class, from its first sample on, in order of arrival; brighter means higher accuracy."
SCRIPTS = ("page.js", "colours.js", "tables.js", "chart.js", "marks.js", "maps.js", "start.js")
Drawn = dict[str, Any]  # of a block: what the scripts draw


def render_page(report: Report) -> str:
    """The HTML page of what `report_data` returned; the same bytes for the same runs."""
    ours = "\n".join(map(_asset, SCRIPTS))
    code = f'{web.uplot()}\n(function () {{\n"use strict";\n{ours}\n}})();\n'
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()  # only it may run, whatever a label says
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    drawn: list[Drawn] = [
        {
            "id": block.id,
            "names": [display_name(name) for name in block.names],
            "looks": [[style.colour_number, style.line_number] for style in block.styles.values()],
            "chart": chart_data(block),
            "maps": class_maps(block),
        }
        for block in report.blocks
    ]
    data = json.dumps(drawn, separators=(",", ":"), allow_nan=False)
    data = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")  # cannot end its own element
    made = f"Made by iblurry {__version__} from the runs' journals; no number is typed by hand. "
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="generator", content=f"iblurry {__version__}"),
        tag("title", report.title),
        tag("style", Html("\n".join([*map(web.text, SHARED), COLOUR_CLASSES, *map(_asset, STYLES)]))),
    ]
    body = [
        tag("a", "Skip to the results", href="#main", class_="skip"),
        _header(report),
        tag(
            "main",
            *(_block(block, shown, report) for block, shown in zip(report.blocks, drawn, strict=True)),
            _missing(report),
            _reading(report),
            counting_section(report),
            id="main",
        ),
        tag("footer", tag("p", made, "Charts: uPlot, MIT licence. This file needs no network.")),
        tag("script", Html(data), type="application/json", id="data"),
        tag("script", Html(code)),
    ]
    return f'<!doctype html>\n<html lang="en">\n<head>{join(head)}</head>\n<body>{join(body)}</body>\n</html>\n'


def _header(report: Report) -> Html:
    study, runs = report.study, report.runs
    shows = f" ({', '.join(study.shows)} of the paper)" if study and study.shows else ""
    methods = {run.experiment.method.name for run in runs}
    seeds = sorted({run.experiment.seed for run in runs})
    devices = sorted({str(run.environment["device"]) for run in runs if "device" in run.environment})
    facts = {
        "runs finished": f"{report.finished} of {len(runs)}",
        "method" if len(methods) == 1 else "methods": str(len(methods)),
        "seeds" if len(seeds) > 1 else "seed": _ranges(seeds),
        "time spent": duration(sum(run.environment.get("seconds", 0) for run in runs)),
        "on": ", ".join("CPU" if name == "cpu" else name for name in devices) or "not recorded",
    }
    links = [tag("a", str(block.configuration), href=f"#{block.id}") for block in report.blocks]
    return tag(
        "header",
        tag("p", "iblurry report", class_="eyebrow"),
        tag("h1", report.title),
        tag("p", f"{study.question}{shows}", class_="lead") if study else None,
        definitions(facts, "cards"),
        tag("nav", *links, aria_label="Configurations") if len(links) > 1 else None,
    )


def _block(block: ReportBlock, drawn: Drawn, report: Report) -> Html:
    lines, maps = drawn["chart"]["lines"], None
    if drawn["maps"]:
        maps = join([tag("p", MAPS, class_="note"), tag("div", class_="maps"), sections.by_class(block)])
    parts: dict[str, Html | None] = {
        "Results": sections.results(block),
        "Not finished or missing": sections.unfinished(block),
        "Accuracy while learning": _figure("accuracy", _caption(drawn["chart"])) if lines else None,
        "Compared with the paper": sections.beside_paper(block),
        "Class by class": maps,
        "Learning rate": _figure("rate", RATE) if any("rate" in line for line in lines) else None,
        "Compute and memory": compute_section(block),
        "Settings": sections.settings(block),
        "Runs, versions, hardware": sections.runs(block, report.folder),
        "Run it again": sections.commands(block),
    }
    shown = [
        tag("section", tag("h3", name, id=f"{block.id}-{re.sub('[^a-z0-9]', '-', name.lower())}"), content)
        for name, content in parts.items()
        if content is not None
    ]
    title, rest = str(block.configuration).split(", ", 1)
    heading = tag("h2", title, tag("small", rest))
    return tag("section", heading, *shown, id=block.id, class_="block")


def _figure(kind: str, caption: str) -> Html:
    without = tag("noscript", tag("p", "The curves need JavaScript; please turn it on in your browser."))
    return tag("figure", tag("div", class_="chart", data_kind=kind), without, tag("figcaption", caption))


def _caption(chart: dict[str, Any]) -> str:
    every = chart["every"]
    rings = any(line["after"] for line in chart["lines"])
    after = "Rings: accuracy after the end of a task, if it changed. " if rings else ""
    ordinal = {2: "second", 3: "third"}.get(every, f"{every}th")
    thinned = f" Every {ordinal} query is drawn; the numbers are of all." if every > 1 else ""
    seeds = describe_n([len(line["seeds"]) for line in chart["lines"]], "seed")
    return (
        f"Accuracy on the classes seen so far: lines are means, bands ± one sample standard deviation, {seeds}. "
        f"Ticks below: the first sample of a class. {after}Drag to zoom, double-click for all; keys: arrows, +, −, 0."
        + thinned
    )


def _missing(report: Report) -> Html | None:
    """What a study plans and nobody began."""
    if not report.missing or report.study is None:
        return None
    lines = [run_command(group) or f"# {group[0].method.name}: only Python can build it" for group in report.missing]
    count = sum(map(len, report.missing))
    heading = tag("h2", "Missing from the study")
    words = tag("p", f"{count} experiments of the study {report.study.name} have not been started here.")
    return tag("section", heading, words, sections.copied(lines), class_="block", id="missing")


def _reading(report: Report) -> Html:
    """What the words and signs mean."""
    bold = any(block.finished.table.cells["best"].any() for block in report.blocks)
    terms = {
        "A_AUC ↑": "area under the curve of accuracy to samples: the mean accuracy over the whole stream.",
        "A_avg ↑": "mean accuracy at the ends of the tasks; – without task boundaries.",
        "A_last ↑": "accuracy at the end of the stream.",
        "F_last ↓": "how much the accuracy of each class fell from its best task end to the last, on average; – "
        "without task boundaries.",
        "±": "one sample standard deviation (n - 1) over n runs that differ only in their seed.",
        **({"bold": "the best mean of its column; this is not a test of significance."} if bold else {}),
        "verdict": f"{RULE}. With fewer than {PAPER_SEEDS} seeds a verdict is provisional.",
    }
    shown = definitions({metric(name): text for name, text in terms.items()}, "terms")
    paper = tag("p", f"The paper: {load_paper()['paper']}. Its numbers: {load_paper()['units']}.", class_="note")
    return tag("section", tag("h2", "How to read this"), shown, paper, class_="block")


def _asset(name: str) -> str:
    return resources.files("iblurry.studies.report").joinpath("assets", name).read_text("utf-8")


def _ranges(numbers: list[int]) -> str:
    """1–3 for three in a row."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(map(str, numbers)) if len(numbers) < 6 else str(len(numbers))

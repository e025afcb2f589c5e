"""The page itself: sections, style, scripts and data in one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any

from iblurry import web
from iblurry.studies.compare import SEEDS
from iblurry.studies.paper import load_paper
from iblurry.studies.report import sections
from iblurry.studies.report.compute import compute_section, counting_section
from iblurry.studies.report.html import Html, join, tag
from iblurry.version import __version__

SHARED = ("uplot/uPlot.min.css", "style.css", "table.css", "chart.css")
STYLES = ("parts.css", "print.css")
SCRIPTS = ("page.js", "colours.js", "tables.js", "chart.js", "marks.js", "maps.js", "start.js")
DRAWN = ("id", "names", "chart", "maps")  # of a block: what the scripts draw

Json = dict[str, Any]


def render_page(data: Json) -> str:
    """The HTML page of what `report_data` returned; the same bytes for the same data."""
    code = _script()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{_digest(code)}'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="generator", content=f"iblurry {__version__}"),
        tag("title", data["title"]),
        tag("style", Html("\n".join([*map(web.text, SHARED), *map(_asset, STYLES)]))),
    ]
    body = [
        tag("a", "To the results", href="#main", class_="skip"),
        _header(data),
        tag(
            "main",
            *(_block(block, data) for block in data["blocks"]),
            _missing(data),
            _reading(),
            counting_section(data),
            id="main",
        ),
        _footer(),
        tag("script", _embedded(data), type="application/json", id="data"),
        tag("script", Html(code)),
    ]
    return f'<!doctype html>\n<html lang="en">\n<head>{join(head)}</head>\n<body>{join(body)}</body>\n</html>\n'


def _header(data: Json) -> Html:
    study = data["study"]
    shows = f" ({', '.join(study['shows'])} of the paper)" if study and study["shows"] else ""
    facts = {
        "runs finished": f"{data['finished']} of {data['runs']}",
        "method" if len(data["methods"]) == 1 else "methods": str(len(data["methods"])),
        "seeds" if len(data["seeds"]) > 1 else "seed": _ranges(data["seeds"]),
        "time spent": sections.duration(data["seconds"]),
        "on": ", ".join("CPU" if name == "cpu" else name for name in data["devices"]) or "not noted",
    }
    links = [tag("a", block["title"], href=f"#{block['id']}") for block in data["blocks"]]
    return tag(
        "header",
        tag("p", "iblurry report", class_="eyebrow"),
        tag("h1", data["title"]),
        tag("p", f"{study['question']}{shows}", class_="lead") if study else None,
        tag("dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in facts.items()), class_="cards"),
        tag("nav", *links, aria_label="Configurations") if len(links) > 1 else None,
    )


def _block(block: Json, data: Json) -> Html:
    parts: dict[str, Html | None] = {
        "Results": sections.results(block),
        "Not finished or missing": sections.unfinished(block),
        "Accuracy while learning": _figure("accuracy", _caption(block)) if block["chart"]["lines"] else None,
        "Beside the paper": sections.beside_paper(block),
        "Class by class": join([tag("p", MAPS, class_="note"), tag("div", class_="maps"), sections.by_class(block)])
        if block["maps"]
        else None,
        "Learning rate": _figure("rate", RATE) if any("rate" in line for line in block["chart"]["lines"]) else None,
        "What was spent": compute_section(block),
        "Settings": sections.settings(block),
        "Runs, versions, hardware": sections.runs(block),
        "Run it again": sections.commands(block),
    }
    shown = [
        tag("section", tag("h3", name, id=f"{block['id']}-{_slug(name)}"), content)
        for name, content in parts.items()
        if content is not None
    ]
    title, *rest = block["title"].split(", ", 1)
    heading = tag("h2", title, *(tag("small", text) for text in rest))
    return tag("section", heading, *shown, id=block["id"], class_="block")


def _figure(kind: str, caption: str) -> Html:
    without = tag("noscript", tag("p", "The curves are drawn by a script inside this file; your browser runs none."))
    return tag("figure", tag("div", class_="chart", data_kind=kind), without, tag("figcaption", caption))


RATE = "The learning rate at each query: the geometric mean over seeds, the band from the least to the largest."


MAPS = (
    "A line is a class, from its first sample on, in order of arrival; the brighter, the more of its images are right."
)


def _caption(block: Json) -> str:
    every = block["chart"]["every"]
    rings = any(line["after"] for line in block["chart"]["lines"])
    after = "Rings: the answers after the end of a task, where it changed them. " if rings else ""
    thinned = f" Every {every}th query is drawn; the numbers are of all." if every > 3 else ""
    if every in (2, 3):
        thinned = f" Every {'second' if every == 2 else 'third'} query is drawn; the numbers are of all."
    return (
        "Accuracy on the classes met so far, mean over seeds; the band is one sample standard deviation either way. "
        f"Ticks below: the first sample of a class. {after}Drag to zoom, double-click for all; keys: arrows, +, −, 0."
        + thinned
    )


def _missing(data: Json) -> Html | None:
    """What a study plans and nobody began."""
    if not data["missing"]:
        return None
    lines = [one["command"] or f"# {one['method']}: only Python can build it" for one in data["missing"]]
    count = sum(len(one["seeds"]) for one in data["missing"])
    heading = tag("h2", "Missing from the study")
    words = tag("p", f"{count} experiments of the study {data['study']['name']} have not been begun here.")
    return tag("section", heading, words, sections.copied(lines), class_="block", id="missing")


def _reading() -> Html:
    """What the words and signs mean."""
    terms = {
        "A_AUC ↑": "area under the curve of accuracy to samples: how good the answers were at any time, on average.",
        "A_avg ↑": "mean accuracy at the ends of the tasks.",
        "A_last ↑": "accuracy at the end of the stream.",
        "F_last ↓": "how far each class fell from its best earlier task end to the last, on average; less is better.",
        "±": "one sample standard deviation (n - 1) over n runs that differ only in their seed.",
        "bold": "the best mean of its column; no test of significance.",
        "verdict": "within the spreads: the means are no further apart than the paper's spread and ours together; "
        "otherwise above or below. Where this project set itself a target, within it or beyond it. Numbers marked ⚠ "
        f"are probably copy errors and are not judged. With fewer than {SEEDS} seeds a verdict is provisional.",
    }
    items = [tag("div", tag("dt", sections.metric(name)), tag("dd", text)) for name, text in terms.items()]
    paper = tag("p", f"The paper: {load_paper()['paper']}. Its numbers: {load_paper()['units']}.", class_="note")
    return tag("section", tag("h2", "How to read this"), tag("dl", *items, class_="terms"), paper, class_="block")


def _footer() -> Html:
    made = f"Made by iblurry {__version__} from the runs' journals; no number is typed by hand. "
    return tag("footer", tag("p", made, "Charts: uPlot, MIT licence. This file needs no network."))


def _script() -> str:
    ours = "\n".join(map(_asset, SCRIPTS))
    return f'{web.uplot()}\n(function () {{\n"use strict";\n{ours}\n}})();\n'


def _digest(code: str) -> str:
    """Only this script may run, whatever a label says."""
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def _embedded(data: Json) -> Html:
    """JSON that cannot end its own element."""
    drawn = [{name: block[name] for name in DRAWN} for block in data["blocks"]]
    text = json.dumps(drawn, separators=(",", ":"), allow_nan=False)
    return Html(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _asset(name: str) -> str:
    return resources.files("iblurry.studies.report").joinpath("assets", name).read_text("utf-8")


def _ranges(numbers: list[int]) -> str:
    """1–3 for three in a row."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(map(str, numbers)) if len(numbers) < 6 else str(len(numbers))


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())

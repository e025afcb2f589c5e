"""The report's page: whole, the same again, safe from what labels say, readable."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from iblurry.analysis.report.figures import draw_figures
from iblurry.analysis.report.html import Html, tag
from iblurry.analysis.report.page import render_page
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Journal, NewClass, Query, Start, TaskEnd
from iblurry.studies.report import report_data
from tests.analysis.test_report_data import rewrite, stop
from tests.studies.written import spend, usual, write_run

EVIL = '</script><b onload="x">&\u2028'
SVG = "data:image/svg+xml;base64,"


class Elements(HTMLParser):
    """Counts elements, checks that they nest, and keeps texts and addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.names, self.texts, self.attributes, self.pictures = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        self.attributes += attributes
        if name == "img":
            self.pictures.append(dict(attributes))
        if name not in ("meta", "img", "wbr"):
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, text):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture
def runs(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path / "runs", usual("clib", seed), 71)
        write_run(tmp_path / "runs", usual("er", seed), 57)
    return tmp_path / "runs"


def read_area(folder):
    (run,) = report_data(folder).runs
    return 100 * np.mean([record.accuracy for record in run.records if isinstance(record, Query)])


def test_sections_and_numbers(runs):
    found = Elements(render_page(report_data(runs)))
    assert found.open == []
    assert found.names.count("h1") == 1
    for heading in (
        *("Results", "Accuracy while learning", "Compared with the paper", "Class by class", "Learning rate"),
        *("Settings", "Runs, versions, hardware", "How to read this"),
    ):
        assert heading in found.texts
    areas = {name: [read_area(folder) for folder in runs.glob(f"{name}-*")] for name in ("clib", "er")}
    for values in areas.values():
        assert f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" in found.texts
    assert "70.26 ± 1.28" in found.texts
    assert "6 of 6" in found.texts
    assert usual("clib").name in found.texts  # the folder
    assert {"10.0 min", "Some GPU"} <= set(found.texts)
    assert "Not finished or missing" not in found.texts


def test_the_best_mean_is_bold_unless_it_is_a_bound_or_alone(runs, tmp_path):
    write_run(runs, usual("joint"), 90)
    page = render_page(report_data(runs))
    bold = re.findall(r"<strong>([\d.]+)", page)
    clib = [read_area(folder) for folder in runs.glob("clib-*")]
    assert f"{np.mean(clib):.2f}" in bold
    assert all(float(one) < 80 for one in bold)
    write_run(tmp_path / "alone", usual("clib"), 70)
    assert "<strong>" not in render_page(report_data(tmp_path / "alone"))


def test_every_figure_is_a_picture_with_a_text_and_a_caption(runs):
    for folder in runs.iterdir():
        spend(folder, training=100, losses=0, distillation=20, parts=3, queries=9)
    found = Elements(render_page(report_data(runs)))
    assert len(found.pictures) == found.names.count("figcaption") == 4
    for picture in found.pictures:
        assert "clib" in picture["alt"].lower()
        svg = ElementTree.fromstring(base64.b64decode(picture["src"].removeprefix(SVG)))
        assert svg.tag.endswith("svg")
        assert float(svg.get("width").removesuffix("pt")) > 100


def test_runs_under_way_are_drawn_too_and_what_was_never_asked_is_not(tmp_path):
    folders = [write_run(tmp_path, usual("clib", seed), 70)[0] for seed in (1, 2)]
    write_run(tmp_path, usual("joint"), 90)
    stop(folders[0], 4)
    (block,) = report_data(tmp_path).blocks
    curves = draw_figures(block)["Accuracy while learning"]
    assert all(name in curves for name in ("clib (unfinished) ", "clib ", "joint "))
    for folder in (*folders, *tmp_path.glob("joint-*")):
        if (folder / "summary.json").exists():
            stop(folder, 1)
    stopped = report_data(tmp_path).blocks[0]
    assert "joint" not in draw_figures(stopped)["Accuracy while learning"]
    (folders[0] / "journal.jsonl").unlink()
    assert draw_figures(report_data(tmp_path).blocks[0]) == {}
    assert "No finished run yet: clib, joint." in Elements(render_page(report_data(tmp_path))).texts


def test_runs_without_a_query_in_common_have_no_curve(tmp_path):
    for seed, at in ((1, 20), (2, 30)):
        folder, *_ = write_run(tmp_path, usual("clib", seed), 70)
        rewrite(
            folder,
            Start(usual("clib", seed).digest, 40, (40,), 10),
            NewClass(1, "ship"),
            Query(at, 0, (5,), (10,), 0.1, at),
        )
    assert "Accuracy while learning" not in draw_figures(report_data(tmp_path).blocks[0])


def test_what_was_spent_and_what_is_counted(runs):
    without = Elements(render_page(report_data(runs)))
    assert "What is counted" not in without.texts
    for folder in runs.glob("er-*"):
        spend(folder, training=100_000, losses=0, distillation=20_000, parts=3000, queries=9)
    found = Elements(render_page(report_data(runs)))
    assert found.texts.count("Compute and memory") == 1
    assert ("href", "#counted") in found.attributes
    assert ("id", "counted") in found.attributes
    for number in ("0.323", "0.3", "0.02", "0.003", "9e-06", "100,000 / 100,000", "20,000 / 0", "7"):
        assert number in found.texts
    assert "Runs of an older version, which counted nothing: clib." in found.texts


def test_a_page_asks_nobody_for_anything(runs):
    text = render_page(report_data(runs))
    found = Elements(text)
    places = [value for name, value in found.attributes if name in ("src", "href", "action", "srcset", "data")]
    assert all(value.startswith(("#", "data:")) or (runs / value).is_dir() for value in places)
    assert "link" not in found.names
    assert not re.search(r"@import|url\((?!data:)", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src &#x27;none&#x27;" in policy
    assert f"script-src &#x27;sha256-{digest}&#x27;" in policy


def test_links_lead_to_the_runs_from_where_the_page_lies(runs, tmp_path):
    beside = tmp_path / "a" / "b"
    found = Elements(render_page(report_data(runs), beside))
    links = [value for name, value in found.attributes if name == "href" and not value.startswith("#")]
    assert {Path(beside, link).resolve() for link in links} == {*runs.iterdir()}


def test_the_same_folder_is_the_same_page(runs, tmp_path, monkeypatch):
    text = render_page(report_data(runs))
    monkeypatch.chdir(tmp_path)
    assert render_page(report_data(runs.relative_to(tmp_path))) == text  # whatever the folder is called from here
    assert str(tmp_path) not in text


def test_labels_are_text(tmp_path):
    experiment = usual("clib")
    experiment = replace(experiment, method=replace(experiment.method, name=EVIL))
    folder, *_ = write_run(tmp_path, experiment, 70)
    rewrite(
        folder,
        Start(experiment.digest, 20, (20,), 20),
        NewClass(1, EVIL),
        Query(20, 0, (5,), (10,), 0.1, 20),
        TaskEnd(20, 0, (5,), (10,), 0.1, 20),
    )
    text = render_page(report_data(tmp_path, title=EVIL))
    found = Elements(text)
    assert "b" not in found.names
    assert found.names.count("script") == 1
    assert found.texts.count(EVIL) >= 3  # title, heading, row
    assert EVIL not in text


def test_elements_escape():
    assert tag("a", "<", Html("<br>"), title='"', hidden=False, open=True) == '<a title="&quot;" open>&lt;<br></a>'
    assert tag("p", None, 3, class_=None) == "<p>3</p>"


def test_what_is_not_finished(runs):
    stop(sorted(runs.iterdir())[0], 4)
    found = Elements(render_page(report_data(runs)))
    assert "Not finished or missing" in found.texts
    assert ("value", "20") in found.attributes
    assert ("max", "100") in found.attributes
    assert "20 of 100 samples (20 %)" in found.text


@pytest.mark.slow
def test_fifty_long_runs_are_a_small_page(tmp_path):
    rng, classes, samples = np.random.default_rng(0), 100, 50_000
    (tmp_path / "runs").mkdir()
    for seed in range(1, 6):
        for number in range(10):
            experiment = Experiment.of("clib", "cifar100", seed=seed)
            experiment = replace(experiment, method=replace(experiment.method, name=f"mine-{number}"))
            folder, *_ = write_run(tmp_path / "runs", experiment, 50)
            (folder / "journal.jsonl").unlink()
            right = rng.integers(0, 100, (200, classes)).tolist()
            with Journal(folder / "journal.jsonl") as journal:
                journal.append(Start(experiment.digest, samples, (samples,), 250))
                for c in range(classes):
                    journal.append(NewClass(1 + c, f"class {c}"))
                for at, correct in zip(range(250, samples + 1, 250), right, strict=True):
                    journal.append(Query(at, 0, tuple(correct), (100,) * classes, rng.uniform(), at))
                journal.append(TaskEnd(samples, 0, tuple(correct), (100,) * classes, 0.1, at))
    data = report_data(tmp_path / "runs")
    assert data.finished == 50
    assert len(render_page(data)) < 3_000_000

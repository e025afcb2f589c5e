"""The report's page: whole, the same again, safe from what labels say, readable."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest

from iblurry import compute
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Journal, NewClass, Query, Start, TaskEnd
from iblurry.learner import cost
from iblurry.studies.report.compute import HOLDING_TEXTS, PURPOSE_TEXTS, _amount, _unit
from iblurry.studies.report.data import report_data
from iblurry.studies.report.html import Html, tag
from iblurry.studies.report.page import SCRIPTS, STYLES, render_page
from tests.studies.test_report_data import rewrite, stop
from tests.studies.written import spend, usual, write_run

ASSETS = resources.files("iblurry.studies.report") / "assets"
EVIL = '</script><b onload="x">&\u2028'


class Elements(HTMLParser):
    """Counts elements, checks that they nest, and keeps texts and addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.names, self.texts, self.attributes = [], [], [], []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        self.attributes += attributes
        if name not in ("meta", "input", "br", "col", "wbr"):
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


def test_sections_and_numbers(runs):
    data = report_data(runs)
    found = Elements(render_page(data))
    assert found.open == []
    assert found.names.count("h1") == 1
    for heading in (
        *("Results", "Accuracy while learning", "Compared with the paper", "Class by class", "Learning rate"),
        *("Settings", "Runs, versions, hardware", "Run it again", "How to read this"),
    ):
        assert heading in found.texts
    area = str(data.blocks[0].finished.table.ours("clib", "", "a_auc"))
    assert area in found.texts
    assert "70.26 ± 1.28" in found.texts
    assert "iblurry run clib --dataset cifar10 --seeds 1,2,3" in found.text
    assert "6 of 6" in found.texts
    assert usual("clib").name in found.texts  # the folder
    assert {"10.0 min", "Some GPU"} <= set(found.texts)
    assert "Not finished or missing" not in found.texts
    assert "Best at any time: clib , A AUC " + area in found.text


def test_a_method_has_its_colour_on_every_page_and_n_is_said(runs, tmp_path):
    write_run(tmp_path / "more", usual("clib", 1), 70)
    write_run(tmp_path / "more", usual("bic", 1), 70)  # before clib, by name
    for folder in (runs, tmp_path / "more"):
        text = render_page(report_data(folder))
        assert re.search(r'class="key c0 d0"[^>]*></i><span>clib</span>', text)
    assert "n = 1 seed." in text
    assert "n = 3 seeds." in render_page(report_data(runs))


def test_what_was_spent_and_what_is_counted(runs):
    without = Elements(render_page(report_data(runs)))
    assert "Compute and memory" not in without.texts
    assert "What is counted" not in without.texts
    for folder in runs.glob("er-*"):
        spend(folder, training=100, losses=0, distillation=20, parts=3, queries=9)
    found = Elements(render_page(report_data(runs)))
    assert found.texts.count("Compute and memory") == 1
    assert ("href", "#counted") in found.attributes
    assert ("id", "counted") in found.attributes
    assert "Operations of a whole run in MFLOP, 10⁶ floating-point operations" in found.text
    for number in ("323", "300", "20.0", "3.00", "9.00", "100 / 100", "20 / 0"):
        assert number in found.texts
    assert "Runs of an older version, which counted nothing: clib." in found.texts
    assert "calls the purposes training, losses, distillation, parts, features, queries" in found.text
    assert {*PURPOSE_TEXTS} == {*compute.PURPOSES}
    assert {*HOLDING_TEXTS} == {*cost.HOLDINGS}


@pytest.mark.parametrize(
    "values, largest, text",
    [
        ([3e16, 1], "30.0", "P"),
        ([999e9, 5e9], "999", "G"),
        ([1e12], "1.00", "T"),
        ([2_500.0, 0.4], "2.50", "k"),
        ([12.0], "0.012", "k"),
        ([0.0], "0", "k"),
    ],
)
def test_units_suit_the_largest(values, largest, text):
    size, prefix, _ = _unit(values)
    assert (prefix, re.search(r">(.*)<", _amount(max(values), size))[1]) == (text, largest)
    assert _amount(4_000_000, 1e9) == '<td class="n" data-value="4000000">0.004</td>'
    assert "&lt;0.001" in _amount(4_000, 1e9)


def test_a_page_asks_nobody_for_anything(runs):
    text = render_page(report_data(runs))
    found = Elements(text)
    places = [value for name, value in found.attributes if name in ("src", "href", "action", "srcset", "data")]
    assert all(value.startswith("#") for value in places)
    assert "link" not in found.names
    assert not re.search(r"@import|url\((?!data:)", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src &#x27;none&#x27;" in policy
    assert f"script-src &#x27;sha256-{digest}&#x27;" in policy
    assert "The MIT License" in script  # its terms: the notice goes with every copy


def test_the_same_folder_is_the_same_page(runs, tmp_path, monkeypatch):
    text = render_page(report_data(runs))
    assert render_page(report_data(runs)) == text
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
    assert found.names.count("script") == 2
    assert found.texts.count(EVIL) >= 3  # title, heading, row
    assert EVIL not in text
    assert "was built in Python" in found.text


def test_elements_escape():
    assert tag("a", "<", Html("<br>"), title='"', hidden=False, open=True) == '<a title="&quot;" open>&lt;<br></a>'
    assert tag("p", None, 3, class_=None) == "<p>3</p>"


def test_what_is_not_finished(runs):
    first = sorted(runs.iterdir())[0]
    stop(first, 4)
    found = Elements(render_page(report_data(runs)))
    assert "Not finished or missing" in found.texts
    assert ("value", "20") in found.attributes
    assert ("max", "100") in found.attributes
    assert "20 of 100 samples (20 %)" in found.text
    for folder in runs.iterdir():
        if (folder / "summary.json").exists():
            stop(folder, 0)
    found = Elements(render_page(report_data(runs)))
    assert "No finished run yet: clib, er." in found.texts
    assert "is not started." in found.text


def test_one_seed_has_no_spread_to_compare_with(tmp_path):
    write_run(tmp_path, usual("clib"), 71)
    write_run(tmp_path, usual("er"), 57)
    assert "sum of both" not in Elements(render_page(report_data(tmp_path))).text.split("How to read this")[0]


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


@pytest.mark.parametrize("name", [*SCRIPTS, *STYLES])
def test_assets_are_short_and_say_what_they_are(name):
    text = (ASSETS / name).read_text("utf-8")
    assert text.count("\n") <= 300
    assert text.startswith(("// ", "/* "))
    assert "</script" not in text
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|XMLHttp", text)

"""The report: what it shows, recomputed from journals that the tests write; whole, the same again, safe, readable."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from iblurry import compute
from iblurry.components.edit import edit
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Journal, NewClass, Query, Start, TaskEnd
from iblurry.learner import cost
from iblurry.studies.catalogue import get_study
from iblurry.studies.html import Html, tag
from iblurry.studies.report import HOLDINGS, PURPOSES, draw_figures, mean_compute, render_page, report_data
from tests.studies.written import FLOPS, SAMPLES, rewrite, spend, stop, usual, write_run

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


def page(place, **options):
    return Elements(render_page(report_data(place, **options)))


def after(found, text, count):
    """The texts that follow one."""
    start = found.texts.index(text) + 1
    return found.texts[start : start + count]


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
    found = page(runs)
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
    paper = after(found, "70.26 ± 1.28", 2)
    assert paper[0].startswith(f"{np.mean(areas['clib']):.2f}")
    assert paper[1] == f"{np.mean(areas['clib']) - 70.26:+.2f}"
    assert "6 of 6" in found.texts
    assert usual("clib").name in found.texts  # the folder
    assert {"10.0 min", "Some GPU"} <= set(found.texts)
    assert not {"Not finished or missing", "What is counted"} & set(found.texts)


def test_beside_the_paper_a_method_that_departs_says_so(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path / "some", edit(usual("clib", seed), "admission.step=0.2"), 60)
    found = page(tmp_path / "some")
    assert {"not in the paper: admission.step=0.2", "57.34 ± 2.10"} <= set(found.texts)
    write_run(tmp_path / "none", usual("clib", memory=123), 70)
    assert "Compared with the paper" not in page(tmp_path / "none").texts


def test_the_best_mean_is_bold_unless_it_is_a_bound_or_alone(runs, tmp_path):
    write_run(runs, usual("joint"), 90)
    bold = re.findall(r"<strong>([\d.]+)", render_page(report_data(runs)))
    clib = [read_area(folder) for folder in runs.glob("clib-*")]
    assert f"{np.mean(clib):.2f}" in bold
    assert all(float(one) < 80 for one in bold)
    write_run(tmp_path / "alone", usual("clib"), 70)
    assert "<strong>" not in render_page(report_data(tmp_path / "alone"))


def test_settings_what_differs_comes_first(tmp_path):
    write_run(tmp_path, usual("clib"), 70)
    write_run(tmp_path, edit(usual("clib"), "admission.step=0.2"), 70)
    texts = page(tmp_path).texts
    differ = texts.index("What differs between the rows")
    assert texts[differ:].index("step") < texts[differ:].index("In all")
    assert after(page(tmp_path), "step", 2) == ["0.1", "0.2"]


def test_versions_and_places(tmp_path):
    write_run(tmp_path, usual("clib", 1), 70, seconds=100)
    folder, *_ = write_run(tmp_path, usual("clib", 2), 70, seconds=50, device="cpu")
    assert {"Some GPU", "cpu"} <= set(after(page(tmp_path), "2 runs", 60))
    (folder / "environment.json").write_text(json.dumps({"torch": "2.13.0"}))
    found = page(tmp_path)
    assert after(found, "PyTorch", 1) == ["2.13.0"]
    assert "not recorded" in found.texts


def test_what_was_spent_is_the_last_account_of_each_run(tmp_path):
    areas = []
    for seed, teacher in ((1, 30), (2, 50)):
        folder, area, _ = write_run(tmp_path, usual("bic", seed), 60)
        spend(folder, training=1, losses=1, distillation=1, parts=1, queries=1)  # of an earlier task
        spend(folder, training=100, losses=0, distillation=teacher, parts=seed, queries=900)
        areas.append(area / (FLOPS * (300 + teacher + seed) / 1e12))
    older, *_ = write_run(tmp_path, usual("mir"), 60)
    spend(older, training=100, losses=0, parts=70, queries=900)
    for seed in (1, 2):
        folder, *_ = write_run(tmp_path, usual("er", seed), 60)
    spend(folder, training=1, queries=1)  # of one of its two runs
    (block,) = report_data(tmp_path).blocks
    found = {row: mean_compute(runs) for row, runs in block.finished.items()}
    assert [name for name, mean in found.items() if mean is not None] == ["bic", "mir"]
    bic, mir = found["bic"], found["mir"]
    assert bic["updates", ""] == SAMPLES
    zero = dict.fromkeys(PURPOSES, 0)
    assert bic["forward"].to_dict() == zero | {"training": 100, "distillation": 40, "parts": 1.5, "queries": 900}
    assert bic["backward"].to_dict() == zero | {"training": 100}
    assert bic["flops", "training"] == 3 * 100 * FLOPS
    assert block.table.ours("bic", "", "per_compute").mean == pytest.approx(np.mean(areas))
    assert mir["forward"][["distillation", "parts"]].tolist() == [0, 70]
    assert mir["bytes"].to_dict() == dict.fromkeys(HOLDINGS, 0) | {"memory": 5e6, "parts": 2e6, "network": 500}
    assert {*PURPOSES} == {*compute.PURPOSES}
    assert {*HOLDINGS} == {*cost.HOLDINGS}


def test_what_was_spent_and_what_is_counted(runs):
    for folder in runs.glob("er-*"):
        spend(folder, training=100_000, losses=0, distillation=20_000, parts=3000, queries=9)
    found = page(runs)
    assert found.texts.count("Compute and memory") == 1
    assert ("href", "#counted") in found.attributes
    assert ("id", "counted") in found.attributes
    for number in ("0.323", "0.3", "0.02", "0.003", "9e-06", "100,000 / 100,000", "20,000 / 0", "7"):
        assert number in found.texts
    assert "Runs of an older version, which counted nothing: clib." in found.texts


def test_every_figure_is_a_picture_with_a_text_and_a_caption(runs):
    for folder in runs.iterdir():
        spend(folder, training=100, losses=0, distillation=20, parts=3, queries=9)
    found = page(runs)
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
    curves = draw_figures(report_data(tmp_path).blocks[0])["Accuracy while learning"]
    assert all(name in curves for name in ("clib (unfinished) ", "clib ", "joint "))
    for folder in (*folders, *tmp_path.glob("joint-*")):
        if (folder / "summary.json").exists():
            stop(folder, 1)
    assert "joint" not in draw_figures(report_data(tmp_path).blocks[0])["Accuracy while learning"]
    (folders[0] / "journal.jsonl").unlink()
    assert draw_figures(report_data(tmp_path).blocks[0]) == {}
    assert "No finished run yet: clib, joint." in page(tmp_path).texts


def test_runs_without_a_query_in_common_have_no_curve(tmp_path):
    for seed, at in ((1, 20), (2, 30)):
        folder, *_ = write_run(tmp_path, usual("clib", seed), 70)
        start = Start(usual("clib", seed).digest, 40, (40,), 10)
        rewrite(folder, start, NewClass(1, "ship"), Query(at, 0, (5,), (10,), 0.1, at))
    assert "Accuracy while learning" not in draw_figures(report_data(tmp_path).blocks[0])


def test_the_numbers_of_classes_at_the_end(tmp_path):
    folder, *_ = write_run(tmp_path, usual("clib"), 70)
    rewrite(
        folder,
        Start(usual("clib").digest, 40, (20, 40), 20),
        NewClass(1, "ship"),
        Query(20, 0, (5,), (10,), 0.1, 20),
        NewClass(21, "frog"),
        Query(40, 1, (10, 0), (10, 4), 0.1, 40),
        TaskEnd(40, 1, (10, 1), (10, 4), 0.1, 40),
    )
    found = page(tmp_path)
    assert (after(found, "frog", 1), after(found, "ship", 1)) == (["25.0"], ["100.0"])


def test_what_is_not_finished(tmp_path):
    folders = [write_run(tmp_path, usual("clib", seed), 70)[0] for seed in (1, 2, 3)]
    write_run(tmp_path, usual("er", 4), 50)
    stop(folders[1], 5)  # start, class, queries at 10 and 20, end of the first task
    stop(folders[2], 0)
    data = report_data(tmp_path)
    assert (len(data.runs), data.finished) == (4, 2)
    found = page(tmp_path)
    assert "2 of 4" in found.texts
    assert ("value", "20") in found.attributes
    assert ("max", "100") in found.attributes
    assert "20 of 100 samples (20 %)" in found.text
    assert "clib, seed 3 is not started." in found.text
    assert "clib has no run with seed 4, but others have." in found.text
    assert "er has no run with seed 1-3, but others have." in found.text


def test_a_study_keeps_its_own_and_says_what_is_missing(tmp_path):
    study = get_study("gss")
    for one in study.plan("cifar10", rows=["er", "clib"], seeds=(1, 2), scale=0.1):
        write_run(tmp_path, one.experiment, 50)
    write_run(tmp_path, usual("mir"), 50)  # of none of its rows
    data = report_data(tmp_path, study=study)
    assert ({run.experiment.method.name for run in data.runs}, len(data.runs)) == ({"clib", "er"}, 4)
    assert data.title == study.title
    lacking = {group[0].method.name: [(one.seed, one.share) for one in group] for group in data.missing}
    assert lacking == {"gss": [(seed, 0.1) for seed in (1, 2, 3)], "er": [(3, 0.1)], "clib": [(3, 0.1)]}
    found = page(tmp_path, study=study)
    assert study.question in found.text
    assert "Missing from the study" in found.texts
    with pytest.raises(InputError, match="study ablation"):
        report_data(tmp_path, study=replace(get_study("ablation"), rows=("clib-stream",)))


def test_folders_of_data_sets_and_of_configurations(tmp_path):
    write_run(tmp_path / "cifar10", usual("clib", memory=200), 60)
    write_run(tmp_path / "cifar10", usual("clib"), 70)
    write_run(tmp_path / "mine", replace(usual("clib"), dataset="mine.npz"), 70)
    data = report_data(tmp_path)
    where = [block.about for block in data.blocks]
    assert [about.split(",")[0] for about in where] == ["cifar10", "cifar10", "mine.npz"]
    assert [about.rsplit(" ", 1)[1] for about in where[:2]] == ["500", "200"]  # the paper's first
    assert data.title == "Continual learning on cifar10 and mine.npz"
    assert report_data(tmp_path / "cifar10" / usual("clib").name).finished == 1
    for name in ("nowhere", "mine/none"):
        with pytest.raises(InputError, match=name):
            report_data(tmp_path / name)


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


def test_the_same_folder_is_the_same_page_and_links_lead_to_its_runs(runs, tmp_path, monkeypatch):
    text = render_page(report_data(runs))
    beside = tmp_path / "a" / "b"
    found = Elements(render_page(report_data(runs), beside))
    links = [value for name, value in found.attributes if name == "href" and not value.startswith("#")]
    assert {Path(beside, link).resolve() for link in links} == {*runs.iterdir()}
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
    assert tag("a", "<", Html("<br>"), title='"', hidden=False, open=True) == '<a title="&quot;" open>&lt;<br></a>'


@pytest.mark.slow
def test_fifty_long_runs_are_a_small_page(tmp_path):
    rng, classes, samples = np.random.default_rng(0), 100, 50_000
    for seed, number in ((seed, number) for seed in range(1, 6) for number in range(10)):
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

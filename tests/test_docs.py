"""Pages that are right: every field of every part of a method, and whatever else is printed can be run or opened."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import method_pages
from benchmarks.gpu import __main__ as context
from benchmarks.gpu import accelerations, resume
from iblurry import Callback, ContinualClassifier, Learner, RunState, Stream, load
from iblurry.analysis.metrics import TABLE_METRICS
from iblurry.components.component import hyperparameters
from iblurry.components.edit import component
from iblurry.data.load import SOURCES
from iblurry.methods import METHODS
from tests.experiment.told import FINISHED
from tests.printed import commands, links, python, understood

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = DOCS / "methods"
MAIN = [name for name in METHODS if "-" not in name or name == "er-ace"]  # the others are variants


@pytest.mark.parametrize("name", MAIN)
def test_every_method_has_a_page_with_its_parts_and_their_fields(name):
    page = (PAGES / f"{name}.md").read_text()
    made, plain = METHODS[name](), METHODS["er"]()
    usual = set() if name == "er" else {repr(part) for _, part in plain.parts()}
    for part in [part for _, part in [*made.parts(), *(made.refit.parts() if made.refit else ())]]:
        if repr(part) in usual:
            continue
        row = next((line for line in page.splitlines() if line.startswith(f"| `{type(part).__name__}`")), None)
        assert row, f"{name}.md does not list {type(part).__name__}"
        for field in hyperparameters(part):
            assert f"`{field}`" in row, f"{name}.md does not list {type(part).__name__}.{field}"
    assert "**Differs.**" in page
    groups = [made.pace] * (name in ("er", "clib", "gdumb", "rm")) + [made.head] * (name == "rm")
    for group in [*groups, *([made.refit.optimizer] if made.refit else [])]:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{type(group).__name__}`"))
        assert all(f"`{field.name}`" in row for field in fields(group))


@pytest.mark.parametrize("name", MAIN)
def test_pages_of_methods_have_one_form(name):
    page = PAGES / f"{name}.md"
    title, *sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    assert re.match(r"# [\w+-]+(?: training)?: .+\n\n", title)
    assert f"[{METHODS[name].paper}](http" in title or name == "balm"
    by_heading = dict(section.split("\n", 1) for section in sections)
    assert list(by_heading) == ["Idea", "Formula", "Fields", "Cost", "Evidence"]
    assert re.search(r"^(\$\$\S.*\$\$|One network.*|- .*)$", by_heading["Formula"], flags=re.MULTILINE)
    assert "| part | fields |" in by_heading["Fields"]
    assert method_pages.written(page) == page.read_text(), "python -m benchmarks.method_pages writes it again"


def test_what_was_measured_is_on_the_pages_of_methods():
    assert "| clib-averaged | 3 | **" in method_pages.evidence("clib")
    assert "er-ace" not in method_pages.evidence("er")
    assert "| joint | 1 | – | – | 96.17 |" in method_pages.evidence("joint")
    assert "| joint |" not in method_pages.choice()  # answers once, at the end
    assert method_pages.evidence("ncm").startswith("Not measured yet on CIFAR-10")
    answers = method_pages.FAQ
    assert method_pages.written(answers) == answers.read_text(), "python -m benchmarks.method_pages writes it again"


def test_no_page_without_a_method():
    listed = [path.stem for path in links(PAGES / "index.md") if path.parent == PAGES]
    assert sorted(listed) == sorted(MAIN)
    assert {page.stem for page in PAGES.glob("*.md")} == {*MAIN, "index"}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_links_lead_somewhere_and_commands_are_understood(page):
    for path in links(page):
        assert path.exists(), path
    for command in commands(page):
        if command.startswith("iblurry"):
            assert understood(command), command


def test_every_page_is_found_from_the_readme():
    """The pages of methods by their folder, others by a link, if need be from page to page."""
    found, todo = set(), [ROOT / "README.md"]
    while todo:
        for path in links(todo.pop()):
            more = {page.resolve() for page in (path.glob("*") if path.is_dir() else [path])} - found
            found |= more
            todo += [page for page in more if page.suffix == ".md"]
    assert {path.resolve() for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.png"))} <= found


def test_commands_of_the_gpu_page():
    """Those that are not the program's own."""
    others = [shlex.split(command) for command in commands(DOCS / "gpu.md") if not command.startswith("iblurry")]
    makefile = (ROOT / "Makefile").read_text()
    parsers = {
        "benchmarks.gpu": context.parser(),
        "benchmarks.gpu.resume": resume.parser(),
        "benchmarks.gpu.accelerations": accelerations.parser(),
    }
    assert {words[0] for words in others} == {"make", "python"}
    for program, *words in others:
        if program == "make":
            assert re.search(rf"^{words[0]}:", makefile, flags=re.MULTILINE)
        else:
            assert words[0] == "-m"
            assert parsers[words[1]].parse_args(words[2:])


@pytest.mark.slow
def test_the_streams_of_the_page_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, domains, own = python(DOCS / "streams.md")
    exec(compile(first, "streams.md", "exec"), {"__name__": "__main__"})
    ends = {json.loads(path.read_text())["a_last"] is not None for path in tmp_path.glob("runs/*/summary.json")}
    assert ends == {True}
    exec(compile(domains, "streams.md", "exec"), {})
    order = component(Stream, "Domains:path=domains.json").order(load("digits"), 1)
    assert [len(set(load("digits").train.labels[task])) for task in order.tasks] == [10, 10]
    (tmp_path / "seasons.py").write_text(own)
    monkeypatch.syspath_prepend(tmp_path)
    stream = importlib.import_module("seasons").Seasons(years=3)
    assert len(stream.order(load("digits"), 1).tasks) == 3


@pytest.mark.slow
def test_the_part_of_the_gpu_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = python(DOCS / "gpu.md")
    exec(compile(block, "gpu.md", "exec"), {"__name__": "__main__"})
    assert re.search(r"Metrics\(a_auc=0\.\d", capsys.readouterr().out)


@pytest.mark.slow
def test_the_logger_of_the_page_on_logging_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = python(DOCS / "logging.md")
    exec(compile(block, "logging.md", "exec"), {"__name__": "__main__"})
    (file,) = tmp_path.glob("*.tsv")
    lines = file.read_text().splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :] != []
    page = (DOCS / "logging.md").read_text()
    for name in {name.split("/<")[0] for _, row in FINISHED for name in row}:
        assert any(f"`{word}" in page for word in (name, name.split("/")[-1], *name.split("/")[:-1])), name


@pytest.mark.slow
def test_the_compute_page_foresees_what_is_spent(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    block, _ = python(DOCS / "compute.md")
    exec(compile(block, "compute.md", "exec"), {"__name__": "__main__"})
    clib, plain, equal = re.findall(r": (\S+) foreseen, (\S+) spent", capsys.readouterr().out)
    assert clib[0] == clib[1]
    assert plain[0] == plain[1]
    assert float(equal[1]) == pytest.approx(float(clib[1]), rel=0.005)


def test_the_compute_page_pays_for_copies_with_samples(capsys):
    block = python(DOCS / "compute.md")[-1]
    exec(compile(block, "compute.md", "exec"), {"__name__": "__main__"})
    own, er, clib = map(int, capsys.readouterr().out.split())
    assert own < clib < er


def test_the_page_on_gdumb_averages_queries_as_printed(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (block,) = python(PAGES / "gdumb.md")
    exec(compile(block, "gdumb.md", "exec"), {"__name__": "__main__"})
    assert f"```text\n{capsys.readouterr().out}```" in (PAGES / "gdumb.md").read_text()


def test_the_callbacks_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    page = (DOCS / "callbacks.md").read_text()
    saved, used = python(DOCS / "callbacks.md")
    assert max(saved.count("\n"), used.count("\n")) <= 15
    Path("worst.py").write_text(saved)
    exec(compile(used, "callbacks.md", "exec"), {"__name__": "__main__"})
    assert re.match(r"\(\d+, 0\.\d+\) Stopped\(at=\d+, reason='no progress since 2 queries'\)", capsys.readouterr().out)
    for hook in (name for name in vars(Callback) if name.startswith("on_")):
        parameters = [name for name in inspect.signature(getattr(Callback, hook)).parameters if name != "self"]
        assert f"| `{hook}({', '.join(parameters)})` |" in page
    for name in (name for name in dir(RunState) if not name.startswith("_")):
        assert f"`{name}" in page


@pytest.mark.slow
def test_the_page_on_studies_runs_as_printed_and_lists_every_metric(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in python(DOCS / "studies.md"):
        assert block.count("\n") <= 15
        exec(compile(block, "studies.md", "exec"), {"__name__": "__main__"})
    numbers, last, *table = capsys.readouterr().out.splitlines()
    assert 0 <= float(numbers.split()[0]) <= float(numbers.split()[1]) <= 1
    assert last.startswith("(600, 0.")
    assert table[0].split() == ["method", "er"]
    assert table[-1].startswith("600 ")
    assert r"\toprule" in Path("table.tex").read_text()
    page = (DOCS / "studies.md").read_text()
    assert all(f"`{name}`" in page for name in TABLE_METRICS)


@pytest.mark.slow
def test_the_contact_sheet_is_made_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = python(DOCS / "transforms.md")[-1]
    exec(compile(block, "transforms.md", "exec"), {})
    shown, made = (
        np.asarray(Image.open(folder / "autoaugment.png").convert("RGB"), dtype=np.int64)
        for folder in (DOCS / "images", tmp_path)
    )
    assert shown.shape == made.shape
    assert np.abs(shown - made).mean() < 0.1  # letters are drawn a little otherwise by another version of Pillow


@pytest.mark.slow
def test_the_estimator_page_runs_as_printed_and_lists_every_parameter(capsys):
    page = (DOCS / "estimator.md").read_text()
    (block,) = python(DOCS / "estimator.md")
    exec(compile(block, "estimator.md", "exec"), {"__name__": "__main__"})
    (shown,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    number = r"clib (\S+), linear (\S+)\n(\d+) samples kept, (\d+) of them zeros\n"
    printed, made = (re.fullmatch(number, text).groups() for text in (shown, capsys.readouterr().out))
    assert [float(value) for value in made] == pytest.approx([float(value) for value in printed], abs=0.05)
    for name, default in ContinualClassifier().get_params().items():
        row = next(line for line in page.splitlines() if line.startswith("| `") and f"`{name}`" in line)
        assert (f'"{default}"' if isinstance(default, str) else str(default)) in row.split("|")[2], name


@pytest.mark.slow
def test_the_page_on_learners_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = python(DOCS / "learner.md")
    for block in blocks:
        assert block.count("\n") <= 15
        exec(compile(block, "learner.md", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out.splitlines()
    assert said[1:4] == ["torch.Size([5, 10]) 10", "16 16 []", "['zero', 'one']"]
    assert said[4].startswith("200 ['")
    assert said[5] == "True"
    assert said[6] in load("digits").classes
    page = (DOCS / "learner.md").read_text()
    for name in inspect.signature(Learner).parameters:
        assert f"`{name}`" in page or name == "engine"


def test_the_data_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IBLURRY_SOURCE_MODULES", "")
    monkeypatch.setattr("iblurry.data.load.SOURCES", dict(SOURCES))
    for block in python(DOCS / "data.md"):
        assert block.count("\n") <= 15
        if all(importlib.util.find_spec(name) for name in ("pandas", "datasets") if f" {name}" in block):
            exec(compile(block, "data.md", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert said.startswith("(3, 8, 8) ('blue', 'red')\n('cat', 'dog') True\n(3, 8, 8) ('ant', 'bee', 'cat')\n")
    for name, line in (("datasets", "(1, 8, 8) ('even', 'odd')"), ("pandas", "(3, 8, 8) ('blue', 'red')")):
        assert line in said.splitlines()[3:] or importlib.util.find_spec(name) is None
    assert load("bars:classes=6").shape == (1, 6, 6)


def test_the_first_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in python(DOCS / "start.md"):
        exec(block.replace("samples=300", "samples=60"), {"__name__": "start"})  # sooner done
    assert re.match(r"A_AUC [\d.]+ %, journal in runs", capsys.readouterr().out)

"""Pages that are right: what they print runs and opens, and what they list is complete."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import method_pages
from iblurry import Callback, ContinualClassifier, Learner, RunState, parts
from iblurry.analysis.table import TABLE_METRICS
from iblurry.components.component import hyperparameters
from iblurry.data.load import SOURCES
from iblurry.methods import METHODS
from iblurry.methods.method import KINDS
from iblurry.network.registry import NETWORKS
from tests.experiment.told import FINISHED
from tests.following import Reader
from tests.printed import blocks, commands, links, python, run_python, understood

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
METHOD_PAGES = DOCS / "methods"
MAIN = [name for name in METHODS if "-" not in name or name == "er-ace"]  # the others are variants
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
FOLLOWED = {  # pages that a newcomer follows block by block
    str(page.relative_to(DOCS))
    for page in (*DOCS.glob("tutorials/*.md"), *DOCS.glob("concepts/*.md"))
    if len(blocks(page)) and page.stem != "i-blurry"
} | {"faq.md", "estimator.md", "methods/gdumb.md"}
SAID = {  # pages whose Python runs from top to bottom, and what it prints
    "README.md": r"\['.*'mug'.*\]\n",
    "docs/callbacks.md": r"\(\d+, 0\.\d+\) Stopped\(at=\d+, reason='no progress since 2 queries'\)\n",
    "docs/compute.md": (
        r"clib at 1: (\S+) foreseen, \1 spent\ner at 1: (\S+) foreseen, \2 spent\ner at .*\n\d+ \d+ \d+\n"
    ),
    "docs/data.md": (
        r"\(3, 8, 8\) \('blue', 'red'\)\n\('cat', 'dog'\) True\n\(3, 8, 8\) \('ant', 'bee', 'cat'\)\n"
        r"(\(1, 8, 8\) \('even', 'odd'\)\n)?\(3, 8, 8\) \('blue', 'red'\)\n"
    ),
    "docs/frozen.md": r"0\.[6-9]\d after .*\n0\.[6-9]\d\n",
    "docs/gpu.md": r"Metrics\(a_auc=0\.\d.*\n",
    "docs/learner.md": (
        r"\['.*'\]\ntorch\.Size\(\[5, 10\]\) 10\n16 16 \[\]\n\['zero', 'one'\]\n200 \['.*\]\nTrue\n\w+\n"
    ),
    "docs/logging.md": "",
    "docs/networks.md": r"(Metrics\(a_auc=0\.\d.*\n){2}",
    "docs/optimizers.md": r"AdamW\(.* 0\.\d+\nNAdam\(.* 0\.\d+\nRMSprop\(.* 0\.\d+\n",
    "docs/start.md": r"A_AUC [\d.]+ %, journal in runs/.*\n",
    "docs/streams.md": r".*\n",
    "docs/studies.md": r"0\.\d+ 0\.\d+\n\(600, 0\.\d+\) [^$]*\n600 .*\n",
    "docs/transforms.md": r"Metrics\(a_auc=0\.\d.*\n",
}
LISTED = {  # pages, and names of which each must list all
    "callbacks.md": [
        *(name for name in vars(Callback) if name.startswith("on_")),
        *(name for name in dir(RunState) if not name.startswith("_")),
    ],
    "estimator.md": ContinualClassifier().get_params(),
    "learner.md": {*inspect.signature(Learner).parameters} - {"engine"},
    "studies.md": TABLE_METRICS,
    "logging.md": {name.split("/<")[0].split("/")[0] for _, row in FINISHED for name in row},
    "concepts/slots.md": [name for kind in KINDS.values() for name in kind.known() if name in parts.__all__],
    "architecture.md": re.findall(
        r"\b([A-Za-z]+)>", str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    ),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, with four classes of pictures and the collected results; a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("IBLURRY_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("IBLURRY_URL", "http://127.0.0.1:8000")
    monkeypatch.setenv("IBLURRY_SOURCE_MODULES", "")
    monkeypatch.setattr("iblurry.data.load.SOURCES", dict(SOURCES))
    monkeypatch.setattr("iblurry.network.registry.NETWORKS", dict(NETWORKS))
    (tmp_path / "results").symlink_to(ROOT / "results")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere_and_commands_are_understood(page):
    text, makefile = page.read_text(), (ROOT / "Makefile").read_text()
    assert [path for path in links(page) if not path.exists()] == []
    inline = re.findall(r"`(make [\w-]+)", text) + re.findall(r"`(iblurry [a-z]+ [^`]+)`", text) * (page.stem == "faq")
    for command in commands(page) + inline:
        program, *words = shlex.split(command) or [""]
        if program == "iblurry":
            assert understood(command), command
        elif program == "make":
            targets = [word for word in words if "=" not in word]
            assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets), command
        elif words[:1] == ["-m"] and words[1].startswith("benchmarks."):
            module = importlib.import_module(words[1])
            assert not hasattr(module, "parser") or module.parser().parse_args(words[2:])


def test_every_page_is_found_from_the_readme():
    """The pages of methods by their folder, others by a link, if need be from page to page."""
    found, todo = set(), [ROOT / "README.md"]
    while todo:
        for path in links(todo.pop()):
            more = {page.resolve() for page in (path.glob("*") if path.is_dir() else [path])} - found
            found |= more
            todo += [page for page in more if page.suffix == ".md"]
    assert {path.resolve() for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.png"))} <= found


@pytest.mark.parametrize("folder, names", [("methods", MAIN), ("tutorials", None), ("concepts", None)])
def test_overviews_list_their_pages(folder, names):
    pages = {page.stem for page in (DOCS / folder).glob("*.md")} - {"index"}
    assert pages == {path.stem for path in links(DOCS / folder / "index.md") if path.parent.name == folder}
    assert pages == set(names or pages)


@pytest.mark.parametrize("page", LISTED)
def test_a_page_lists_all_there_is(page):
    text = (DOCS / page).read_text()
    assert [name for name in LISTED[page] if not re.search(rf"(`|/|^\| ){name}\b", text, re.MULTILINE)] == []


@pytest.mark.parametrize("name", MAIN)
def test_the_page_of_a_method_has_its_parts_and_their_fields(name):
    rows = [line for line in (METHOD_PAGES / f"{name}.md").read_text().splitlines() if line.startswith("| `")]
    made, plain = METHODS[name](), METHODS["er"]()
    usual = set() if name == "er" else {repr(part) for _, part in plain.parts()}
    for _, part in [*made.parts(), *(made.refit.parts() if made.refit else ())]:
        if repr(part) not in usual:
            (row, *_) = [row for row in rows if row.startswith(f"| `{type(part).__name__}`")]
            assert [field for field in hyperparameters(part) if f"`{field}`" not in row] == []
    for group in [made.refit.optimizer] if made.refit else []:
        (row, *_) = [row for row in rows if row.startswith(f"| `{type(group).__name__}`")]
        assert [field.name for field in fields(group) if f"`{field.name}`" not in row] == []


@pytest.mark.parametrize("page", [*(METHOD_PAGES / f"{name}.md" for name in MAIN), method_pages.FAQ])
def test_what_was_measured_is_on_the_pages(page):
    assert method_pages.written(page) == page.read_text(), "python -m benchmarks.method_pages writes it again"


@pytest.mark.quick("docs/callbacks.md", "docs/data.md", "docs/frozen.md", "docs/start.md")
@pytest.mark.parametrize("page", SAID)
def test_python_runs_as_printed(page, here, capsys):
    for shade, name in enumerate(("cup", "fork", "mug", "plate") if page == "README.md" else ()):
        (here / "pictures" / name).mkdir(parents=True)
        for number in range(10):
            picture = Image.new("RGB", (20 + 9 * number, 40), (60 * shade + number,) * 3)  # of mixed sizes
            picture.save(here / "pictures" / name / f"{number}.png")
    run_python(ROOT / page)
    assert re.fullmatch(SAID[page], capsys.readouterr().out, flags=re.DOTALL)
    if page == "docs/logging.md":
        (file,) = here.glob("*.tsv")
        lines = file.read_text().splitlines()
        assert lines[: len(lines) // 2] == lines[len(lines) // 2 :] != []
    if page == "docs/transforms.md":
        _assert_alike(DOCS / "images" / "autoaugment.png", here / "autoaugment.png", 0.1)


def test_every_page_with_python_is_run_somewhere():
    elsewhere = {"docs/parts.md", "docs/camera.md", "docs/live.md"}
    run = {*SAID, *elsewhere, *(f"docs/{page}" for page in FOLLOWED)}
    assert {str(page.relative_to(ROOT)) for page in PAGES if python(page)} <= run


@pytest.mark.quick("concepts/exactness.md", "methods/gdumb.md")
@pytest.mark.parametrize("page", sorted(FOLLOWED))
def test_whoever_follows_a_page_sees_what_it_shows(page, here, capsys):
    if page == "tutorials/live.md":
        pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
    with Reader(capsys) as reader:
        reader.follow(DOCS / page)


@pytest.mark.slow
def test_the_pictures_of_streams_are_those_of_the_commands(here, capsys):
    with Reader(capsys) as reader:
        reader.follow(DOCS / "concepts" / "i-blurry.md")
    made = sorted(here.glob("*.png"))
    assert len(made) == 3
    for path in made:
        _assert_alike(DOCS / "images" / path.name, path, 4)


def _assert_alike(shown: Path, made: Path, most: float) -> None:
    """Two pictures differ by at most so many of 255: letters are drawn a little otherwise elsewhere."""
    one = Image.open(shown).convert("RGB")
    other = Image.open(made).convert("RGB").resize(one.size, Image.Resampling.LANCZOS)
    assert np.abs(np.asarray(one, dtype=np.int64) - np.asarray(other, dtype=np.int64)).mean() < most

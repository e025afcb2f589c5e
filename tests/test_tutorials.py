"""A newcomer who copies a tutorial or a page on a concept, block by block, gets what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from iblurry.methods.method import KINDS
from tests.following import Reader
from tests.printed import blocks, links, understood

DOCS = Path(__file__).parent.parent / "docs"
TUTORIALS, CONCEPTS = DOCS / "tutorials", DOCS / "concepts"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, a terminal of 80 columns, one run at a time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("IBLURRY_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("IBLURRY_URL", "http://127.0.0.1:8000")
    return tmp_path


def pages(folder):
    """Names of its pages but the first."""
    return sorted(page.stem for page in folder.glob("*.md") if page.stem != "index")


@pytest.mark.slow
@pytest.mark.parametrize("name", pages(TUTORIALS))
def test_a_tutorial_that_is_copied_shows_what_it_says(name, here, capsys):
    if name == "live":
        pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
    page = TUTORIALS / f"{name}.md"
    assert "text" in {block.language for block in blocks(page)}
    with Reader(capsys) as reader:
        reader.follow(page)


@pytest.mark.quick("exactness", "anytime-accuracy")
@pytest.mark.parametrize("name", [name for name in pages(CONCEPTS) if name != "i-blurry"])
def test_what_a_concept_shows_is_what_is_printed(name, here, capsys):
    with Reader(capsys) as reader:
        reader.follow(CONCEPTS / f"{name}.md")


@pytest.mark.slow
def test_answers_show_what_is_printed(here, capsys):
    with Reader(capsys) as reader:
        reader.follow(DOCS / "faq.md")


def test_commands_within_answers_are_understood():
    found = re.findall(r"`(iblurry [a-z]+ [^`]+)`", (DOCS / "faq.md").read_text())
    assert len(found) >= 4
    for command in found:
        assert understood(command), command


@pytest.mark.slow
def test_the_pictures_of_streams_are_those_of_the_commands(here, capsys):
    with Reader(capsys) as reader:
        reader.follow(CONCEPTS / "i-blurry.md")
    made = {path.name: path for path in here.glob("*.png")}
    assert len(made) == 3
    for name, path in made.items():
        shown = Image.open(DOCS / "images" / name).convert("RGB")
        again = Image.open(path).convert("RGB").resize(shown.size, Image.Resampling.LANCZOS)
        difference = np.abs(np.asarray(shown, dtype=np.int64) - np.asarray(again, dtype=np.int64)).mean()
        assert difference < 4, f"{name} differs by {difference:.1f} of 255: it is of another stream"


@pytest.mark.parametrize("folder", [TUTORIALS, CONCEPTS], ids=lambda folder: folder.name)
def test_the_overview_lists_them_all(folder):
    listed = {path.stem for path in links(folder / "index.md") if path.parent.resolve() == folder.resolve()}
    assert listed == set(pages(folder))


def test_the_slots_are_listed_with_every_part():
    page = (CONCEPTS / "slots.md").read_text()
    for slot in KINDS.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{slot.kind}"))
        for name, part in slot.known().items():
            assert f"`{name}`" in row or not part.__module__.startswith("iblurry.")

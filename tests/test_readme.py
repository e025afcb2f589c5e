"""The README does as it says: its Python runs, its commands and links exist; tables of the docs are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from iblurry.methods.method import KINDS
from tests.printed import commands, links, python, understood

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "README.md"
README = PAGE.read_text()


def test_it_is_one_screen():
    assert len(README.splitlines()) <= 70


def test_python_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for shade, name in enumerate(("cup", "fork", "mug", "plate")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(10):
            picture = Image.new("RGB", (20 + 9 * number, 40), (60 * shade + number,) * 3)  # of mixed sizes
            picture.save(tmp_path / "pictures" / name / f"{number}.png")
    (block,) = python(PAGE)
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    assert "'mug'" in capsys.readouterr().out
    assert Path("model.pt2").stat().st_size


@pytest.mark.parametrize("command", [c for c in commands(PAGE) if c.startswith("iblurry")])
def test_commands_are_understood(command):
    assert understood(command)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"(?:^|`)make (\w+)", README, flags=re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_table_of_parts_is_complete():
    page = (ROOT / "docs" / "concepts" / "slots.md").read_text()
    for slot in KINDS.values():
        kind, parts = slot.kind, slot.known()
        line = next(line for line in page.splitlines() if line.startswith(f"| `{kind}"))
        for name, part in parts.items():
            if part.__module__.startswith("iblurry."):
                assert f"`{name}`" in line


def test_every_dependency_is_justified():
    pyproject = (ROOT / "pyproject.toml").read_text()
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = pyproject.split("dependencies = [", 1)[1].split("]", 1)[0]
    names = re.findall(r'"([A-Za-z]+)', section)
    for name in names:
        assert re.search(rf"^\| {name} \|", page, flags=re.MULTILINE), name


def test_pictures_and_pages_are_there():
    for path in links(PAGE):
        assert path.exists(), path

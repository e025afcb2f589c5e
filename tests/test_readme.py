"""The README does as it says: its Python runs, its commands exist, its table and tree are today's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iblurry.method import KINDS
from tests.printed import commands, links, python, understood

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "README.md"
README = PAGE.read_text()


def test_it_is_short():
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("block", python(PAGE), ids=["run", "learner"])
def test_python_runs_as_printed(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    block = block.replace("memory=80)", "memory=80, samples=60)")  # sooner done; the whole run is that of `make demo`
    block = block.replace(":300]", ":60]")
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    assert re.search(r"A_AUC \d|\['", capsys.readouterr().out)


@pytest.mark.parametrize("command", [c for c in commands(PAGE) if c.startswith("iblurry")])
def test_commands_are_understood(command):
    assert understood(command)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"(?:^|`)make (\w+)", README, flags=re.MULTILINE)
    assert {"demo", "test", "bench"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_table_of_parts_is_complete():
    for slot in KINDS.values():
        kind, parts = slot.kind, slot.known()
        line = next(line for line in README.splitlines() if line.startswith(f"| `{kind}"))
        for name, part in parts.items():
            if part.__module__.startswith("iblurry."):
                assert f"`{name}`" in line


def test_every_dependency_is_justified():
    pyproject = (ROOT / "pyproject.toml").read_text()
    section = pyproject.split("dependencies = [", 1)[1].split("]", 1)[0]
    names = re.findall(r'"([A-Za-z]+)', section)
    for name in names:
        assert re.search(rf"^\| {name} \|", README, flags=re.MULTILINE), name


def test_pictures_and_pages_are_there():
    for path in links(PAGE):
        assert path.exists(), path

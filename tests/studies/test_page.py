"""A study as a page: figures, table and commands, from finished runs alone; and studies on other streams."""

from __future__ import annotations

import re

import pytest

from iblurry.analysis.significance import compare_rows
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run_all
from iblurry.streams import Gaussian
from iblurry.studies.catalogue import STUDIES
from iblurry.studies.selection import Selection
from iblurry.studies.table import tabulate_study, write_page

SHAPES = "shapes:classes=10,train=12,test=4,size=8,channels=1"


def ranked(page):
    """Rows of the first ranking, from the top."""
    return re.findall(r"^\| \d+ \| `([^`]*)`", page.split("## ")[1], re.MULTILINE)


@pytest.mark.slow
def test_table_figures_and_commands(tmp_path):
    chosen = Selection(study=STUDIES["leaderboard"], dataset=SHAPES, rows=("er", "mir", "balm"), seeds=(1,))
    once = {one.experiment.name: one.experiment for one in chosen.planned}
    assert len(once) == 4  # er at two paces, mir at its own alone, and balm, whose compute is its own
    run_all(list(once.values()), LaunchConfig(out=tmp_path / "runs", jobs=1))
    table = tabulate_study(chosen, [tmp_path / "runs"], paper=False)
    files = write_page(table, tmp_path / "docs" / "board.md", compare_rows(table, "balm"))
    assert [path.name for path in files] == ["board.md", "board-curves.png", "board-flops.png"]
    assert all(path.stat().st_size for path in files)
    page = files[0].read_text()
    assert page.count("iblurry run") == 4
    assert page.count("| `mir` |") == 1  # it has no place where all compute as much as balm
    means = [table.ours(row, "own pace", "a_auc").mean for row in ranked(page)]
    assert len(means) == 3
    assert means == sorted(means, reverse=True)
    assert all(f"images/{path.name}" in page for path in files[1:])


def test_on_another_stream(tmp_path):
    chosen = Selection(study=STUDIES["main"], dataset="digits", stream="Gaussian:sigma=0.2")
    assert {one.experiment.stream for one in chosen.planned} == {Gaussian(sigma=0.2)}
    assert "Gaussian:sigma=0.2" in chosen.command()
    assert chosen.slug != Selection(study=STUDIES["main"], dataset="digits").slug

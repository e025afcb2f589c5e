"""Every example runs by itself, from an empty folder, in under a minute, and prints what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import notebooks

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PERCENT = r"\d+\.\d %"
SAYS = {  # at the end of what it prints
    "class_incremental_digits": rf"clib +A_AUC {PERCENT}, A_last {PERCENT}, F_last -?{PERCENT}\n",
    "image_folder": rf"of bar, disc, ring, square\ner +A_AUC {PERCENT}, A_last {PERCENT}\nclib +A_AUC .*\n",
    "frozen_features": rf"ncm +{PERCENT} of 397 test images\n(.*\n)*er +{PERCENT} of 397 test images\n",
    "er_ace_part": rf"er +A_AUC {PERCENT} {PERCENT}\ner-ace +A_AUC {PERCENT} {PERCENT}\n",
    "grid_table": r"\\midrule\n25 & 0\.\d+ & 0\.\d+ & .*\n50 & .*\n\\bottomrule\n\\end\{tabular\}\n\n",
    "camera_loop": r"120 frames: \d+ right, \d+ taught, 10 classes\nclasses: eight, .*, zero\n",
    "notebooks/anytime": r"clib \{'aaa': \d+\.\d, 'min_acc': .*\}\n",
    "notebooks/forgetting": r"at the end: 0\.\d\d without rehearsal, 0\.\d\d with it\n",
}
LEFT = {  # files it leaves
    "image_folder": "pictures/test/ring/019.png",
    "grid_table": "er.tex",
    "camera_loop": "live/service.json",
    "notebooks/anytime": "classes.png",
    "notebooks/forgetting": "forgetting.png",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_it_runs_by_itself(name, tmp_path):
    if name == "camera_loop":
        pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
    words = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(EXAMPLES / f"{name}.py")]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert re.search(SAYS[name] + r"\Z", ended.stdout), ended.stdout
    assert name not in LEFT or (tmp_path / LEFT[name]).stat().st_size


def test_notebooks_are_those_of_the_examples():
    assert sorted(notebooks.FOLDER.glob("*")) == sorted(notebooks.sources())
    for notebook, example in notebooks.sources().items():
        assert notebook.read_text("utf-8") == notebooks.written(example), "python -m tools.notebooks writes it again"


@pytest.mark.slow
def test_the_cells_of_a_notebook_run(tmp_path):
    cells = tmp_path / "cells.py"  # a file, so that the source of a class can be read, as in Jupyter
    cells.write_text(notebooks.code(notebooks.FOLDER / "er_ace_part.ipynb"))
    ended = subprocess.run([sys.executable, str(cells)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert re.search(SAYS["er_ace_part"] + r"\Z", ended.stdout), ended.stdout


def test_every_example_is_run_and_on_the_site():
    assert {str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.py")} == set(SAYS)
    page = (ROOT / "docs" / "examples.md").read_text()
    assert [name for name in SAYS if f'--8<-- "examples/{name}.py"' not in page] == []

"""A data source of one's own from the command line: `--import mine.py --dataset my_source:option=3`."""

from __future__ import annotations

import json
import subprocess

import pytest

MINE = """
import numpy as np
from iblurry import Dataset, register_source

@register_source
def bars(*, classes: int = 4, kind: str = "across"):
    "Bars of light, one class for each place."
    images = np.zeros((classes * 12, classes, classes), dtype=np.uint8)
    labels = np.arange(len(images)) % classes
    images[np.arange(len(images)), labels] = 200
    return Dataset.from_arrays(images, labels, images, labels, name="bars")
"""
SHORT = ["--tasks", "2", "--memory", "20", "--network", "mlp", "--samples", "24", "--query-every", "12"]


@pytest.fixture
def mine(here):
    (here / "mine.py").write_text(MINE)
    return here


@pytest.fixture
def iblurry(program, mine):
    def call(*words):
        return subprocess.run([*program, *words], cwd=mine, capture_output=True, text=True, timeout=120)

    return call


def test_it_is_listed_and_shown(iblurry):
    listed = json.loads(iblurry("data", "list", "--import", "mine.py", "--json").stdout)["sources"]
    assert {"name": "bars", "about": "Bars of light, one class for each place", "state": "yours, of mine"} in listed
    assert "bars" in iblurry("data", "--import", "mine.py").stdout
    shown = json.loads(iblurry("data", "show", "bars:classes=5", "--import", "mine.py", "--json").stdout)
    assert (shown["name"], len(shown["classes"])) == ("bars", 5)
    unknown = iblurry("data", "show", "bars")
    assert (unknown.returncode, "'bars'" in unknown.stderr) == (2, True)


def test_it_can_be_split(iblurry):
    split = iblurry("split", "--import", "mine.py", "--dataset", "bars:classes=6", "--tasks", "3", "--json")
    assert split.returncode == 0
    assert len(json.loads(split.stdout)["classes"]) == 6


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_it_is_run_in_this_process_and_in_workers(iblurry, jobs):
    words = ("er", "--import", "mine.py", "--dataset", "bars:kind=up", "--seeds", "1,2", "--jobs", jobs, "--json")
    done = iblurry("run", *words, *SHORT)
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_taken(iblurry, mine):
    (mine / "mine.py").write_text(MINE.replace("def bars", "def digits"))
    refused = iblurry("data", "--import", "mine.py")
    assert refused.returncode == 2
    assert "'digits'" in refused.stderr

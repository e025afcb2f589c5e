"""Bad input: one clear sentence, exit code 2, no traceback, nothing overwritten."""

from __future__ import annotations

import os

import pytest

from tests.cli.conftest import RUN

REFUSALS = {  # a command line: what its sentence names, the value or the remedy
    "--nonsense": "'--nonsense'",
    # names
    "run clib-relased": "'clib",
    "run er er": "er is named 2 times",
    "run --dataset digts": "'digits'",
    "run --dataset shapes:clases=3": "'classes'",
    "run --dataset nowhere.npz": "nowhere.npz",
    "run --dataset nowhere/": "nowhere/",
    "run --dataset cifar10": "`iblurry data fetch cifar10`",
    "run --network resnet19": "'resnet18'",
    "run --mode unevn": "'uneven'",
    "run --sets a=b": "'--sets'",
    "run --set": "'--set'",
    # fields
    "run --set foo": "path=value",
    "run --set memori=3": "'memory'",
    "run --set admission=Resevoir": "'Reservoir'",
    "run --set pace.updates_per_sample=1/0": "updates_per_sample",
    "run --set seed=7": "--seeds",
    "run --set dataset=shapes": "--dataset",
    "run --set method=clib": "METHOD",
    # numbers
    "run --seeds 1,x": "'--seeds': 1,x",
    "run --seeds ,": "1,2,3",
    "run --seeds 1,1": "twice",
    "run --disjoint -1": "0<=x<=100",
    "run --disjoint nan": "disjoint=nan",
    "run --blur half": "'half'",
    "run --disjoint 25": "0 or 50",
    "run --tasks 3": "1, 2, 5, 10",
    "run --tasks 0": "'--tasks': 0",
    "run --memory ten": "'--memory': 'ten'",
    "run er --memory 5": "at least 18",
    "run --memory 100000000000000": "GiB",
    "run --query-every 5000": "1400",
    "run --samples 10": "query_every=25",
    "run --share 2": "'--share': 2",
    "run --share 0": "share=0.0",
    "run --share 0.5 --published x": "x has no file",
    "run --jobs 0": "'--jobs': 0",
    "run --save-seconds nan": "seconds=nan",
    "study main --scale nan": "scale=nan",
    # places
    "run --figure a.gif": ".png",
    "run --figure folder.png": "folder.png",
    "run --figure file/a.png": "'--figure': ",
    "run --out file/deep": "file",
    "run --network my_net": "--import",
    "run --stream Mine": "--import",
    "run --set admission=Mine": "--import",
    "run --import nowhere.py": "--import nowhere.py",
    "run --import nowhere": "'nowhere'",
    "run --import broken.py": "line 2: ZeroDivisionError",
    "run --import json.py": "json",
    # the other verbs
    "show": "runs",
    "show file": "file",
    "show --figre x": "'--figure'",
    "split --disjoint 300": "'--disjoint': 300",
    "split --disjoint 75": "50 or 100",
    "split --seed -1": "'--seed': -1",
    "split --mode compatibel": "'compatible'",
    "split --published nowhere": "_split5_n50_m10",
    "split --figure a.gif": ".gif",
    "split --figure file/a.png": "file",
    "split --export file/a": "file",
    "data shwo": "'show'",
    "data show": "'SPEC'",
    "data show digts --json": "'digits'",
    "data show cifar100": "iblurry data fetch cifar100",
    "data show digits --sheet file/x.png --json": "file",
    "data fetch digits": "digits",
    "data import cifar10 nowhere": "nowhere",
    "methods clbi": "'clib'",
    "methods --import nowhere.py": "nowhere.py",
}


@pytest.fixture
def cluttered(here):
    """Things in the way."""
    (here / "file").write_text("precious")
    (here / "folder.png").mkdir()
    (here / "broken.py").write_text("import math\n1 / 0\n")
    (here / "json.py").write_text("")


@pytest.mark.parametrize("line", REFUSALS)
def test_is_refused_in_a_sentence(refused, cluttered, line):
    assert REFUSALS[line] in refused(*line.split())


@pytest.mark.parametrize("line", ["run clbi", "run --disjoint 25", "show nowhere", "split --blur 200"])
def test_is_refused_in_json_too(refused, line):
    assert refused(*line.split(), "--json") == refused(*line.split())


def test_a_name_that_moves_the_cursor_is_escaped(refused, here):
    picture = here / "pictures" / "a" / "\x1b[2J.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"none")
    assert "\\x1b[2J.png" in refused("data", "show", str(here / "pictures"))


def test_a_place_one_may_not_write_to(refused, here, monkeypatch):
    (here / "old.png").write_bytes(b"precious")
    (here / "closed").mkdir()
    forbidden = {str(here / "closed"), "old.png"}  # said of them here, because to root nothing is forbidden
    monkeypatch.setattr(os, "access", lambda path, mode: not (str(path) in forbidden and mode & os.W_OK))
    for option in ("--out", "--figure"):
        assert f"'{option}': Folder '{here / 'closed'}'" in refused("run", option, "closed/x.png")
    assert "'--figure': File 'old.png'" in refused("run", "--figure", "old.png")


def test_a_loss_that_is_no_number(call, here):
    said = call(*RUN, "--set", "schedule.initial_lr=1e30", "--json")
    assert (said.code, said.out) == (2, "")
    (folder,) = (here / "runs").iterdir()
    assert "schedule.initial_lr" in said.err
    assert f"runs/{folder.name}" in said.err  # where the last good checkpoint is, if there is one
    assert not (folder / "summary.json").exists()
    assert "nan" not in (folder / "journal.jsonl").read_text().lower()

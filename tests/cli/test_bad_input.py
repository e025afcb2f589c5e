"""Bad input: one clear sentence, exit code 2, no traceback, nothing overwritten."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest

from iblurry.data.load import load
from iblurry.data.sources.arrays import save
from tests.cli.conftest import QUICK, RUN

REFUSALS = {  # a command line: what its sentence names, the value or the remedy
    "rnu": "'run'",
    "--nonsense": "'--nonsense'",
    # names
    "run clbi": "'clib'",
    "run clib-relased": "'clib",
    "run er er": "er is named 2 times",
    "run --dataset digts": "'digits'",
    "run --dataset shapes:clases=3": "'classes'",
    "run --dataset shapes:classes=x": "'x'",
    "run --dataset nowhere.npz": "nowhere.npz",
    "run --dataset nowhere/": "nowhere/",
    "run --dataset cifar10": "`iblurry data fetch cifar10`",
    "run --network resnet19": "'resnet18'",
    "run --mode unevn": "'uneven'",
    "run --sets a=b": "'--sets'",
    "run --set": "'--set'",
    # fields
    "run --set foo": "path=value",
    "run --set =3": "path=value",
    "run --set memori=3": "'memory'",
    "run --set memory=abc": "memory",
    "run --set memory=": "memory",
    "run --set admission=Resevoir": "'Reservoir'",
    "run --set admission=": "admission",
    "run --set admission=Reservoir,Balanced": "'Reservoir,Balanced'",
    "run --set admission.stepp=1": "stepp",
    "run --set terms=": "loss",
    "run --set terms.3=CrossEntropy": "3",
    "run --set pace=3": "pace.stream_batch",
    "run --set pace.stream_batch=0": "stream_batch",
    "run --set pace.updates_per_sample=1/0": "updates_per_sample",
    "run --set augment.cutmix=7": "cutmix",
    "run --set schedule.initial_lr=nan": "initial_lr",
    "run --set schedule.initial_lr=-1": "-1",
    "run --set seed=7": "--seeds",
    "run --set dataset=shapes": "--dataset",
    "run --set method=clib": "METHOD",
    # numbers
    "run --seeds 1,x": "'--seeds': 1,x",
    "run --seeds ,": "1,2,3",
    "run --seeds -1": "-1",
    "run --seeds 1,1": "twice",
    "run --disjoint 101": "'--disjoint': 101",
    "run --disjoint -1": "0<=x<=100",
    "run --memory ten": "'--memory': 'ten'",
    "run --disjoint nan": "disjoint=nan",
    "run --blur half": "'half'",
    "run --set blur=200": "200",
    "run --disjoint 25": "0 or 50",
    "run --tasks 3": "1, 2, 5, 10",
    "run --tasks 0": "'--tasks': 0",
    "run --tasks 100000": "1 to 10",
    "run --memory 0": "'--memory': 0",
    "run --memory 1e3": "'1e3'",
    "run er --memory 5": "at least 18",
    "run clib --memory 5": "at least 16",
    "run clib --memory 12": "16",
    "run --memory 100000000000000": "GiB",
    "run --samples 99999999": "99999999",
    "run --query-every 5000": "1400",
    "run --samples 10": "query_every=25",
    "run --share 2": "'--share': 2",
    "run --share 0": "share=0.0",
    "run --share 0.5 --published x": "x has no file",
    "run --jobs 0": "'--jobs': 0",
    "run --pack 0": "'--pack': 0",
    "run --jobs x": "'x'",
    "run --threads 0": "'--threads': 0",
    "run --save-seconds nan": "seconds=nan",
    "run --save-samples 0": "'--save-samples': 0",
    # places
    "run --figure a.gif": ".png",
    "run --figure a": ".png",
    "run --figure folder.png": "folder.png",
    "run --figure file/a.png": "'--figure': ",
    "run --out file": "file",
    "run --out file/deep": "file",
    "run --network my_net": "--import",
    "run --stream Mine": "--import",
    "run --set admission=Mine": "--import",
    "run --published nowhere": "_split5_n50_m10_rand",
    "run --import nowhere.py": "--import nowhere.py",
    "run --import nowhere": "'nowhere'",
    "run --import broken.py": "line 2: ZeroDivisionError",
    "run --import json.py": "json",
    # the other verbs
    "show": "runs",
    "show nowhere": "nowhere",
    "show file": "file",
    "show --figre x": "'--figure'",
    "split --disjoint 300": "'--disjoint': 300",
    "split --disjoint 75": "50 or 100",
    "split --seed -1": "'--seed': -1",
    "split --mode foo": "'foo'",
    "split --figure file/a.png": "file",
    "split --export file/a": "file",
    "data shwo": "'show'",
    "data show": "'SPEC'",
    "data show digts --json": "'digits'",
    "data show digits --sheet x.gif": ".png",
    "data show digits --sheet file/x.png --json": "file",
    "data fetch digits": "digits",
    "data import digits x": "digits",
    "methods foo": "'foo'",
    "methods --jso": "'--json'",
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


@pytest.mark.parametrize(
    "line", ["run clbi", "run --disjoint 25", "run --memory 5", "show nowhere", "split --blur 200"]
)
def test_is_refused_in_json_too(refused, line):
    assert refused(*line.split(), "--json") == refused(*line.split())


def spoil(path, how):
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(
        {
            "cut": data[:middle],
            "empty": b"",
            "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "noise": np.random.default_rng(0).bytes(len(data)),
        }[how]
    )


@pytest.mark.parametrize("how", ["cut", "empty", "flipped", "noise"])
def test_a_corrupt_data_file(refused, here, how):
    save(load("shapes:classes=4,train=20,test=10"), here / "mine.npz")
    spoil(here / "mine.npz", how)
    assert "mine.npz is not a readable .npz file" in refused("run", "er", "--dataset", "mine.npz", "--json")


def test_a_name_that_moves_the_cursor_is_escaped(refused, here):
    picture = here / "pictures" / "a" / "\x1b[2J.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"none")
    assert "\\x1b[2J.png is not a readable picture" in refused("data", "show", str(here / "pictures"))


def test_a_place_one_may_not_write_to(refused, here, monkeypatch):
    (here / "old.png").write_bytes(b"precious")
    (here / "closed").mkdir()
    forbidden = {str(here / "closed"), "old.png"}  # said of them here, because to root nothing is forbidden
    monkeypatch.setattr(os, "access", lambda path, mode: not (str(path) in forbidden and mode & os.W_OK))
    for option in ("--out", "--figure"):
        assert f"'{option}': Folder '{here / 'closed'}'" in refused("run", option, "closed/x.png")
    assert "'--figure': File 'old.png'" in refused("run", "--figure", "old.png")


def test_a_place_the_system_refuses(call, here, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("iblurry.storage.files.os.open", refuse)
    said = call("run", "er", *QUICK, "--seeds", "1")
    assert (said.code, said.out) == (2, "")
    assert "Permission denied" in said.err
    assert said.err.count("\n") == 1


def undisturbed(call):
    return json.loads(call(*RUN, "--out", "other", "--json").out)["table"]


@pytest.mark.slow
def test_a_full_disk(call, here, monkeypatch):
    def full(file, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("iblurry.experiment.journal.write_all", full)
        said = call(*RUN)
    assert (said.code, said.out) == (2, "")
    assert "runs/er-shapes-1-" in said.err
    assert "the same command continues" in said.err
    assert json.loads(call(*RUN, "--json").out)["table"] == undisturbed(call)  # and so it does


@pytest.mark.slow
def test_a_damaged_checkpoint_is_said_and_the_one_before_is_used(begun, call):
    spoil(max(begun.glob("*.safetensors")), "flipped")
    said = call(*RUN, "--json")
    assert said.code == 0
    assert "er seed 1: checkpoint-000000000030.safetensors is damaged" in said.err
    assert "the previous good one, checkpoint-000000000020.safetensors, is used." in said.err
    assert "er seed 1: continues from sample 20 of 40" in said.err.splitlines()
    assert json.loads(said.out)["table"] == undisturbed(call)


def test_no_checkpoint_can_be_used(begun, refused):
    for path in begun.glob("*.safetensors"):
        spoil(path, "cut")
    assert "Delete the folder to start again." in refused(*RUN)


def about(folder, **changes):
    path = folder / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_folder_of_another_experiment(begun, refused):
    other = json.loads((begun / "experiment.json").read_text())["experiment"] | {"memory": 77}
    about(begun, experiment=other)
    sentence = refused(*RUN)
    assert f"runs/{begun.name} belongs to another experiment" in sentence
    assert "Choose another --out, or delete that folder to start again." in sentence


def test_the_folder_of_another_version(begun, refused):
    about(begun, version="0.0.0")
    assert "was started by iblurry 0.0.0" in refused(*RUN)
    about(begun, format=99)
    assert "format 99" in refused(*RUN)
    assert "format 99" in refused("show")


@pytest.mark.parametrize("name", ["experiment.json", "journal.jsonl"])
def test_a_damaged_folder_cannot_be_shown(begun, refused, name):
    (begun / name).write_bytes(b"{" + (begun / name).read_bytes())
    sentence = refused("show", "--json")
    assert f"{name}" in sentence
    assert "is damaged" in sentence


def test_a_loss_that_is_no_number(call, here):
    said = call(*RUN, "--set", "schedule.initial_lr=1e30", "--json")
    assert (said.code, said.out) == (2, "")
    (folder,) = (here / "runs").iterdir()
    assert "a lower learning rate (schedule.initial_lr" in said.err
    assert f"runs/{folder.name}" in said.err  # where the last good checkpoint is, if there is one
    assert not (folder / "summary.json").exists()
    assert "nan" not in (folder / "journal.jsonl").read_text().lower()

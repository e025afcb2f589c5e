"""`iblurry run --grid` and `iblurry tune`: chosen on held-out training images, resumed exactly, refused early."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from iblurry.cli.run import check_all, make_experiments, run, with_validation
from iblurry.cli.tune import PRUNERS as OFFERED, tune
from iblurry.data.load import load
from iblurry.experiment.experiment import Experiment
from iblurry.launch.config import LaunchConfig
from iblurry.storage.files import locked
from iblurry.studies.search.points import check_spaces, expand_grid, parse_spaces
from iblurry.studies.search.tune import PRUNERS, Tuner
from tests.cli.conftest import DATA, QUICK
from tests.printed import commands

PAGE = Path(__file__).parents[2] / "docs" / "search.md"
SMALL = [*QUICK[: QUICK.index("--memory")], *QUICK[QUICK.index("--memory") + 2 :], "--seeds", "1"]
GRID = ("run", "er", *SMALL, "--grid", "schedule.initial_lr=1e-4,1e-2", "--grid", "memory=16,20")
SPACE = ("--space", "schedule.initial_lr=1e-5..1e-1:log", "--space", "memory=16,18,20")
FEW = ("tune", "er", *SMALL, "--space", "memory=16..20")  # trials


@pytest.fixture
def optuna():
    pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """The words for a data set, and for the same with wrong labels and noise for test images."""
    place, data = tmp_path_factory.mktemp("data"), load(DATA)
    noise = np.random.default_rng(1).integers(0, 256, data.test.images.shape, dtype=np.uint8)
    images, labels = np.asarray(data.train.images[:]), np.asarray(data.train.labels)
    words = []
    for name, test, answers in (
        ("honest", np.asarray(data.test.images[:]), np.asarray(data.test.labels)),
        ("poisoned", noise, (np.asarray(data.test.labels) + 1) % 4),
    ):
        (place / name).mkdir()
        np.savez(place / name / "data.npz", x_train=images, y_train=labels, x_test=test, y_test=answers)
        words.append([str(place / name / "data.npz") if word == DATA else word for word in SMALL])
    return words


@pytest.mark.slow
def test_the_grid_is_chosen_without_the_test_images(call, in_process, here, poisoned):
    said = []
    for out, words in zip(("honest", "poisoned"), poisoned, strict=True):
        answer = call("run", "er", *words, "--grid", "schedule.initial_lr=1e-4,1e-2", "--out", out, "--json")
        assert answer.code == 0, answer.err
        said.append(json.loads(answer.out))
    honest, wrong = said
    assert len(honest["points"]) == 2
    for one, other in zip(honest["points"], wrong["points"], strict=True):
        assert (one["fields"], one["a_auc"], one["seeds"]) == (other["fields"], other["a_auc"], other["seeds"])
    assert honest["best"][0]["fields"] == wrong["best"][0]["fields"]
    assert "(10 %)" in honest["title"]
    means = [point["a_auc"]["mean"] for point in honest["points"]]
    assert [point["best"] for point in honest["points"]].index(True) == means.index(max(means))
    for path in honest["figures"]:
        assert (here / path).stat().st_size > 0
    for point in honest["points"]:
        for name in point["runs"]:
            journal = (here / "honest" / name / "journal.jsonl").read_text()
            assert all(sum(json.loads(line)["total"]) <= 8 for line in journal.splitlines() if '"query"' in line)


@pytest.mark.slow
def test_table_figure_and_command_of_a_grid(call, in_process, here):
    said = call(*GRID)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert max(map(len, lines[1:12])) <= 80
    (best,) = [line for line in lines if line.endswith(" best")]
    (figure,) = (here / "runs").glob("grid-er-shapes-*.png")
    with Image.open(figure) as picture:
        assert picture.format == "PNG"
    command = shlex.split(lines[-1])
    lr, memory = best.split()[:2]
    assert command[:3] == ["iblurry", "run", "er"]
    assert "--validate" not in command
    finished = call(*command[1:], "--json")
    assert finished.code == 0, finished.err
    (run,) = json.loads(finished.out)["runs"]
    written = json.loads((here / run["folder"] / "experiment.json").read_text())["experiment"]
    assert (written["validate"], written["memory"]) == (0, int(memory))
    assert written["method"]["schedule"]["Exponential"]["initial_lr"] == float(lr)
    runs = sorted((here / "runs").glob("*/summary.json"))
    times = [path.stat().st_mtime_ns for path in runs]
    assert call(*GRID) == (0, said.out, "")
    assert [path.stat().st_mtime_ns for path in runs] == times  # nothing was run again


@pytest.mark.slow
def test_a_point_that_diverges_does_not_stop_the_others(call):
    said = call("run", "er", *SMALL, "--grid", "schedule.initial_lr=1e-3,1e38", "--json")
    assert said.code == 1
    fine, diverged = json.loads(said.out)["points"]
    assert (fine["state"], fine["best"]) == ("finished", True)
    assert (diverged["state"], diverged["best"], diverged["a_auc"]) == ("failed", False, None)


@pytest.mark.parametrize(
    "words, named",
    [
        ("run --grid memory=20,50 --validate 0", "validate=0"),
        ("run --grid memory=20,50 --set validate=0", "validate=0"),
        ("run --grid memory=20,50,20", "memory=20"),
        ("run --grid memory=20,50 --memory 20", "memory"),
        ("run --grid schedule.gamma=0.9,0.99 --set schedule.gamma=1", "schedule.gamma"),
        ("run --grid memory=2,20", "memory=2"),
        ("tune --space memory=20..50 --validate 0", "validate=0"),
        ("tune --space memory=2..50", "memory=2"),
        ("tune --space memory=20..50 --memory 20", "memory"),
        ("tune --space memory=20..50 --pruner mdian", "mdian"),
        ("tune", "--space"),
    ],
)
def test_searches_that_are_refused(refused, words, named):
    verb, *rest = words.split()
    if verb == "tune":
        pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")
    assert named in refused(verb, "er", *SMALL, *rest)


def test_without_optuna(refused, monkeypatch):
    monkeypatch.setattr("iblurry.studies.search.tune.find_spec", lambda name: None)
    assert "iblurry[tune]" in refused(*FEW)


def trials(said):
    """What was proposed and found, without the times."""
    assert said.code == 0, said.err
    names = ("number", "fields", "state", "seeds", "best")
    return [{name: point[name] for name in names} for point in json.loads(said.out)["points"]]


@pytest.mark.slow
def test_the_search_is_led_by_held_out_training_images(call, optuna, poisoned):
    more = ("--trials", 4, "--seeds", "1,2", "--json")
    honest, wrong = (
        trials(call("tune", "er", *words, *SPACE, *more, "--out", Path(words[1]).parent.name)) for words in poisoned
    )
    assert honest == wrong
    assert [trial["number"] for trial in honest] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_search_goes_on_as_if_it_had_not_been_interrupted(call, optuna, here, program):
    words = ["tune", "er", *SMALL, *SPACE, "--seeds", "1,2", "--json"]
    words = [word.replace("train=20", "train=60").replace("40", "120") for word in words]
    whole = trials(call(*words, "--trials", 8, "--out", "whole"))
    assert {trial["state"] for trial in whole} == {"finished", "pruned"}
    first = trials(call(*words, "--trials", 3, "--out", "parts"))
    assert [trial | {"best": None} for trial in first] == [trial | {"best": None} for trial in whole[:3]]
    command = [*program, *words, "--trials", "8", "--out", "parts", "--save-samples", "5"]
    begun = len(list((here / "parts").glob("*/experiment.json")))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list((here / "parts").glob("*/journal.jsonl"))) <= begun and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (journal,) = (here / "parts").glob("tune-*.log")
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "tor')  # as a power failure leaves it
    said = call(*words, "--trials", 8, "--out", "parts")
    assert trials(said) == whole
    pruned = [point["runs"] for point in json.loads(said.out)["points"] if point["state"] == "pruned"]
    kept = [here / "parts" / run for runs in pruned for run in runs]
    assert all((run / "journal.jsonl").exists() for run in kept)
    assert not all((run / "summary.json").exists() for run in kept)  # pruned runs stay as they were stopped


def test_table_figure_and_command_of_a_search(call, optuna, here):
    said = call(*FEW, "--trials", 2)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["0", "1"]
    assert shlex.split(lines[-1])[:3] == ["iblurry", "run", "er"]
    assert "--validate" not in lines[-1]
    (figure,) = (here / "runs").glob("tune-er-shapes-*.png")
    with Image.open(figure) as picture:
        assert picture.format == "PNG"
    assert call(*FEW, "--trials", 2).out == said.out
    (journal,) = (here / "runs").glob("tune-*.log")
    with locked(journal.with_suffix(".lock"), timeout=1, remedy=""):  # as another program does
        said = call(*FEW, "--trials", 2)
    assert (said.code, "Another process" in said.err) == (2, True)


def test_a_trial_that_diverges_is_a_trial(call, optuna):
    said = call("tune", "er", *SMALL, "--space", "schedule.initial_lr=1e-3,1e38", "--trials", 4, "--json")
    assert said.code == 0, said.err
    states = {point["fields"]["schedule.initial_lr"]: point["state"] for point in json.loads(said.out)["points"]}
    assert states == {"1e-3": "finished", "1e38": "failed"}


@pytest.mark.slow
def test_ctrl_c_saves_the_trial_and_the_same_command_goes_on(here, optuna, program):
    words = [*program, "tune", "er", *SMALL, *SPACE, "--trials", "3"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(here.glob("runs/*/journal.jsonl")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.count(" best\n") == 1


@pytest.mark.parametrize("command", [c for c in commands(PAGE) if c.startswith("iblurry")])
def test_searches_of_the_page_can_be_run(command):
    _, verb, *words = shlex.split(command)
    given = with_validation({"run": run, "tune": tune}[verb].make_context(verb, words).params)
    if verb == "run":
        points = expand_grid(make_experiments(given["methods"], given), parse_spaces(given["grids"], option="--grid"))
        found = [point.experiments[0] for point in points]
    else:
        (first, *_) = make_experiments([given["method"]], given).values()
        found = check_spaces(first, parse_spaces(given["spaces"]))
    check_all(found, load("digits"))
    assert len(found) > 1


def test_a_search_is_named_by_what_its_trials_depend_on(tmp_path):
    def name(lr="1e-4..1e-2:log", seeds=(1, 2), data="digits", pruner="median", **fields):
        experiments = [Experiment.of("er", data, seed=seed, **{"validate": 0.1} | fields) for seed in seeds]
        spaces, config = parse_spaces([f"schedule.initial_lr={lr}"]), LaunchConfig(out=tmp_path)
        return Tuner("er", experiments, spaces, dataset=load(data), config=config, pruner=pruner).name

    names = [name(), name(lr="1e-4..1e-2"), name(seeds=(1,)), name(pruner="none"), name(memory=50), name(validate=0.2)]
    test = {"x_test": np.zeros((4, 4, 4), np.uint8), "y_test": [0, 1] * 2}
    for make in (np.zeros, np.ones):  # other data in the same place
        np.savez(tmp_path / "a.npz", x_train=make((8, 4, 4), np.uint8), y_train=[0, 1] * 4, **test)
        names.append(name(data=str(tmp_path / "a.npz"), query_every=2, tasks=1))
    assert len({*names}) == len(names)
    assert name() == names[0]


def test_both_lists_of_pruners_are_the_same():
    assert OFFERED == PRUNERS

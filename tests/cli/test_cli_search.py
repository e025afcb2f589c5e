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
from iblurry.cli.tune import PRUNERS as OFFERED
from iblurry.cli.tune import tune
from iblurry.data.load import load
from iblurry.experiment.experiment import Experiment
from iblurry.launch.config import LaunchConfig
from iblurry.launch.pack import Pack
from iblurry.studies.search.points import check_spaces, expand_grid, parse_spaces
from iblurry.studies.search.tune import PRUNERS, Tuner
from tests.cli.conftest import QUICK
from tests.printed import commands

PAGE = Path(__file__).parents[2] / "docs" / "search.md"
TEST = {"x_test": np.zeros((4, 4, 4), np.uint8), "y_test": [0, 1] * 2}

GRID = ("--grid", "schedule.initial_lr=1e-4,1e-2", "--grid", "memory=16,20")
SMALL = [*QUICK[: QUICK.index("--memory")], *QUICK[QUICK.index("--memory") + 2 :]]
SPACE = ("--space", "schedule.initial_lr=1e-5..1e-1:log", "--space", "memory=16,18,20")


class InThisProcess:
    """Stands in for worker processes, which take seconds to start."""

    def __init__(self, queue, config, stop, **_):
        self.pack = Pack(config, queue, stop)

    def run(self):
        self.pack.run()


@pytest.fixture
def at_once(call, monkeypatch):
    """`call` without worker processes."""
    monkeypatch.setattr("iblurry.launch.launch.LocalWorkers", InThisProcess)
    return call


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """A data set, and the same with wrong labels and noise for test images."""
    place = tmp_path_factory.mktemp("data")
    data = load("shapes:classes=4,train=20,test=10,size=8,channels=1")
    noise = np.random.default_rng(1).integers(0, 256, data.test.images.shape, dtype=np.uint8)
    images, labels = np.asarray(data.train.images[:]), np.asarray(data.train.labels)
    for name, test, answers in (
        ("honest", np.asarray(data.test.images[:]), np.asarray(data.test.labels)),
        ("poisoned", noise, (np.asarray(data.test.labels) + 1) % 4),
    ):
        (place / name).mkdir()
        np.savez(place / name / "data.npz", x_train=images, y_train=labels, x_test=test, y_test=answers)
    return place


def on(place, words):
    return [str(place / "data.npz") if word.startswith("shapes:") else word for word in words]


@pytest.mark.slow
def test_the_grid_is_chosen_without_the_test_images(at_once, here, poisoned):
    said = []
    for name in ("honest", "poisoned"):
        answer = at_once(
            "run", "er", *on(poisoned / name, SMALL), *GRID[:2], "--seeds", "1", "--out", here / name, "--json"
        )
        assert answer.code == 0, answer.err
        said.append(json.loads(answer.out))
    honest, wrong = said
    assert len(honest["points"]) == 2
    for one, other in zip(honest["points"], wrong["points"], strict=True):
        assert (one["fields"], one["a_auc"], one["seeds"]) == (other["fields"], other["a_auc"], other["seeds"])
    assert honest["best"][0]["fields"] == wrong["best"][0]["fields"]
    assert "on held-out training images (10 %)" in honest["title"]
    means = [point["a_auc"]["mean"] for point in honest["points"]]
    assert [point["best"] for point in honest["points"]].index(True) == means.index(max(means))
    for path in honest["figures"]:
        assert (here / path).stat().st_size > 0
    for point in honest["points"]:
        for name in point["runs"]:
            journal = (here / "honest" / name / "journal.jsonl").read_text()
            assert all(sum(json.loads(line)["total"]) <= 8 for line in journal.splitlines() if '"query"' in line)


@pytest.mark.slow
def test_table_figure_and_command_of_a_grid(at_once, here):
    said = at_once("run", "er", *SMALL, *GRID, "--seeds", "1")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].endswith("on held-out training images (10 %)")
    assert max(map(len, lines[1:12])) <= 80
    (best,) = [line for line in lines if line.endswith(" best")]
    (figure,) = (here / "runs").glob("grid-er-shapes-*.png")
    with Image.open(figure) as picture:
        assert picture.format == "PNG"
    command = shlex.split(lines[-1])
    lr, memory = best.split()[:2]
    assert command[:3] == ["iblurry", "run", "er"]
    assert "--validate" not in command
    finished = at_once(*command[1:], "--json")
    assert finished.code == 0, finished.err
    (run,) = json.loads(finished.out)["runs"]
    written = json.loads((here / run["folder"] / "experiment.json").read_text())["experiment"]
    assert written["validate"] == 0
    assert written["memory"] == int(memory)
    assert written["method"]["schedule"]["Exponential"]["initial_lr"] == float(lr)
    runs = sorted((here / "runs").glob("*/summary.json"))
    times = [path.stat().st_mtime_ns for path in runs]
    again = at_once("run", "er", *SMALL, *GRID, "--seeds", "1")
    assert (again.code, again.out) == (0, said.out)
    assert [path.stat().st_mtime_ns for path in runs] == times  # nothing was run again


@pytest.mark.slow
def test_a_point_that_diverges_does_not_stop_the_others(call):
    said = call("run", "er", *SMALL, "--grid", "schedule.initial_lr=1e-3,1e38", "--seeds", "1", "--json")
    assert said.code == 1
    fine, diverged = json.loads(said.out)["points"]
    assert (fine["state"], fine["best"]) == ("finished", True)
    assert (diverged["state"], diverged["best"], diverged["a_auc"]) == ("failed", False, None)


@pytest.mark.parametrize(
    "words, named",
    [
        (("--grid", "memory=20,50", "--validate", "0"), "validate=0"),
        (("--grid", "memory=20,50", "--set", "validate=0"), "validate=0"),
        (("--grid", "memory=20,50,20"), "memory=20"),
        (("--grid", "memory=20,50", "--memory", "20"), "memory"),
        (("--grid", "schedule.gamma=0.9,0.99", "--set", "schedule.gamma=1"), "schedule.gamma"),
        (("--grid", "memory=2,20"), "memory=2"),
    ],
)
def test_grids_that_are_refused(refused, words, named):
    assert named in refused("run", "er", *SMALL, *words)


@pytest.mark.parametrize(
    "words, named",
    [
        (("--space", "memory=20..50", "--validate", "0"), "validate=0"),
        (("--space", "memory=2..50"), "memory=2"),
        (("--space", "memory=20..50", "--memory", "20"), "memory"),
        (("--space", "memory=20..50", "--pruner", "mdian"), "mdian"),
        ((), "--space"),
    ],
)
def test_searches_that_are_refused(refused, words, named):
    pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")
    assert named in refused("tune", "er", *SMALL, *words)


def test_without_optuna(refused, monkeypatch):
    monkeypatch.setattr("iblurry.studies.search.tune.find_spec", lambda name: None)
    assert "iblurry[tune]" in refused("tune", "er", *SMALL, *SPACE)


def trials(said):
    """What was proposed and found, without the times."""
    assert said.code == 0, said.err
    return [
        {name: point[name] for name in ("number", "fields", "state", "seeds", "best")}
        for point in json.loads(said.out)["points"]
    ]


def pruned_runs(said):
    """The folders of each trial that was pruned."""
    return [point["runs"] for point in json.loads(said.out)["points"] if point["state"] == "pruned"]


@pytest.mark.slow
def test_the_search_is_led_by_held_out_training_images(call, here, poisoned):
    pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")
    found = [
        trials(
            call(
                "tune",
                "er",
                *on(poisoned / name, SMALL),
                *SPACE,
                "--trials",
                4,
                "--seeds",
                "1,2",
                "--out",
                name,
                "--json",
            )
        )
        for name in ("honest", "poisoned")
    ]
    assert found[0] == found[1]
    assert [trial["number"] for trial in found[0]] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_search_goes_on_as_if_it_had_not_been_interrupted(call, here, program):
    pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")
    words = ["tune", "er", *SMALL, *SPACE, "--seeds", "1,2", "--json"]
    words = [word.replace("train=20", "train=60").replace("40", "120") for word in words]
    whole = trials(call(*words, "--trials", 8, "--out", "whole"))
    assert {trial["state"] for trial in whole} == {"finished", "pruned"}
    first = trials(call(*words, "--trials", 3, "--out", "parts"))
    assert [trial | {"best": None} for trial in first] == [trial | {"best": None} for trial in whole[:3]]
    command = [*program, *map(str, words), "--trials", "8", "--out", "parts", "--save-samples", "5"]
    begun = len(list((here / "parts").glob("*/experiment.json")))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list((here / "parts").glob("*/journal.jsonl"))) <= begun and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (journal,) = (here / "parts").glob("tune-*.log")
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "tor')  # as a power failure leaves it
    assert trials(call(*words, "--trials", 8, "--out", "parts")) == whole
    kept = [
        here / "parts" / run for trial in pruned_runs(call(*words, "--trials", 8, "--out", "parts")) for run in trial
    ]
    assert all((run / "journal.jsonl").exists() for run in kept)
    assert not all((run / "summary.json").exists() for run in kept)  # pruned runs stay as they were stopped


def test_table_figure_and_command_of_a_search(call, here):
    pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")
    words = ("tune", "er", *SMALL, "--space", "memory=16..20", "--trials", 2, "--seeds", "1")
    said = call(*words)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["0", "1"]
    assert shlex.split(lines[-1])[:3] == ["iblurry", "run", "er"]
    assert "--validate" not in lines[-1]
    (figure,) = (here / "runs").glob("tune-er-shapes-*.png")
    with Image.open(figure) as picture:
        assert picture.format == "PNG"
    assert call(*words).out == said.out


def test_a_trial_that_diverges_is_a_trial(call):
    pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")
    said = call("tune", "er", *SMALL, "--space", "schedule.initial_lr=1e-3,1e38", "--trials", 4, "--seeds", 1, "--json")
    assert said.code == 0, said.err
    states = {point["fields"]["schedule.initial_lr"]: point["state"] for point in json.loads(said.out)["points"]}
    assert states == {"1e-3": "finished", "1e38": "failed"}


@pytest.mark.slow
def test_ctrl_c_saves_the_trial_and_the_same_command_goes_on(here, program):
    pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")
    words = ["tune", "er", *SMALL, *SPACE, "--seeds", "1", "--trials", "3"]
    process = subprocess.Popen([*program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(here.glob("runs/*/journal.jsonl")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    assert "same command continues" in err
    done = subprocess.run([*program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.count(" best\n") == 1


def test_two_programs_do_not_search_in_one_folder(call, here):
    pytest.importorskip("optuna", reason="needs optuna: pip install 'iblurry[tune]'")
    from iblurry.storage.files import locked

    words = ("tune", "er", *SMALL, "--space", "memory=16..20", "--trials", 1, "--seeds", "1")
    assert call(*words).code == 0
    (journal,) = (here / "runs").glob("tune-*.log")
    with locked(journal.with_suffix(".lock"), timeout=1, remedy=""):
        said = call(*words)
    assert said.code == 2
    assert "Another process" in said.err


def test_a_plain_run_says_that_it_was_asked_about_held_out_images(quick):
    assert quick("er", "--seeds", "1", "--validate", "0.2").out.splitlines()[0].endswith("training images (20 %)")


@pytest.mark.parametrize("command", [c for c in commands(PAGE) if c.startswith("iblurry")])
def test_searches_of_the_page_can_be_run(command):
    _, verb, *words = shlex.split(command)
    given = {"run": run, "tune": tune}[verb].make_context(verb, words).params
    about = with_validation(given)
    if verb == "run":
        points = expand_grid(make_experiments(given["methods"], about), parse_spaces(given["grids"], option="--grid"))
        found = [point.experiments[0] for point in points]
    else:
        (first, *_) = make_experiments([given["method"]], about).values()
        found = check_spaces(first, parse_spaces(given["spaces"]))
    check_all(found, load("digits"))
    assert len(found) > 1


def test_a_search_is_named_by_what_its_trials_depend_on(tmp_path):
    def name(lr="1e-4..1e-2:log", seeds=(1, 2), data="digits", pruner="median", **fields):
        experiments = [Experiment.of("er", data, seed=seed, **{"validate": 0.1} | fields) for seed in seeds]
        spaces = parse_spaces([f"schedule.initial_lr={lr}"])
        config = LaunchConfig(out=tmp_path)
        return Tuner("er", experiments, spaces, dataset=load(data), config=config, pruner=pruner).name

    np.savez(tmp_path / "a.npz", x_train=np.zeros((8, 4, 4), np.uint8), y_train=[0, 1] * 4, **TEST)
    before = name(data=str(tmp_path / "a.npz"), query_every=2, tasks=1)
    np.savez(tmp_path / "a.npz", x_train=np.ones((8, 4, 4), np.uint8), y_train=[0, 1] * 4, **TEST)
    after = name(data=str(tmp_path / "a.npz"), query_every=2, tasks=1)
    names = [name(), name(lr="1e-4..1e-2"), name(seeds=(1,)), name(pruner="none"), name(memory=50), name(validate=0.2)]
    assert len({*names, before, after}) == len(names) + 2
    assert name() == names[0]


def test_both_lists_of_pruners_are_the_same():
    assert OFFERED == PRUNERS

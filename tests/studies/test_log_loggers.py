"""Loggers: hyper-parameters and names; with libraries that only remember: a run logged again is there once."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from iblurry.edit import edit
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.methods import METHODS
from iblurry.studies.loggers.history import flatten_hyperparameters
from iblurry.studies.loggers.logger import LOGGERS, log_run, make_logger, require_library, safe_name
from iblurry.studies.loggers.mlflow import MLflow
from iblurry.studies.loggers.wandb import WeightsAndBiases
from tests.studies.told import ENVIRONMENT, PARAMETERS, SUMMARY, history

SPEC = SimpleNamespace(origin="somewhere/__init__.py")


@pytest.mark.parametrize("name", list(METHODS))
def test_set_makes_the_same_experiment_of_another(name):
    """Every path is one that --set takes, and none is missing."""
    experiment = Experiment.of(name, "cifar10", seed=3, samples=700, memory=77, blur=30)
    flat = flatten_hyperparameters(json.loads(json.dumps(experiment.to_json())))
    other = Experiment.of(name, "digits")
    assert flat.pop("method") == name
    for path, value in flat.items():
        if (path, value) != ("refit", "none"):
            other = edit(other, f"{path}={value}")
    assert other == experiment


def test_every_field_is_there():
    experiment = Experiment.of("clib", "cifar10", memory=77)
    flat = flatten_hyperparameters(experiment.to_json())
    expected = {"memory": 77, "augment.pad": 4, "admission": "Importance", "terms": "CrossEntropy", "gradient": "none"}
    expected |= {
        "schedule.initial_lr": experiment.method.schedule.initial_lr,
        "optimizer": "Adam",
        "pace.stream_batch": 1,
    }
    assert {path: flat[path] for path in expected} == expected
    assert flat.keys() >= {f"admission.{field}" for field in ("step", "rule", "decrease")}


def test_several_parts_in_a_slot_have_places():
    flat = flatten_hyperparameters(Experiment.of("ewc", "cifar10").to_json())
    assert flat["terms"] == "CrossEntropy,Elastic"
    assert [path for path in flat if path.startswith("terms.1.")]
    assert not [path for path in flat if path.startswith("terms.0.")]


def test_lists_of_numbers():
    assert flatten_hyperparameters({"method": {"name": "m", "at": [3, 6]}}) == {"method": "m", "at": "3,6"}


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a/b", "ä", "x" * 200, "it's"])
def test_names_that_are_not_allowed_become_ones_that_are(name):
    assert re.fullmatch("[A-Za-z0-9_-]{1,120}", safe_name(name))
    assert len({safe_name(name), safe_name(name + "."), safe_name(name + "/")}) == 3
    assert safe_name("clib-digits-1-0123456789ab") == "clib-digits-1-0123456789ab"


@pytest.mark.parametrize("name, module", [*zip(LOGGERS, LOGGERS, strict=True), ("mlflow", "sqlalchemy")])
def test_a_library_that_is_not_installed(name, module, monkeypatch, tmp_path):
    """A folder of its name, such as a logger leaves in the working folder, is no library."""
    monkeypatch.setattr("iblurry.studies.loggers.logger.find_spec", lambda asked: None if asked == module else SPEC)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError, match=rf"{module}.*iblurry\[{name}\]"):
        make_logger(name)


def test_a_folder_of_its_name_is_no_library(monkeypatch, tmp_path):
    (tmp_path / "nolibrary").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="nolibrary"):
        require_library("nolibrary", "wandb")
    require_library("numpy", "wandb")


def test_an_unknown_logger():
    with pytest.raises(UnknownNameError, match="'wandb'"):
        make_logger("wandbb")


def test_extras_are_declared():
    text = (Path(__file__).parent.parent.parent / "pyproject.toml").read_text()
    for name in LOGGERS:
        assert f'\n{name} = ["{name}>=' in text


@pytest.fixture
def installed(monkeypatch):
    """Every library seems to be installed."""
    monkeypatch.setattr("iblurry.studies.loggers.logger.find_spec", lambda _: SPEC)


def module(monkeypatch, name, **members):
    made = ModuleType(name)
    vars(made).update(members)
    monkeypatch.setitem(sys.modules, name, made)
    return made


class Rows:
    """A run of W&B: the server knows its rows, and takes none before the last."""

    def __init__(self, rows, **settings):
        self.rows, self.given = rows, settings
        self.offline = settings["mode"] == "offline"
        self.settings, self.url = SimpleNamespace(sync_dir="here"), "https://there"
        self.step = max(rows, default=-1) + 1
        self.summary, self.finished = {}, 0

    def log(self, row, step):
        assert step >= self.step
        self.rows[step], self.step = row, step

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch, installed):
    """The library, its server's rows by run, and whether someone is logged in."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    server: dict[str, dict] = {}
    runs: list[Rows] = []

    def init(**settings):
        kept = {} if settings["mode"] == "offline" else server.setdefault(settings["id"], {})
        runs.append(Rows(kept, **settings))
        return runs[-1]

    made = module(monkeypatch, "wandb", init=init, Settings=dict, errors=SimpleNamespace(Error=RuntimeError))
    made.server, made.runs, made.logged_in = server, runs, True
    made.login = lambda *, prompt, verify: made.logged_in and not prompt and not verify
    return made


def run_to(*steps, summary=None):
    return history([(step, {"accuracy": step / 100, "new_class": f"c{step}"}) for step in steps], summary)


def test_wandb_sends_a_row_when_it_is_complete_and_never_again(wandb, tmp_path):
    logger = WeightsAndBiases(tmp_path, "pets")
    assert logger.write(run_to(10, 20)) == "https://there"  # the row at 20 may still get the end of a task
    rows = wandb.server["mine-pets-1"]
    assert rows == {10: {"accuracy": 0.1, "new_class": "c10"}}
    grown = run_to(10, 20, 30, summary=SUMMARY)
    grown.events[1][1]["task_end/accuracy"] = 0.9
    for _ in range(2):
        logger.write(grown)
        assert list(rows) == [10, 20, 30]
        assert rows[20] == {"accuracy": 0.2, "new_class": "c20", "task_end/accuracy": 0.9}
    assert [run.finished for run in wandb.runs] == [1, 1, 1]
    assert [run.summary["finished"] for run in wandb.runs] == [False, True, True]


def test_wandb_knows_the_run_again(wandb, tmp_path):
    WeightsAndBiases(tmp_path / "new", "pets").write(run_to())
    given = wandb.runs[0].given
    assert (given["project"], given["id"], given["name"]) == ("pets", "mine-pets-1", "mine-pets-1")
    assert (given["mode"], given["resume"], given["reinit"]) == (None, "allow", "create_new")
    assert given["config"] == PARAMETERS | {"environment": ENVIRONMENT}
    assert given["dir"].is_dir()


def test_wandb_is_offline_where_nobody_is_logged_in(wandb, tmp_path):
    wandb.logged_in = False
    for name in ("offline-run-1-mine-pets-1", "offline-run-1-mine-pets-10", "run-1-mine-pets-1"):
        (tmp_path / "wandb" / name).mkdir(parents=True)
    assert WeightsAndBiases(tmp_path, "pets").write(run_to(10)) == "here"
    given = wandb.runs[0].given
    assert (given["mode"], given["resume"]) == ("offline", None)
    left = sorted(path.name for path in (tmp_path / "wandb").iterdir())
    assert left == ["offline-run-1-mine-pets-10", "run-1-mine-pets-1"]  # written anew, and nobody else's
    assert list(wandb.runs[0].rows) == [10]  # all of it: another time it is written anew


@pytest.mark.parametrize("mode", ["offline", "online", "disabled"])
def test_wandb_mode_is_respected(wandb, tmp_path, mode, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", mode)
    del wandb.login  # nobody asks
    place = WeightsAndBiases(tmp_path, "pets").write(run_to(10))
    assert wandb.runs[0].given["mode"] == mode
    assert place == {"offline": "here", "online": "https://there"}.get(mode, "no place: WANDB_MODE is disabled")


def test_what_wandb_refuses_is_one_sentence(wandb, tmp_path):
    def refuse(**_):
        raise RuntimeError("no permission.")

    wandb.init = refuse
    with pytest.raises(InputError, match=r"^WeightsAndBiases .*runs/mine-pets-1: no permission\. "):
        log_run(run_to(10), WeightsAndBiases(tmp_path, "pets"))


class Client:
    """MLflow's client in front of a server that keeps everything it is told."""

    def __init__(self, server):
        self.server = server

    def get_experiment_by_name(self, name):
        known = name in self.server.experiments
        return SimpleNamespace(experiment_id=name) if known else None

    def create_experiment(self, name, artifact_location):
        self.server.experiments[name] = artifact_location
        return name

    def search_runs(self, experiments, filter_string):
        tag = filter_string.split("'")[1]
        return [run for run in self.server.runs if run.tags["iblurry.run"] == tag and run.experiment in experiments]

    def create_run(self, experiment, run_name, tags):
        run = SimpleNamespace(experiment=experiment, tags=dict(tags), name=run_name, metrics=[], params={}, texts={})
        run.info, run.status = SimpleNamespace(run_id=f"id{self.server.made}"), "RUNNING"
        self.server.made += 1
        self.server.runs.append(run)
        return run

    def delete_run(self, known):
        self.server.runs.remove(self._run(known))

    def log_batch(self, known, metrics=(), params=(), tags=()):
        assert len(metrics) <= 1000
        assert len(params) <= 100
        run = self._run(known)
        run.metrics += metrics
        run.params |= {param.key: param.value for param in params}
        run.tags |= {tag.key: tag.value for tag in tags}

    def log_text(self, known, text, name):
        self._run(known).texts[name] = text

    def set_terminated(self, known, status):
        self._run(known).status = status

    def _run(self, known):
        return next(run for run in self.server.runs if run.info.run_id == known)


@pytest.fixture
def server(monkeypatch, installed):
    made = SimpleNamespace(experiments={}, runs=[], uris=[], made=0)

    def client(tracking_uri):
        made.uris.append(tracking_uri)
        return Client(made)

    def entity(*names):
        return lambda *values: SimpleNamespace(**dict(zip(names, values, strict=True)))

    pair, point = entity("key", "value"), entity("key", "value", "timestamp", "step")
    module(monkeypatch, "mlflow")
    module(monkeypatch, "mlflow.exceptions", MlflowException=RuntimeError)
    module(monkeypatch, "mlflow.tracking", MlflowClient=client)
    module(monkeypatch, "mlflow.entities", Metric=point, Param=pair, RunTag=pair)
    return made


def points(run):
    return [(metric.key, metric.step, metric.value) for metric in run.metrics]


def test_mlflow_replaces_the_run(server, tmp_path):
    logger = MLflow(tmp_path, "pets")
    MLflow(tmp_path, "cars").write(run_to(10))  # another experiment's stays
    runs = [run_to(10, 20), run_to(10, 20, 30, summary=SUMMARY), run_to(15, 30, summary=SUMMARY)]
    for number, run in enumerate(runs, start=1):
        assert logger.write(run) == f"sqlite:///{tmp_path}/mlflow.db, run id{number} of pets"
        other, made = server.runs
        assert other.experiment == "cars"
        assert points(made) == [("accuracy", step, step / 100) for step, _ in run.events]
        assert made.status == ("FINISHED" if run.summary else "RUNNING")
    assert made.texts == {"events.tsv": "15\tnew_class\tc15\n30\tnew_class\tc30\n"}
    assert made.params == {name: str(value) for name, value in PARAMETERS.items()}
    assert made.tags["environment.threads"] == "1"
    assert server.experiments["pets"] == (tmp_path / "artifacts").as_uri()


def test_mlflow_takes_no_more_than_a_thousand_at_once_and_no_odd_names(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    values = {"accuracy": 0.5, "class_accuracy/a b": 0.5, "class_accuracy/..": 0.5}
    MLflow(None, "pets").write(history([(step, values) for step in range(1, 800)]))
    (run,) = server.runs
    assert len(run.metrics) == 3 * 799
    first, second, third = dict.fromkeys(metric.key for metric in run.metrics)
    assert first == "accuracy"
    assert second.startswith("class_accuracy/a-b-")
    assert third.startswith("class_accuracy/---")
    assert server.uris == ["http://somewhere"]
    assert server.experiments == {"pets": None}
    assert not (tmp_path / "logs").exists()


def test_where_things_go_unless_told(monkeypatch, wandb, server, tmp_path):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert str(make_logger("tensorboard").out) == "logs/tensorboard"
    ours = make_logger("wandb")
    assert (str(ours.out), ours.project) == ("logs", "iblurry")  # W&B makes a folder wandb there
    kept = make_logger("mlflow")
    assert (kept.project, kept.uri, kept.out) == ("iblurry", None, tmp_path / "logs/mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    assert make_logger("mlflow").uri == "http://somewhere"
    assert make_logger("mlflow", out=tmp_path, project="x").uri is None  # --out is nearer
    with pytest.raises(InputError, match="--project pets"):
        make_logger("tensorboard", project="pets")

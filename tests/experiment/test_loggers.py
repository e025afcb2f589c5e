"""Loggers: hyper-parameters and names; with libraries that only remember: a run logged again is there once."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from iblurry import MLflow, TensorBoard, WandB, replay
from iblurry.components.edit import edit
from iblurry.errors import InputError
from iblurry.experiment.callbacks import safe_name
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import flatten_experiment
from iblurry.experiment.journal import Query, encode
from iblurry.methods import METHODS
from tests.experiment.told import ENVIRONMENT, LINES, PARAMETERS, begin, finish, write

SPEC = SimpleNamespace(origin="somewhere/__init__.py")
LOGGERS = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


@pytest.mark.parametrize("name", list(METHODS))
def test_set_makes_the_same_experiment_of_another(name):
    """Every path is one that --set takes, and none is missing."""
    experiment = Experiment.of(name, "cifar10", seed=3, samples=700, memory=77, blur=30)
    flat = flatten_experiment(json.loads(json.dumps(experiment.to_json())))
    other = Experiment.of(name, "digits")
    assert flat.pop("method") == name
    for path, value in flat.items():
        if (path, value) != ("refit", "none"):
            other = edit(other, f"{path}={value}")
    assert other == experiment


def test_several_parts_in_a_slot_have_places_and_lists_are_joined():
    flat = flatten_experiment(Experiment.of("ewc", "cifar10").to_json())
    assert flat["terms"] == "CrossEntropy,Elastic"
    assert [path for path in flat if path.startswith("terms.1.")]
    assert not [path for path in flat if path.startswith("terms.0.")]
    assert flatten_experiment({"method": {"name": "m", "at": [3, 6]}}) == {"method": "m", "at": "3,6"}


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a/b", "ä", "x" * 200, "it's"])
def test_names_that_are_not_allowed_become_ones_that_are(name):
    assert re.fullmatch("[A-Za-z0-9_-]{1,120}", safe_name(name))
    assert len({safe_name(name), safe_name(name + "."), safe_name(name + "/")}) == 3
    assert safe_name("clib-digits-1-0123456789ab") == "clib-digits-1-0123456789ab"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return begin(tmp_path / "runs/mine-pets-1", LINES)


@pytest.mark.parametrize("name, module", [*zip(LOGGERS, LOGGERS, strict=True), ("mlflow", "sqlalchemy")])
@pytest.mark.parametrize("there", [None, SimpleNamespace(origin=None)], ids=["missing", "a folder of its name"])
def test_a_library_that_is_not_installed(name, module, there, monkeypatch, folder):
    monkeypatch.setattr("iblurry.experiment.callbacks.find_spec", lambda asked: there if asked == module else SPEC)
    with pytest.raises(InputError, match=rf"{module}.*iblurry\[{name}\]"):
        replay(folder, LOGGERS[name]())


def test_extras_are_declared():
    text = (Path(__file__).parent.parent.parent / "pyproject.toml").read_text()
    for name in LOGGERS:
        assert f'\n{name} = ["{name}>=' in text


@pytest.fixture
def installed(monkeypatch):
    """Every library seems to be installed."""
    monkeypatch.setattr("iblurry.experiment.callbacks.find_spec", lambda _: SPEC)


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

    def log(self, row, step, commit):
        assert step >= self.step
        assert commit
        self.rows[step], self.step = row, step + 1

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch, installed):
    """The library, its server's rows by run, and whether someone is logged in."""
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


def test_wandb_sends_a_row_when_it_is_complete_and_never_again(folder, wandb):
    logger = WandB(project="pets")
    write(folder, LINES[:5])  # the row at 20 gets the end of a task
    replay(folder, logger)
    logger.close(finished=False)
    assert logger.place == "https://there"
    rows = wandb.server["mine-pets-1"]
    assert list(rows) == [1, 3, 10]
    write(folder, LINES)
    finish(folder)
    for _ in range(2):
        replay(folder, logger)
        assert list(rows) == [1, 3, 10, 20, 22, 30, 40]
        assert rows[20]["task_end/accuracy"] == 0.875
    assert [run.finished for run in wandb.runs] == [1, 1, 1]
    assert [run.summary["finished"] for run in wandb.runs] == [False, True, True]
    given = wandb.runs[0].given
    assert (given["project"], given["id"], given["name"]) == ("pets", "mine-pets-1", "mine-pets-1")
    assert (given["mode"], given["resume"], given["reinit"]) == (None, "allow", "create_new")
    assert given["config"] == PARAMETERS | {"environment": ENVIRONMENT}
    assert given["dir"].is_dir()


@pytest.mark.parametrize("says", [None, "offline", "online", "disabled"])
def test_wandb_is_offline_where_nobody_is_logged_in_unless_the_mode_says_otherwise(says, folder, wandb, monkeypatch):
    wandb.logged_in = False
    if says is not None:
        monkeypatch.setenv("WANDB_MODE", says)
    for name in ("offline-run-1-mine-pets-1", "offline-run-1-mine-pets-10", "run-1-mine-pets-1"):
        (Path("logs/wandb") / name).mkdir(parents=True)
    logger = WandB()
    replay(folder, logger)
    given = wandb.runs[0].given
    assert (given["mode"], given["project"]) == (says or "offline", "iblurry")
    if given["mode"] != "offline":
        return
    assert (logger.place, given["resume"]) == ("here", None)
    left = sorted(path.name for path in Path("logs/wandb").iterdir())
    assert left == ["offline-run-1-mine-pets-10", "run-1-mine-pets-1"]  # written anew, and nobody else's
    assert list(wandb.runs[0].rows) == [1, 3, 10, 20, 22, 30]


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


def test_mlflow_replaces_the_run_and_takes_no_more_than_a_thousand_at_once_and_no_odd_names(
    folder, server, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    queries = [Query(at, 1, (1, 1, 1), (4, 4, 4), 0.1, at) for at in range(50, 400)]
    write(folder, [*LINES, *map(encode, queries)])
    replay(folder, MLflow(project="cars"))  # another experiment's stays
    logger = MLflow(project="pets")
    replay(folder, logger)
    logger.close(finished=False)
    assert server.runs[1].status == "RUNNING"
    finish(folder)
    replay(folder, logger)
    other, run = server.runs
    assert (other.experiment, run.status) == ("cars", "FINISHED")
    assert logger.place == "http://somewhere, run id2 of pets"
    points = [(one.step, one.value) for one in run.metrics if one.key == "accuracy"]
    assert points[:4] == [(10, 0.5), (20, 0.75), (30, 0.5), (40, 0.25)]
    assert len(points) == 4 + len(queries)
    assert any(re.fullmatch(r"class_accuracy/a/b-c-\w+", one.key) for one in run.metrics)
    assert all(re.fullmatch(r"[\w/-]+", one.key) for one in run.metrics)
    assert run.texts == {"events.tsv": "1\tnew_class\tcat\n3\tnew_class\tdog\n22\tnew_class\ta/b c\n"}
    assert run.params == {name: str(value) for name, value in PARAMETERS.items()}
    assert run.tags["environment.threads"] == "1"
    assert {*server.uris} == {"http://somewhere"}
    assert server.experiments == {"cars": None, "pets": None}
    assert not Path("logs").exists()


@pytest.mark.parametrize("out", [None, "near"])
def test_mlflow_has_a_database_of_its_own_here_or_where_it_is_told(out, folder, server, monkeypatch):
    if out is not None:  # is nearer than the environment
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    replay(folder, MLflow(out=out, project="pets"))
    place = Path.cwd() / (out or "logs/mlflow")
    assert server.uris == [f"sqlite:///{place}/mlflow.db"]
    assert server.experiments == {"pets": (place / "artifacts").as_uri()}

"""The loggers with the real libraries, where those are installed: what was written is read back, and once only."""

from __future__ import annotations

import json
import struct
import time
from collections import defaultdict
from pathlib import Path

import pytest

from iblurry import MLflow, TensorBoard, WandB, replay
from tests.experiment.told import ENVIRONMENT, FINISHED, LINES, PARAMETERS, begin, finish, write

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs are not ours to correct


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return begin(tmp_path / "runs" / "mine-pets-1", LINES)


def curves(kind):
    """The numbers or texts by name: the value at each step."""
    found = defaultdict(list)
    for step, values in FINISHED:
        for name, value in values.items():
            if isinstance(value, kind):
                found[name].append((step, value))
    return dict(found)


def log_once(folder, logger):
    finish(folder)
    replay(folder, logger)


def log_again(folder, logger):
    """Logged at line 5, cut back to line 3 as by a resume, logged while it grows, at its end and once more."""
    for lines in (5, 3, 6, 8, len(LINES)):
        write(folder, LINES[:lines])
        replay(folder, logger)
        logger.close(finished=False)
    log_once(folder, logger)
    log_once(folder, logger)


def tensorboard_events(place):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(place), size_guidance={"scalars": 0, "tensors": 0}).Reload()


@pytest.mark.parametrize("write_it", [log_once, log_again])
def test_tensorboard(folder, write_it, tmp_path):
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install 'iblurry[tensorboard]'")
    from tensorboard.plugins.hparams import metadata

    (tmp_path / "logs/tensorboard/mine-pets-1").mkdir(parents=True)
    (tmp_path / "logs/tensorboard/mine-pets-1/notes.txt").write_text("precious")
    write_it(folder, TensorBoard())
    place = tmp_path / "logs/tensorboard/mine-pets-1"
    assert len(list(place.glob("events.*"))) == 1
    assert (place / "notes.txt").read_text() == "precious"
    events = tensorboard_events(place)
    found = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert found.keys() == curves(float).keys()
    for name, points in curves(float).items():
        assert found[name] == [(step, pytest.approx(value, rel=1e-6)) for step, value in points]
    said = events.Tensors("new_class")
    assert [(event.step, event.tensor_proto.string_val[0].decode()) for event in said] == curves(str)["new_class"]
    (table,) = events.Tensors("environment")
    assert b"| torch | 2.13.0 |" in table.tensor_proto.string_val[0]
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    start = metadata.parse_session_start_info_plugin_data(content)
    assert start.group_name == "mine-pets-1"
    assert start.hparams["schedule.initial_lr"].number_value == PARAMETERS["schedule.initial_lr"]
    assert set(start.hparams) == set(PARAMETERS)


def wandb_records(path):
    """W&B's file is LevelDB's log: blocks of 32 KiB, in them pieces with a checksum, a length and a kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, pieces = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        pieces += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(pieces)
            pieces = b""


@pytest.mark.parametrize("write_it", [log_once, log_again])
def test_wandb_offline(folder, write_it, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs wandb: pip install 'iblurry[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    write_it(folder, WandB(out=str(tmp_path / "kept"), project="pets"))
    (file,) = (tmp_path / "kept").glob("wandb/offline-run-*-mine-pets-1/run-mine-pets-1.wandb")  # one, however often
    for _ in range(200):  # W&B's own process writes behind our back, until this one ends
        records = list(wandb_records(file))
        if records and records[-1].WhichOneof("record_type") == "exit":
            break
        time.sleep(0.1)
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    points = [
        (row.pop("_step"), {name: row[name] for name in row if name not in ("_timestamp", "_runtime")}) for row in rows
    ]
    assert points == FINISHED
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.display_name, run.project) == ("mine-pets-1", "mine-pets-1", "pets")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert {name: config[name] for name in PARAMETERS} == PARAMETERS
    assert config["environment"] == ENVIRONMENT


@pytest.mark.slow
@pytest.mark.parametrize("write_it", [log_once, log_again])
def test_mlflow(folder, write_it, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs mlflow: pip install 'iblurry[mlflow]'")
    pytest.importorskip("sqlalchemy", reason="needs sqlalchemy: pip install 'iblurry[mlflow]'")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    write_it(folder, MLflow())
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/logs/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("iblurry")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("mine-pets-1", "FINISHED")
    assert run.data.params == {name: str(value) for name, value in PARAMETERS.items()}
    assert run.data.tags["environment.torch"] == "2.13.0"
    told = curves(float)
    assert run.data.metrics.keys() == told.keys()
    for name, points in told.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert sorted((metric.step, metric.value) for metric in history) == points
    path = client.download_artifacts(run.info.run_id, "events.tsv", str(tmp_path))
    assert [line.split("\t")[2] for line in Path(path).read_text().splitlines()] == ["cat", "dog", "a/b c"]

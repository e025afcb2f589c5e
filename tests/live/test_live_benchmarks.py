"""The live benchmarks in a small form: a service killed under load, and one that is measured."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from benchmarks.live import crowd, idle, kills, latency, load
from iblurry.cli.live.serve import LIBRARIES

MISSING = [name for name in LIBRARIES if find_spec(name) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} of the extra `live` are missing")]


def test_killed_under_load_nothing_is_lost_doubled_or_learnt_otherwise(tmp_path):
    row = kills.killed(tmp_path / "live", times=2, seconds=1.0, seed=1)
    assert row["acknowledged"] == row["accepted"] > 20
    assert row["answers"] > 0
    assert row["corrections"] > 0
    assert row["steps of rehearsal"] > 0
    assert (row["whole"], row["same"], row["wrong"], row["exit code"]) == (True, True, [], 0)


def test_a_lost_sample_would_be_told(tmp_path):
    data = kills.load(kills.DATA)
    settings = kills.to_options(kills.SETTINGS)
    assert settings[:2] == ["--network", "mlp"]
    images, labels = data.train.images[:12], [data.classes[label] for label in data.train.labels[:12]]
    record = kills.Record()
    with kills.ServeProcess(tmp_path / "live", *settings, "--idle-updates", "0") as serving:
        with kills.Client(serving.url) as client:
            client.learn(images, labels)
            client.remove(3)
            client.wait(timeout=60)
        assert serving.stop() == 0
    kills.copy_log(tmp_path / "live" / kills.FILE, record)
    assert [entry.operation.kind for entry in record.log.values()] == ["sample"] * 12 + ["remove"]
    other = record.log[13]._replace(operation=record.log[13].operation._replace(number=4))
    assert kills.same(tmp_path / "live", record.log)
    assert not kills.same(tmp_path / "live", record.log | {13: other})
    assert not kills.same(tmp_path / "live", {at: one for at, one in record.log.items() if at < 13})


def test_a_service_is_measured(tmp_path):
    found = load.measured(tmp_path, samples=30, seconds=0.5, questions=20)
    assert min(found["samples a second"].values()) > 0
    assert min(row["questions"] for row in found["answers"].values()) > 1
    assert [figure["name"] for figure in found["figures"]] == [
        "p99 of an answer while learning, ms",
        "learning with questions / alone",
        "learning / bare torch step",
    ]
    assert "to reach  50.00" in load.table(found)


def test_a_crowd_is_measured(tmp_path):
    found = crowd.measured(tmp_path / "live", clients=4, seconds=0.5, turns=1)
    for row in (found[name] for name in crowd.NAMES):
        assert row["answers a second"] > 1
        assert row["p50 ms"] <= row["p99 ms"]
    assert found["ratio"]["service"] == found["service"]["answers a second"] / found["endpoint"]["answers a second"]
    assert found["learnt a second"] > 1


def test_a_posted_sample_is_measured(tmp_path):
    found = latency.measured(tmp_path / "live", samples=3)
    assert 0 < found["acknowledged"]["p50 ms"] < found["learnt"]["p50 ms"]


def test_idle_time_is_measured(tmp_path):
    settings = {"network": "mlp", "image": "1x8x8", "memory": 200}
    found = idle.measured(tmp_path / "live", "digits", ("one", "four", "seven"), 3.0, settings)
    assert found["updates"] > 50
    assert found["right after rehearsal"] > found["right once learnt"] - 0.05
    assert found["right after rehearsal"] > 0.8

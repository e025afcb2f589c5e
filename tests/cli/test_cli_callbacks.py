"""Callbacks from the command line: --callback, --metric, and tables that say what was stopped early."""

from __future__ import annotations

import json
import textwrap

import pytest

from iblurry.analysis.table import TABLE_METRICS
from iblurry.experiment.metrics import RESERVED
from tests.cli.conftest import QUICK

OWN = """
    from iblurry import Callback

    class Known(Callback):
        times: float = 1.0

        def on_query(self, run, answer):
            run.log("known", self.times * len(answer.total))

    class Told(Known):
        logs = ("known",)

    class Halt(Callback):
        at: int = 15

        def on_sample(self, run, sample):
            if run.position == self.at:
                run.stop("far enough")
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "known_callbacks.py"
    path.write_text(textwrap.dedent(OWN))
    return path


@pytest.fixture
def own(module):
    """What imports them, anew for each test: what a test registers is forgotten after it."""
    return "--import", module


def test_own_metrics_are_in_tables_and_json(own, call):
    said = call("run", "er", "--seeds", "1,2", *QUICK, *own, "--callback", "Known:times=2")
    assert said.code == 0, said.err
    assert "known" in said.out
    shown = call("show", "runs", "--metric", "a_auc,known,known:mean,known:min,known:max", "--json")
    table = json.loads(shown.out)["table"]
    (row,) = table["rows"]
    assert row["known"] == {"mean": 6.0, "std": 0.0}
    assert row["known:min"]["mean"] <= row["known:mean"]["mean"] <= row["known:max"]["mean"]
    assert table["units"]["a_auc"] == "percent" != table["units"]["known"]
    assert json.loads(shown.out)["runs"][0]["logged"] == {"known": 6.0}
    assert "known" in json.loads(call("show", "runs", "--json").out)["table"]["rows"][0]  # without a word
    for wrong in ("knwn", "known:median"):
        said = call("show", "runs", "--metric", wrong)
        assert said.code == 2
        assert wrong.partition(":")[2] or wrong in said.err


@pytest.mark.slow
def test_of_a_study(own, call):
    data = QUICK[1].replace("classes=4", "classes=10")
    tiny = ("main", "--dataset", data, "--methods", "er", "--seeds", "1,2")
    assert call("study", *tiny, *own, "--callback", "Known", "--jobs", "1").code == 0
    for form in ("json", "csv", "markdown", "text", "latex"):
        said = call("table", *tiny, "--metric", "a_auc,known,known:mean", "--format", form)
        assert said.code == 0, said.err
        assert "known:mean" in said.out
    table = json.loads(call("table", *tiny, "--metric", "known", "--json").out)
    assert (table["cells"][0]["mean"], table["stopped"]) == (10.0, [])


@pytest.mark.slow
def test_different_callbacks_are_not_averaged(own, call):
    for seed, times in ((1, 1), (2, 3)):
        call("run", "er", "--seeds", seed, *QUICK, *own, "--callback", f"Known:times={times}")
    said = call("show", "runs", "--metric", "known")
    assert said.code == 2
    assert "--again" in said.err
    assert call("show", "runs", "--metric", "a_auc").code == 0


@pytest.mark.quick("3")
@pytest.mark.parametrize("at", [3, 15])
def test_a_stopped_run_is_said_to_be_one(at, own, call):
    command = ("run", "er", "--seeds", "1", *QUICK, *own)
    said = call(*command, "--callback", f"Halt:at={at}")
    assert said.code == 0, said.err
    assert "far enough" in " ".join(said.out.split())  # a long line is wrapped
    assert call(*command, "--callback", f"Halt:at={at}").code == 0
    assert call(*command).code == 2  # no whole run
    if at == 15:  # with a query
        shown = json.loads(call("show", "runs", "--json").out)
        assert shown["table"]["stopped"] == [{"run": "er seed 1", "at": at, "reason": "far enough"}]
    assert call("dev", "collect", "runs", "--out", "results").code == 0
    again = call(*command, "--again", "--json")
    assert json.loads(again.out)["table"]["stopped"] == []


def test_names_of_callbacks_and_their_fields(own, here, call):
    for wrong, named in (("Knwn", "Known"), ("Known:tims=2", "times"), ("Known:times=x", "times")):
        said = call("run", "er", *QUICK, *own, "--callback", wrong)
        assert said.code == 2
        assert named in said.err
        assert not (here / "runs").exists()


@pytest.mark.slow
def test_unknown_metrics_are_refused_before_anything_is_run(own, here, call):
    command = ("run", "er", "--seeds", "1", *QUICK, *own)
    for more, wrong, named in (
        ((), "a_ucc", "a_auc"),
        ((), "known", "known"),
        ((), "min_acc:median", "median"),
        ((), "a_auc:mean", "a_auc:mean"),
        (("--callback", "Known"), "a_auc:mean", "a_auc:mean"),
        (("--callback", "Known"), "known:median", "median"),
        (("--callback", "Known"), "a_auc,a_auc", "a_auc"),
        (("--callback", "Told"), "knwn", "known"),
    ):
        said = call(*command, *more, "--metric", wrong)
        assert said.code == 2
        assert named in said.err
        assert not (here / "runs").exists()
    said = call(*command, "--callback", "Told", "--metric", "known:max,min_acc,forgetting:mean")
    assert said.code == 0, said.err
    assert call(*command, "--metric", "known").code == 0  # a run that is there has it
    assert call(*command, "--metric", "known", "--again").code == 2
    assert call("show", "runs").code == 0  # nothing was deleted


@pytest.mark.slow
def test_metrics_of_classes_come_from_journals(call):
    names = ["aaa", "balanced_acc", "min_acc", "wc_acc", "worst_class", "forgetting", "wf10", "wp100", "forgetting:max"]
    said = call("run", "er", "--seeds", "1,2", *QUICK, "--metric", ",".join(names), "--json")
    assert said.code == 0, said.err
    table = json.loads(said.out)["table"]
    assert set(table["units"].values()) == {"percent"}
    (row,) = table["rows"]
    assert list(row) == ["method", "n", *names]
    assert 0 <= row["worst_class"]["mean"] <= row["balanced_acc"]["mean"] <= 100
    assert row["forgetting"]["mean"] <= row["forgetting:max"]["mean"]
    shown = call("show", "runs", "--metric", "min_acc,forgetting:max").out
    assert "min-ACC ↑" in shown
    assert "forgetting:max ↓" in shown


def test_callbacks_of_the_package_need_no_import(call, here):
    command = (
        "run",
        "er",
        "--seeds",
        "1",
        *QUICK,
        "--set",
        "schedule.initial_lr=0.01",
        "--callback",
        "KnowledgeRatios:every=5",
    )
    said = call(*command, "--metric", "klr:mean,kgr,kgr_released:max", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["table"]["rows"][0]["kgr_released:max"]["mean"] > 0
    assert call(*command, "--metric", "klrr").code == 2
    said = call("run", "er", "--callback", "KnowledgeRatios:every=0")
    assert said.code == 2
    assert "every" in said.err


def test_no_metric_of_the_package_can_be_logged():
    assert set(TABLE_METRICS) <= set(RESERVED)

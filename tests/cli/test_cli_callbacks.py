"""Callbacks from the command line: --callback, --metric, and tables that say what was stopped early."""

from __future__ import annotations

import json
import textwrap

import pytest

from iblurry.analysis.table import TABLE_METRICS
from iblurry.experiment.metrics import RESERVED
from tests.cli.conftest import DATA, QUICK

RUN = ("run", "er", "--seeds", "1", *QUICK)
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
    shown = json.loads(call("show", "--metric", "a_auc,known,known:mean,known:min,known:max", "--json").out)
    table = shown["table"]
    (row,) = table["rows"]
    assert row["known"] == {"mean": 6.0, "std": 0.0}
    assert row["known:min"]["mean"] <= row["known:mean"]["mean"] <= row["known:max"]["mean"]
    assert table["units"]["a_auc"] == "percent" != table["units"]["known"]
    assert shown["runs"][0]["logged"] == {"known": 6.0}
    assert "known" in json.loads(call("show", "--json").out)["table"]["rows"][0]  # without a word
    for wrong in ("knwn", "known:median"):
        said = call("show", "--metric", wrong)
        assert said.code == 2
        assert wrong.partition(":")[2] or wrong in said.err


@pytest.mark.slow
def test_of_a_study(own, call):
    tiny = ("main", "--dataset", DATA.replace("classes=4", "classes=10"), "--methods", "er", "--seeds", "1,2")
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
    said = call("show", "--metric", "known")
    assert (said.code, "--again" in said.err) == (2, True)
    assert call("show", "--metric", "a_auc").code == 0


@pytest.mark.quick("3")
@pytest.mark.parametrize("at", [3, 15])
def test_a_stopped_run_is_said_to_be_one(at, own, call):
    halted = (*RUN, *own, "--callback", f"Halt:at={at}")
    said = call(*halted)
    assert said.code == 0, said.err
    assert "far enough" in " ".join(said.out.split())  # a long line is wrapped
    assert call(*halted).code == 0
    assert call(*RUN, *own).code == 2  # no whole run
    if at == 15:  # with a query
        shown = json.loads(call("show", "--json").out)
        assert shown["table"]["stopped"] == [{"run": "er seed 1", "at": at, "reason": "far enough"}]
    assert call("dev", "collect").code == 0
    assert json.loads(call(*RUN, *own, "--again", "--json").out)["table"]["stopped"] == []


@pytest.mark.parametrize("wrong, named", [("Knwn", "Known"), ("Known:tims=2", "times"), ("Known:times=x", "times")])
def test_names_of_callbacks_and_their_fields(own, refused, wrong, named):
    assert named in refused("run", "er", *QUICK, *own, "--callback", wrong)


@pytest.mark.slow
def test_unknown_metrics_are_refused_before_anything_is_run(own, refused, call):
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
        assert named in refused(*RUN, *own, *more, "--metric", wrong)
    said = call(*RUN, *own, "--callback", "Told", "--metric", "known:max,min_acc,forgetting:mean", "--json")
    assert [*json.loads(said.out)["table"]["rows"][0]][2:] == ["known:max", "min_acc", "forgetting:mean"]
    assert call(*RUN, *own, "--metric", "known").code == 0  # a run that is there has it
    refused(*RUN, *own, "--metric", "known", "--again")  # nothing was deleted


def test_callbacks_of_the_package_need_no_import(call, refused):
    words = (*RUN, "--set", "schedule.initial_lr=0.01", "--callback", "KnowledgeRatios:every=5")
    said = call(*words, "--metric", "klr:mean,kgr,kgr_released:max", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["table"]["rows"][0]["kgr_released:max"]["mean"] > 0
    assert "klrr" in refused(*words, "--metric", "klrr")
    assert "every" in refused("run", "er", "--callback", "KnowledgeRatios:every=0")


def test_no_metric_of_the_package_can_be_logged():
    assert set(TABLE_METRICS) <= set(RESERVED)

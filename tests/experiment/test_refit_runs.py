"""Runs with refits: left in the middle of one they go on inside it, also where several are trained at once, later."""

from __future__ import annotations

from contextlib import suppress

import pytest

from iblurry.analysis.figures.curves import draw_curves
from iblurry.errors import InputError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Held, Query, Spent, TaskEnd, read
from iblurry.launch.launch import run
from iblurry.learner import refits
from iblurry.learner.refits import RefitStack
from iblurry.methods import Hyperparameters, method
from iblurry.storage.checkpoint import load_latest
from tests.experiment.conftest import REFITS
from tests.experiment.small import CrashError, Recorder, checkpoints, crash, kept, small, stop


class InRefit(Recorder):
    """Acts at the so manieth update of refits in this sitting."""

    def __init__(self, number, act):
        super().__init__()
        self.number, self.act, self.told = number, act, []

    def on_refit_progress(self, done, total):
        super().on_refit_progress(done, total)
        self.told.append(done)
        if len(self.told) == self.number:
            self.act()


@pytest.fixture(autouse=True)
def _looks_at_every_update(monkeypatch):
    """A clock that leaps: every look is due."""
    from iblurry.experiment import checkpointer, run_loop

    class Leaping:
        now = 0.0

        @classmethod
        def monotonic(cls):
            cls.now += 1.5
            return cls.now

    for module in (run_loop, checkpointer):
        monkeypatch.setattr(module, "time", Leaping)


@pytest.mark.quick("rm")
@pytest.mark.parametrize("name", REFITS)
def test_stopped_and_crashed_inside_refits(name, tmp_path, whole):
    """A polite stop saves there; a crash falls back on a checkpoint that lies inside a refit, too."""
    folder = tmp_path / small(name).name
    inside = 0
    for number, act in ((2, stop), (1, crash), (3, stop), (4, crash), (1, stop), (3, crash)):
        callback = InRefit(number, act)
        try:
            done = run(small(name), tmp_path, callback=callback, checkpoints=CheckpointPolicy(seconds=4, share=1))
        except CrashError:
            assert act is crash
        else:
            assert done.summary is None or len(callback.told) <= number  # stopped, or no update was left to stop at
        refit = load_latest(folder).state["learner"]["refit"] if checkpoints(folder) else None
        inside += refit is not None and refit["updates"] > 0
    assert inside >= 2
    assert run(small(name), tmp_path).summary is not None
    assert kept(folder) == whole[name]


def test_a_stop_inside_a_refit_loses_nothing(tmp_path, whole):
    callback = InRefit(3, stop)
    assert run(small("rm"), tmp_path, callback=callback, checkpoints=CheckpointPolicy(seconds=1e9)).summary is None
    saved = load_latest(tmp_path / small("rm").name)
    assert saved.at == 40  # the end of the first task, whose refit it is
    assert saved.state["learner"]["refit"]["updates"] == 4  # the signal is heard after the next update
    again = InRefit(0, stop)
    run(small("rm"), tmp_path, callback=again)
    assert again.told == [5, 6, 1, 2, 3, 4, 5, 6]
    assert kept(tmp_path / small("rm").name) == whole["rm"]


def test_joint_answers_once(tmp_path, whole):
    done = run(small("joint"), tmp_path)
    assert [r.at for r in done.records if isinstance(r, Query | TaskEnd)] == [80]
    assert [record.kind for record in done.records[-3:]] == ["task", "held", "spent"]
    assert [(r.at, r.updates) for r in done.records if isinstance(r, Spent)] == [(40, 0), (80, 30)]
    assert [r.rows for r in done.records if isinstance(r, Held)][-1] == (20, 20, 20, 20)
    assert (done.metrics.a_auc, done.metrics.a_avg, done.metrics.f_last) == (None, None, None)
    assert done.metrics.a_last == done.records[-3].accuracy
    assert done.summary["a_last"] == done.metrics.a_last


@pytest.mark.slow
def test_the_shapes_the_paper_describes(tmp_path):
    """RM: low between boundaries, high at them. GDumb: as good at any time as at the ends. Joint: above them all."""
    data = "shapes:classes=6,train=60,test=20,size=8,channels=1"
    done = {}
    for name in ("rm", "gdumb", "joint"):
        chosen = method(name, Hyperparameters(batch=8, epochs=16))
        one = Experiment.of(chosen, data, tasks=3, memory=60, network="mlp", query_every=30)
        done[name] = run(one, tmp_path).metrics
    assert done["rm"].a_avg > done["rm"].a_auc + 0.25
    assert abs(done["gdumb"].a_avg - done["gdumb"].a_auc) < 0.1
    assert done["gdumb"].a_auc > done["rm"].a_auc + 0.2
    assert done["joint"].a_last > max(done["gdumb"].a_last, done["rm"].a_last)


def test_boundaries_are_marked_where_they_change_the_answer(tmp_path):
    rm, er = ([run(small(name, query_every=8), tmp_path).records] for name in ("rm", "er"))
    draw_curves({"": {"er": er}}, tmp_path / "er.svg")
    draw_curves({"": {"rm": rm}}, tmp_path / "rm.svg")
    open_markers = 'style="fill: #ffffff; stroke: #'
    assert open_markers in (tmp_path / "rm.svg").read_text()
    assert open_markers not in (tmp_path / "er.svg").read_text()


@pytest.mark.parametrize("name", ["ewc", "bic", "rm"])
def test_one_task_has_no_boundary(name, tmp_path):
    with pytest.raises(InputError, match=name):
        run(small(name, tasks=1), tmp_path)
    assert run(small("gdumb", tasks=1, query_every=40), tmp_path).summary is not None


GDUMB = small(
    "gdumb",
    "shapes:classes=4,train=8,test=5,size=8",
    network="convnet:width=4",
    memory=8,
    query_every=4,
)


@pytest.fixture
def stacks(monkeypatch):
    """Refits are stacked in twos on the CPU; what each stack trained is noted."""
    trained = []
    train = RefitStack.train

    def noted(self, snapshots):
        trained.append([snapshot.seen for snapshot in snapshots])
        train(self, snapshots)

    monkeypatch.setattr(RefitStack, "fits", staticmethod(lambda training, context: context.memory.full))
    monkeypatch.setattr(RefitStack, "train", noted)
    monkeypatch.setattr(refits, "MODELS", 2)
    return trained


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory):
    return read(run(GDUMB, tmp_path_factory.mktemp("plain")).folder / "journal.jsonl")


def test_the_journal_is_that_of_refits_one_by_one(tmp_path, stacks, one_by_one):
    done = run(GDUMB, tmp_path, checkpoints=CheckpointPolicy(seconds=1000))
    assert stacks == [[8, 12], [16, 20], [24, 28], [32]]
    records = read(done.folder / "journal.jsonl")
    assert [type(record) for record in records] == [type(record) for record in one_by_one]
    asked = [record for record in records if isinstance(record, Query | TaskEnd)]
    expected = [record for record in one_by_one if isinstance(record, Query | TaskEnd)]
    assert [(one.at, one.total) for one in asked] == [(one.at, one.total) for one in expected]
    assert asked[0] == expected[0]  # the memory was not full
    assert [one for one in records if isinstance(one, Spent)] == [one for one in one_by_one if isinstance(one, Spent)]


@pytest.mark.parametrize("act", [stop, crash])
def test_left_in_a_stack_it_is_trained_again(tmp_path, stacks, act):
    whole = run(GDUMB, tmp_path / "whole")
    del stacks[:]
    for number in (5, 8, 5):  # updates of this sitting; the first three are those of a memory that is not full
        with suppress(CrashError):
            left = run(GDUMB, tmp_path / "left", callback=InRefit(number, act))
            assert left.summary is None
    assert len(stacks) > len(set(map(tuple, stacks)))  # some were begun again
    assert kept(run(GDUMB, tmp_path / "left").folder) == kept(whole.folder)

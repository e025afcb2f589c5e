"""A run from its first line to its summary, and what it does when something is in the way."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from iblurry.data.load import load
from iblurry.errors import DivergedError, FolderError, InputError
from iblurry.experiment import run_loop
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware, source_commit
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Held, NewClass, Query, Spent, Start, TaskEnd, read
from iblurry.experiment.metrics import curve
from iblurry.experiment.result import read_result
from iblurry.launch.launch import run
from iblurry.learner.cost import bytes_held
from iblurry.learner.learner import Learner
from iblurry.parts import Constant
from iblurry.storage import checkpoint
from iblurry.storage.checkpoint import load_latest
from tests.experiment.small import DATA, At, CrashError, Recorder, checkpoints, crash, kept, small, stop

FLOPS = 2 * (64 * 16 + 16 * 16 + 16 * 4)  # of the mlp for 1x8x8 and four classes


def by_hand(experiment, data):
    """The journal of an experiment, with a learner, a loop and nothing else."""
    order, learner = experiment.order(data), experiment.learner(data)
    records = [Start(experiment.digest, len(order), order.ends, experiment.query_every)]
    met = []

    def ask(kind, at, task):
        answers = learner.predict(data.test.images)
        truth = [data.classes[label] for label in data.test.labels]
        right = [sum(a == t == name for a, t in zip(answers, truth, strict=True)) for name in met]
        total = [truth.count(name) for name in met]
        return kind(at, task, tuple(right), tuple(total), learner.method.schedule.lr, learner.context.updates)

    at = asked = 0
    for task, indices in enumerate(order.tasks):
        for index in indices:
            at += 1
            name = data.classes[data.train.labels[index]]
            learner.observe(data.train.images[index], name)
            if name not in met:
                met.append(name)
                records.append(NewClass(at, name))
            if at % experiment.query_every == 0:
                records.append(ask(Query, at, task))
                asked += sum(records[-1].total)
                if at == 70:  # the tenth
                    rows = [met[row] for row in learner.context.memory.labels[:-1].tolist() if row >= 0]
                    records.append(Held(at, tuple(rows.count(name) for name in met)))
        learner.end_task()
        records.append(ask(TaskEnd, at, task))
        asked += sum(records[-1].total)
        rows = [met[row] for row in learner.context.memory.labels[:-1].tolist() if row >= 0]
        records.append(Held(at, tuple(rows.count(name) for name in met)))
        own, updates = learner.context.spent.forward, learner.context.updates
        assert learner.context.spent.backward["training"] == own["training"]
        forward = own | {"queries": asked}
        backward = dict.fromkeys(own, 0) | {"training": own["training"]}
        work = {name: FLOPS * (forward[name] + 2 * backward[name]) for name in forward}
        records.append(Spent(at, updates, forward, backward, work, bytes_held(learner)))
    return records


@pytest.mark.parametrize("name", ["er", "clib"])
def test_the_journal_is_what_a_plain_loop_gives(name, tmp_path):
    experiment = small(name, samples=75)  # the last task is cut; 35 is a query and no end of a task
    callback = Recorder()
    done = run(experiment, tmp_path, callback=callback)
    expected = by_hand(experiment, load(DATA))
    assert read(done.folder / "journal.jsonl") == expected
    assert done.records == expected
    assert [r.at for r in expected if isinstance(r, Query)] == list(range(7, 76, 7))
    assert [r.at for r in expected if isinstance(r, TaskEnd)] == [40, 75]
    assert sum(isinstance(r, NewClass) for r in expected) == 4
    assert done.folder == tmp_path / experiment.name
    assert callback.position == 75


def test_parts_hear_of_the_end_of_a_task_before_it_is_asked_about(tmp_path, monkeypatch):
    events = []
    append = run_loop.Journal.append
    monkeypatch.setattr(run_loop.Journal, "append", lambda self, r: (events.append(r.kind), append(self, r)))
    end = Learner.end_task
    monkeypatch.setattr(Learner, "end_task", lambda self: (events.append(f"end at {self.context.seen}"), end(self)))
    run(small(query_every=40), tmp_path)
    assert [event for event in events if event != "class"] == [
        "start", "query", "end at 40", "task", "held", "spent", "query", "end at 80", "task", "held", "spent",
    ]  # fmt: skip


def test_the_summary(tmp_path):
    done = run(small(), tmp_path)
    summary = json.loads((done.folder / "summary.json").read_text())
    assert summary == done.summary
    assert {"a_auc", "a_avg", "a_last", "f_last", "samples", "updates", "queries", "seconds", "samples_per_second"} <= {
        *summary
    }
    queries = [r for r in done.records if isinstance(r, Query)]
    ends = [r for r in done.records if isinstance(r, TaskEnd)]
    assert summary["a_auc"] == pytest.approx(np.mean([sum(q.correct) / sum(q.total) for q in queries]))
    assert summary["a_avg"] == pytest.approx(np.mean([sum(e.correct) / sum(e.total) for e in ends]))
    assert summary["a_last"] == pytest.approx(sum(ends[-1].correct) / sum(ends[-1].total))
    assert (summary["samples"], summary["updates"], summary["queries"]) == (80, 80, 11)
    last = done.records[-1]
    assert summary["compute"] == {
        name: getattr(last, name) for name in ("updates", "forward", "backward", "flops", "bytes")
    }
    assert summary["compute"]["updates"] == 80
    assert summary["samples_per_second"] == pytest.approx(80 / summary["seconds"])
    assert curve(done.records)[0].tolist() == list(range(7, 80, 7))  # the ends of tasks are no points of it


def test_a_finished_run_is_only_read(tmp_path):
    done = run(small(), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in [done.folder, *done.folder.iterdir()]}
    again = run(small(), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in [done.folder, *done.folder.iterdir()]} == before
    assert again == done


def test_a_run_that_was_not_begun_has_no_records(tmp_path):
    nothing = read_result(RunFolder(tmp_path / "nowhere"), small())
    assert (nothing.records, nothing.summary, nothing.metrics.queries) == ([], None, 0)


def test_the_checkpoint_policy_is_checked():
    with pytest.raises(InputError, match="samples=0"):
        CheckpointPolicy(samples=0)
    with pytest.raises(InputError, match="seconds=nan"):
        CheckpointPolicy(seconds=float("nan"))
    with pytest.raises(InputError, match="share=0"):
        CheckpointPolicy(share=0)


@pytest.mark.slow
def test_checkpoints_by_time_and_by_sample(tmp_path, monkeypatch):
    saved = []
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda f, s, *, at, **more: (saved.append(at), save(f, s, at=at, **more)))
    run(small(seed=1), tmp_path, checkpoints=CheckpointPolicy(samples=30))
    assert saved == [30, 60, 80]
    saved.clear()
    run(small(seed=2), tmp_path, checkpoints=CheckpointPolicy(seconds=0, share=1))
    assert saved == list(range(1, 81))
    saved.clear()
    run(small(seed=3), tmp_path)
    assert saved == [80]


@pytest.mark.usefixtures("every_sample")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_same_call_goes_on(number, tmp_path):
    whole = run(small(), tmp_path / "whole")
    asking = At(33, lambda: os.kill(os.getpid(), number))
    stopped = run(small(), tmp_path, callback=asking)
    assert asking.acted
    assert stopped.summary is None
    assert stopped.metrics.samples == 28  # the last query
    assert [path.name for path in checkpoints(stopped.folder)] == ["checkpoint-000000000033.safetensors"]
    assert not (stopped.folder / "summary.json").exists()
    done = run(small(), tmp_path)
    assert done.summary is not None
    assert kept(done.folder) == kept(whole.folder)


@pytest.mark.usefixtures("every_sample")
def test_a_signal_at_the_last_sample_finds_the_run_finished(tmp_path):
    done = run(small(), tmp_path, callback=At(80, stop))
    assert done.summary is not None


def test_the_environment_is_recorded_and_its_threads_come_back(tmp_path):
    data = load(DATA)
    seen = []
    asking = At(20, lambda: (seen.append(torch.get_num_threads()), stop()))
    folder = run(small(), tmp_path, callback=asking, hardware=Hardware(threads=2)).folder
    about = json.loads((folder / "environment.json").read_text())
    assert about["threads"] == 2
    assert about["torch"] == torch.__version__
    assert about["data"] == data.fingerprint()
    assert about["commit"] == source_commit()
    run(small(), tmp_path, callback=At(40, lambda: seen.append(torch.get_num_threads())), hardware=Hardware(threads=1))
    assert seen == [2, 2]
    assert torch.get_num_threads() == 1  # as before the run
    after = json.loads((folder / "environment.json").read_text())
    assert after["threads"] == 2
    assert after["seconds"] > about["seconds"]


def test_the_commit_is_that_of_the_checkout_or_what_a_copy_says(monkeypatch):
    monkeypatch.delenv("IBLURRY_COMMIT", raising=False)
    is_checkout = (Path(__file__).parents[2] / ".git").exists() and shutil.which("git")
    assert re.fullmatch(r"[0-9a-f]{40}\+?" if is_checkout else "None", str(source_commit.__wrapped__()))
    monkeypatch.setenv("IBLURRY_COMMIT", "abc")
    assert source_commit.__wrapped__() == "abc"


@pytest.mark.usefixtures("every_sample")
def test_another_torch_is_said_and_other_data_is_refused(tmp_path):
    folder = run(small(), tmp_path, callback=At(20, stop)).folder
    path = folder / "environment.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"data": "0" * 64}))
    with pytest.raises(FolderError, match="data of 'shapes:"):
        run(small(), tmp_path)
    path.write_text(json.dumps(about | {"order": "0" * 64}))
    with pytest.raises(FolderError, match="order of the samples of 'shapes:"):
        run(small(), tmp_path)
    assert [p.name for p in checkpoints(folder)] == ["checkpoint-000000000020.safetensors"]
    path.write_text(json.dumps(about | {"torch": "1.0"}))
    callback = Recorder()
    assert run(small(), tmp_path, callback=callback).summary is not None
    (text,) = callback.messages
    assert f"torch 1.0 (now {torch.__version__})" in text


def exploding(**changes):
    one = small(**changes)
    return dataclasses.replace(one, method=dataclasses.replace(one.method, schedule=Constant(initial_lr=1e30)))


def assert_sound(folder, at):
    """The journal tells of no sample after the last good one but what a sound network said; the checkpoint loads."""
    loaded = load_latest(folder)
    assert loaded is not None
    assert loaded.at == at
    assert all(v.isfinite().all() for v in loaded.state["learner"]["network"].values())


@pytest.mark.parametrize("name", ["er", "clib", "clib-stream"])
def test_a_loss_that_is_no_number_stops_the_run(name, tmp_path):
    experiment = exploding(name=name)
    with pytest.raises(DivergedError) as caught:
        run(experiment, tmp_path, checkpoints=CheckpointPolicy(samples=1))
    folder = tmp_path / experiment.name
    at = int(checkpoints(folder)[-1].stem.split("-")[1])
    assert f"at sample {at}, " in str(caught.value)
    assert str(folder) in str(caught.value)
    assert_sound(folder, at)
    assert not (folder / "summary.json").exists()


def poison(monkeypatch, sample):
    """Spoils a weight after a sample, whose own loss was good."""
    observe = Learner.observe

    def spoilt(self, image, label):
        observe(self, image, label)
        if self.context.seen == sample:
            with torch.no_grad():
                self.context.network.head.weight[0, 0] = float("nan")

    monkeypatch.setattr(Learner, "observe", spoilt)


@pytest.mark.parametrize("sample", [21, 30])  # of a query; of a checkpoint
def test_what_a_broken_network_says_is_neither_written_nor_saved(sample, tmp_path, monkeypatch):
    poison(monkeypatch, sample)
    with pytest.raises(DivergedError, match=rf"sample {sample}.*sample 20"):
        run(small(), tmp_path, checkpoints=CheckpointPolicy(samples=10))
    folder = tmp_path / small().name
    assert_sound(folder, 20)
    assert max(r.at for r in read(folder / "journal.jsonl")[1:]) < sample


@pytest.mark.usefixtures("every_sample")
def test_who_stops_a_broken_run_hears_of_it(tmp_path, monkeypatch):
    poison(monkeypatch, 3)
    with pytest.raises(DivergedError, match="sample 3"):
        run(small(), tmp_path, callback=At(3, stop))


def test_changed_pixels_are_noticed(tmp_path):
    data = load(DATA)
    with pytest.raises(CrashError):
        run(small(), tmp_path, dataset=data, callback=At(20, crash))
    pixels = data.train.images.copy()
    pixels[3, 0, 2, 2] ^= 1
    other = dataclasses.replace(data, train=dataclasses.replace(data.train, images=pixels))
    with pytest.raises(FolderError, match="The data of 'shapes:"):
        run(small(), tmp_path, dataset=other)

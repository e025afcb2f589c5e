"""Callbacks in runs: they read without a trace, log and stop exactly, resume exactly, and results are never stale."""

from __future__ import annotations

import json

import pytest

from iblurry import Callback, CheckpointPolicy, LaunchConfig, run, run_all
from iblurry.errors import FolderError, InputError
from iblurry.experiment.journal import Logged, Spent, Stopped, decode, encode, read
from iblurry.storage import checkpoint
from iblurry.studies.collect import read_run
from tests.experiment.small import At, CrashError, crash, kept, small
from tests.experiment.user_callbacks import Mine, ReadEverything, StopAt, Watching
from tests.laws.lawful import assert_same_state

OFTEN = CheckpointPolicy(samples=3)
KINDS = ["er", "rm", "clib", "bic", "gdumb", "joint"]


def without_own(folder):
    lines = (folder / "journal.jsonl").read_bytes().splitlines()
    return [line for line in lines if not isinstance(decode(line), Logged)]


def newest(folder):
    state = checkpoint.load_latest(folder).state
    return {name: value for name, value in state.items() if name not in ("callbacks", "journal")}


@pytest.mark.quick("er", "rm")
@pytest.mark.parametrize("name", KINDS)
def test_a_callback_that_reads_everything_leaves_no_trace_and_goes_on_after_a_kill(name, tmp_path):
    experiment = small(name)
    plain = run(experiment, tmp_path / "plain")
    read_all = run(experiment, tmp_path / "read", callback=ReadEverything(), checkpoints=OFTEN)
    assert without_own(read_all.folder) == without_own(plain.folder)
    assert_same_state(newest(read_all.folder), newest(plain.folder))
    assert {"new_class.seen", "sample.loss", "task_end.seen", "train_end.rows"} <= read_all.logged.keys()
    assert len(read_all.logged["sample.seen"]) == 80
    assert ("query.accuracy" in read_all.logged) == (name != "joint")
    same = {key: value for key, value in plain.summary.items() if "second" not in key}
    assert {key: read_all.summary[key] for key in same} == same
    for sample in (20, 40, 60):
        with pytest.raises(CrashError):
            run(experiment, tmp_path / "cut", callback=[ReadEverything(), At(sample, crash)], checkpoints=OFTEN)
    resumed = run(experiment, tmp_path / "cut", callback=ReadEverything(), checkpoints=OFTEN)
    assert kept(resumed.folder) == kept(read_all.folder)


@pytest.mark.quick("rm")
@pytest.mark.parametrize("name", ["rm", "gdumb", "joint"])
def test_killed_between_two_updates_of_a_refit(name, tmp_path):
    class InRefit(Callback):
        calls = 0

        def on_refit_progress(self, done, total):
            self.calls += 1
            if self.calls == 2:
                raise CrashError

    experiment, always = small(name), CheckpointPolicy(seconds=0, share=1)
    whole = run(experiment, tmp_path / "whole", callback=ReadEverything())
    with pytest.raises(CrashError):
        run(experiment, tmp_path / "cut", callback=[ReadEverything(), InRefit()], checkpoints=always)
    resumed = run(experiment, tmp_path / "cut", callback=ReadEverything())
    assert kept(resumed.folder) == kept(whole.folder)


@pytest.mark.quick("1-er", "40-er")
@pytest.mark.parametrize("name", ["er", "gdumb", "joint"])
@pytest.mark.parametrize("sample", [1, 37, 40, 79])
def test_stopping_early_is_a_finished_run_that_says_so(name, sample, tmp_path):
    experiment = small(name)
    whole = run(experiment, tmp_path / "whole")
    result = run(experiment, tmp_path, callback=StopAt(sample=sample))
    assert result.stopped == Stopped(sample, f"after {sample}") == result.records[-1]
    assert result.summary["stopped"] == {"at": sample, "reason": f"after {sample}"}
    assert [record for record in result.records if isinstance(record, Spent)][-1].at == sample
    before = [record for record in whole.records[1:] if record.at <= sample]
    assert [one for one in result.records[1:] if not isinstance(one, Stopped)][: len(before)] == before
    assert result.metrics.queries == (0 if name == "joint" else sample // 7)
    assert read_run(result.folder).stopped
    again = run(experiment, tmp_path, callback=StopAt(sample=sample))
    assert again.records == result.records


def test_a_stop_at_the_last_sample_is_the_end(tmp_path):
    assert run(small(), tmp_path / "a", callback=StopAt(sample=80)).stopped is None
    both = [run(small(), tmp_path / place).folder / "journal.jsonl" for place in ("a", "b")]
    assert read(both[0]) == read(both[1])


def test_a_stopped_run_that_was_interrupted_has_the_same_bytes(tmp_path):
    class LateStop(StopAt):
        def on_train_end(self, run):
            run.log("end", run.position)

    whole = run(small("rm"), tmp_path / "whole", callback=LateStop(sample=41))
    for at in (20, 40):
        place = tmp_path / str(at)
        with pytest.raises(CrashError):
            run(small("rm"), place, callback=[LateStop(sample=41), At(at, crash)], checkpoints=OFTEN)
        assert kept(run(small("rm"), place, callback=LateStop(sample=41)).folder) == kept(whole.folder)
    (whole.folder / "summary.json").unlink()  # killed right before it was written
    assert run(small("rm"), tmp_path / "whole", callback=LateStop(sample=41)).records == whole.records


def test_logged_numbers_are_records_and_in_the_summary(tmp_path):
    result = run(small(), tmp_path, callback=Mine(scale=2.0))
    assert [at for at, _ in result.logged["mine"]] == list(range(7, 80, 7))
    assert result.summary["logged"] == {"mine": result.logged["mine"][-1][1]}
    assert encode(Logged(7, "mine", 0.5)) == b'{"kind":"metric","at":7,"name":"mine","value":0.5}\n'
    assert encode(Stopped(7, "why")) == b'{"kind":"stop","at":7,"reason":"why"}\n'


UNLOGGABLE = [("a_auc", 1.0), ("with,comma", 1.0), (" ", 1.0), (3, 1.0), ("mine", float("nan")), ("mine", "x")]


@pytest.mark.parametrize(
    "hook, act, named",
    [
        *(("on_sample", lambda _, run, sample, given=given: run.log(*given), str(given[0])) for given in UNLOGGABLE),
        ("on_train_start", lambda _, run: run.log("mine", 1), "run.log was called"),
        ("on_train_start", lambda _, run: run.stop("now"), "run.stop was called"),
        ("on_sample_start", lambda _, run, sample: run.log("mine", 1), "run.log was called"),
        ("on_sample_start", lambda _, run, sample: run.stop("now"), "run.stop was called"),
        ("on_sample", lambda _, run, sample: run.learner.observe(sample.image, sample.label), "Wrong"),
        ("on_train_start", lambda self, run: setattr(self, "unsaved", object()), "unsaved"),
    ],
)
def test_what_a_callback_may_not_do(hook, act, named, tmp_path):
    wrong = type("Wrong", (Callback,), {hook: act})
    with pytest.raises(InputError, match=named):
        run(small(), tmp_path, callback=wrong())


@pytest.mark.slow
def test_the_end_is_told_where_the_run_was_called_from(tmp_path):
    class Ended(Callback):
        times = 0

        def on_run_end(self):
            self.times += 1

    first, stopped, crashed, packed = (Ended() for _ in range(4))  # in workers: test_workers
    run(small(), tmp_path / "a", callback=first)
    run(small(), tmp_path / "b", callback=[StopAt(), stopped])
    with pytest.raises(CrashError):
        run(small(), tmp_path / "c", callback=[At(40, crash), crashed])
    run_all([small(), small(seed=2)], LaunchConfig(out=tmp_path, jobs=1, pack=2), packed)
    assert (first.times, stopped.times, crashed.times, packed.times) == (1, 1, 0, 2)


def test_a_callback_that_only_watches_may_have_an_init_and_children(tmp_path):
    class Named(Callback):
        def __init__(self, name):
            self.name, self.seen = name, 0

    class Child(Named):
        def on_progress(self, position, accuracy, lr):
            self.seen = position

    child = Child("child")
    assert child.name == "child"
    run(small(), tmp_path, callback=child)
    assert child.seen == 80
    with pytest.raises(InputError, match="Grandchild"):

        class Grandchild(Child):
            def on_sample(self, run, sample):
                pass


@pytest.mark.slow
def test_each_run_has_a_copy_of_its_own(tmp_path):
    given = ReadEverything()
    given.best = object()  # is no setting, and stays here
    results = run_all([small(), small(seed=2)], LaunchConfig(out=tmp_path, jobs=1, pack=2), given)
    assert given.seen == 0
    assert kept(results[1].folder) == kept(run(small(seed=2), tmp_path / "alone", callback=ReadEverything()).folder)


def test_other_callbacks_are_refused_with_the_remedy(tmp_path):
    run(small(), tmp_path, callback=Mine())
    run(small(), tmp_path, callback=Watching())  # only watches
    run(small(), tmp_path)  # all that was learned is there
    for other in (Mine(scale=3.0), ReadEverything(), [Mine(), StopAt()]):
        with pytest.raises(FolderError, match="--again"):
            run(small(), tmp_path, callback=other)
        with pytest.raises(FolderError, match="--again"):
            run_all([small()], LaunchConfig(out=tmp_path), [other])
    before = run(small(), tmp_path, callback=Mine()).summary["logged"]["mine"]
    after = run(small(), tmp_path, callback=Mine(scale=3.0), again=True).summary["logged"]["mine"]
    assert after == pytest.approx(3 * before)


def test_an_early_stopped_run_is_not_taken_for_a_whole_one(tmp_path):
    run(small(), tmp_path, callback=StopAt())
    with pytest.raises(FolderError, match="StopAt"):
        run(small(), tmp_path)
    assert run(small(), tmp_path, again=True).stopped is None


def test_an_unfinished_run_goes_on_with_its_callbacks_only(tmp_path):
    with pytest.raises(CrashError):
        run(small(), tmp_path, callback=[Mine(), At(40, crash)], checkpoints=OFTEN)
    for other in (None, Mine(scale=2.0)):
        with pytest.raises(FolderError, match="Mine"):
            run(small(), tmp_path, callback=other)
    assert run(small(), tmp_path, callback=Mine()).summary["logged"]


def test_edited_code_is_refused(tmp_path):
    def edited(number):
        class Edited(Callback):
            def on_query(self, run, answer):
                run.log("edited", number)

        return Edited()

    run(small(), tmp_path, callback=edited(1))
    with pytest.raises(FolderError, match="Edited@"):
        run(small(), tmp_path, callback=edited(22))


def test_nothing_is_kept_of_a_callback_that_failed_before_the_first_checkpoint(tmp_path):
    class Failing(Callback):
        def on_query(self, run, answer):
            raise CrashError

    with pytest.raises(CrashError):
        run(small(), tmp_path, callback=Failing())
    assert run(small(), tmp_path, callback=Mine()).logged["mine"]


def test_no_callback_leaves_files_as_they_were(tmp_path):
    result = run(small(), tmp_path)
    assert "callbacks" not in json.loads((result.folder / "environment.json").read_bytes())
    assert not {"logged", "stopped"} & result.summary.keys()
    assert "callbacks" not in checkpoint.load_latest(result.folder).state

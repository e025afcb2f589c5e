"""However a run was interrupted, the same call ends with the same journal and the same checkpoint, bit for bit."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal

import pytest

from iblurry.errors import CheckpointError, DiskFullError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.folder import RunFolder
from iblurry.launch.launch import run
from iblurry.storage.checkpoint import load_latest
from tests.experiment.small import METHODS, At, CrashError, Recorder, checkpoints, crash, kept, small, stop

pytestmark = pytest.mark.usefixtures("every_sample")


@pytest.mark.quick("er")
@pytest.mark.parametrize("name", METHODS)
def test_interrupted_at_every_kind_of_moment(name, tmp_path, whole):
    """Inside a round of ER, at a query, before and at the end of a task, at a new class, next to a checkpoint."""
    folder = tmp_path / small(name).name
    classes = [json.loads(line)["at"] for line in whole[name][0].splitlines() if b'"class"' in line]
    moments = sorted({1, 2, 13, 14, 30, 31, 39, 40, 41, 79, *classes})
    for number, moment in enumerate(moments):
        if number % 2:
            assert (
                run(small(name), tmp_path, callback=At(moment, stop), checkpoints=CheckpointPolicy(samples=5)).summary
                is None
            )
            assert checkpoints(folder)[-1].stem.endswith(f"{moment:012d}")
        else:
            with pytest.raises(CrashError):
                run(small(name), tmp_path, callback=At(moment, crash), checkpoints=CheckpointPolicy(samples=5))
    assert run(small(name), tmp_path).summary is not None
    assert kept(folder) == whole[name]


@pytest.mark.quick("clib")
@pytest.mark.parametrize("name", METHODS)
def test_killed(name, tmp_path, whole):
    """By SIGKILL in a process of its own; tests/test_kill.py does it to the whole program at random moments."""

    def run_until(moment):
        callback = At(moment, lambda: os.kill(os.getpid(), signal.SIGKILL))
        run(small(name), tmp_path, callback=callback, checkpoints=CheckpointPolicy(samples=5))

    for moment in (3, 17, 40, 80):
        process = multiprocessing.get_context("fork").Process(target=run_until, args=(moment,))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    run(small(name), tmp_path)
    assert kept(tmp_path / small(name).name) == whole[name]


def test_interrupted_before_the_first_checkpoint(tmp_path, whole):
    for moment in (1, 40):
        with pytest.raises(CrashError):
            run(small(), tmp_path, callback=At(moment, crash))
    folder = tmp_path / small().name
    assert checkpoints(folder) == []
    callback = Recorder()
    run(small(), tmp_path, callback=callback)
    assert kept(folder) == whole["er"]
    assert callback.messages == []


def test_interrupted_between_the_last_checkpoint_and_the_summary(tmp_path, whole, monkeypatch):
    write = RunFolder.write
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write", lambda self, name, c: crash() if "sum" in name else write(self, name, c))
        with pytest.raises(CrashError):
            run(small(), tmp_path)
    folder = tmp_path / small().name
    before = [(path, path.stat().st_mtime_ns) for path in checkpoints(folder)]
    done = run(small(), tmp_path)
    assert done.summary is not None
    assert done.summary["samples"] == 80
    assert kept(folder) == whole["er"]
    assert [(path, path.stat().st_mtime_ns) for path in checkpoints(folder)] == before


@pytest.fixture
def crashed(tmp_path):
    """A run that crashed at sample 33 with checkpoints at 20 and 30."""
    with pytest.raises(CrashError):
        run(small(), tmp_path, callback=At(33, crash), checkpoints=CheckpointPolicy(samples=10))
    folder = tmp_path / small().name
    assert [path.stem[-2:] for path in checkpoints(folder)] == ["20", "30"]
    return folder


@pytest.mark.parametrize("tail", [b'{"kind":"que', b'{"kind":"class","at":99,"label":"none"}\n', b"\n\n\x00"])
def test_what_stands_behind_the_last_checkpoint_is_written_again(tail, crashed, tmp_path, whole):
    with (crashed / "journal.jsonl").open("ab") as journal:
        journal.write(tail)
    callback = Recorder()
    run(small(), tmp_path, callback=callback)
    assert kept(crashed) == whole["er"]
    assert callback.messages == []


def shorter_journal(folder):
    os.truncate(folder / "journal.jsonl", load_latest(folder).state["journal"]["bytes"] - 1)


def changed_journal(folder):
    journal = folder / "journal.jsonl"
    text = journal.read_bytes()
    at = text.rindex(b'"updates":', 0, load_latest(folder).state["journal"]["bytes"]) + 10
    journal.write_bytes(text[:at] + b"9" + text[at + 1 :])  # a line as good as any, and wrong


def damaged_checkpoint(folder):
    damage(checkpoints(folder)[1])


@pytest.mark.parametrize("hurt", [shorter_journal, changed_journal, damaged_checkpoint])
def test_what_does_not_fit_the_newest_checkpoint_makes_the_one_before_count(hurt, crashed, tmp_path, whole):
    hurt(crashed)
    callback = Recorder()
    run(small(), tmp_path, callback=callback)
    assert kept(crashed) == whole["er"]
    (text,) = callback.messages  # which checkpoint is not used, and which is
    assert text.index("checkpoint-000000000030") < text.index("checkpoint-000000000020")


def test_a_journal_that_fits_no_checkpoint(crashed, tmp_path):
    journal = crashed / "journal.jsonl"
    text = journal.read_bytes()
    journal.write_bytes(text[:20] + b"x" + text[21:])
    with pytest.raises(CheckpointError, match=crashed.name):
        run(small(), tmp_path)
    assert journal.read_bytes() == text[:20] + b"x" + text[21:]  # nothing overwritten
    assert len(checkpoints(crashed)) == 2


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_two_damaged_checkpoints(crashed, tmp_path):
    before = (crashed / "journal.jsonl").read_bytes()
    for path in checkpoints(crashed):
        damage(path)
    with pytest.raises(CheckpointError, match=r"0030.*0020"):
        run(small(), tmp_path)
    assert (crashed / "journal.jsonl").read_bytes() == before


def test_the_checkpoint_of_another_experiment(crashed, tmp_path):
    other = small(seed=2)
    with pytest.raises(CrashError):
        run(other, tmp_path, callback=At(5, crash))
    for name in ["journal.jsonl", checkpoints(crashed)[1].name]:
        (tmp_path / other.name / name).write_bytes((crashed / name).read_bytes())
    with pytest.raises(CheckpointError, match="another experiment"):
        run(other, tmp_path)


@pytest.mark.quick("er")
@pytest.mark.parametrize("name", ["er", "clib"])
def test_a_full_disk(name, tmp_path, whole, monkeypatch):
    """Again and again, at random writes, with half of the bytes written before the system says no."""
    rng, really = random.Random(name), os.write
    folder = tmp_path / small(name).name
    failures, sentences = 0, set()
    for _ in range(200):
        left = rng.randint(1, 10)

        def write(file, data):
            nonlocal left
            left -= 1
            if left:
                return really(file, data)
            really(file, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            try:
                done = run(small(name), tmp_path, checkpoints=CheckpointPolicy(samples=3))
                break
            except DiskFullError as error:
                sentences.add(str(error))
                failures += 1
        assert not list(folder.glob("*.tmp"))
        load_latest(folder)  # raises where what is kept cannot be used
    assert failures >= 10
    assert all(str(folder) in sentence for sentence in sentences)
    assert done.summary is not None
    assert kept(folder) == whole[name]

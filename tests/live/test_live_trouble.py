"""The service in trouble: a learner that stands still or is lost, a folder that is moved, a disk that refuses."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal

import numpy as np
import pytest
import torch

from iblurry.errors import CheckpointError, DivergedError, StoppedError
from iblurry.live import process
from iblurry.live.http.metrics import ServiceMetrics
from iblurry.live.learning import LiveLearner
from iblurry.live.log import FILE, SampleLog, check_log
from iblurry.live.messages import (
    CheckpointSaved,
    Command,
    LearnerReport,
    Operation,
    Snapshot,
    Stalled,
    Warned,
)
from iblurry.live.predictor import SnapshotModel
from iblurry.live.process import LearnerLoop
from iblurry.live.quota import KEYS, PER_KEY, Refusal, max_log_bytes
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from tests.live.lives import DIGITS, SMALL, entries, left_behind, operations, serving, some, taught, until


class Pipe:
    """Nobody at the other end."""

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def poll(self, *_):
        return False


@pytest.fixture
def working(tmp_path):
    """A process that learns, without a process: forty samples wait for it."""
    before, handler = torch.get_num_threads(), signal.getsignal(signal.SIGTERM)
    torch.set_num_threads(1)
    held = SampleLog(tmp_path, max_classes=12, max_bytes=10**8)
    with held.transaction():
        held.add([Operation("sample", label="ab"[i % 2], pixels=bytes([i] * 64)) for i in range(40)])
    (tmp_path / process.LOCK).touch()
    yield LearnerLoop(Pipe(), Pipe(), tmp_path, SMALL)
    held.close()
    torch.set_num_threads(before)
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.slow
def test_nobody_waits_for_a_learner_that_stands_still(tmp_path):
    async def live():
        async with serving(tmp_path / "live") as service:
            await taught(service, 0, 20)
            os.kill(service._process.pid, signal.SIGSTOP)
            try:
                async with asyncio.timeout(30):
                    for at in range(20, 40):
                        await service.learn(some(at, at + 1))
                        for _ in range(1000):  # more than a pipe holds
                            service._process.send(Command.WAKE)
                            await asyncio.sleep(0)
                    assert (await service.predict(DIGITS.test.images[:1])).model == 20
            finally:
                os.kill(service._process.pid, signal.SIGCONT)
            await until(lambda: service.status()["learnt"] == 40)
            assert len(await service.memory()) == 20

    asyncio.run(live())
    assert left_behind(tmp_path / "live", 40)


@pytest.mark.slow
def test_one_that_does_not_stop_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "STOP_SECONDS", 0.5)

    async def live():
        service = Service(tmp_path / "live", SMALL)
        await service.start()
        await taught(service, 0, 20, seen="checkpoint")
        os.kill(service._process.pid, signal.SIGSTOP)
        async with asyncio.timeout(20):
            await service.close()

    asyncio.run(live())
    assert left_behind(tmp_path / "live", 20)


@pytest.mark.slow
def test_a_folder_that_is_moved_keeps_everything(tmp_path):
    folder, moved = tmp_path / "live", tmp_path / "moved"

    async def live():
        async with serving(folder) as service:
            await taught(service, 0, 30, seen="checkpoint")
            shutil.copytree(folder, tmp_path / "copy")
            folder.rename(moved)
            (tmp_path / "copy").rename(folder)  # as good as it looks
            with pytest.raises(Refusal) as refused:
                await service.learn(some(30, 60))
            assert (refused.value.status, refused.value.code) == (503, "log_lost")
            assert service.status()["accepted"] == 30
            assert refused.value.message.startswith(service.not_ready()[:40])
            await until(lambda: service.stalled)
            folder.rename(tmp_path / "copy")
            moved.rename(folder)
            assert "samples are kept" in service.not_ready()  # now that it is true again
            await service.learn(some(30, 50))
        folder.rename(moved)
        async with serving(moved, Settings.of(moved)) as service:
            await until(lambda: service.status()["learnt"] == 50)

    asyncio.run(live())
    assert left_behind(moved, 50)


def test_nothing_is_accepted_where_a_restart_would_not_find_it(tmp_path):
    """The folder goes while the process that learns is started: it makes no other log in its place."""
    folder = tmp_path / "live"

    async def live():
        async with serving(folder) as service:
            shutil.rmtree(folder)
            with pytest.raises(Refusal, match=str(folder)) as refused:
                await service.learn(some(0, 1))
            assert refused.value.status == 503
            await until(lambda: service.stalled)
            status = service.status()
            assert (status["state"], status["accepted"]) == ("stalled", 0)
            assert "nothing is accepted" in status["sentence"]

    asyncio.run(live())
    assert not folder.exists()


@pytest.mark.parametrize("file", [FILE, f"{FILE}-wal", f"{FILE}-shm"])
def test_a_log_that_lost_a_file_takes_nothing(tmp_path, file):
    held = SampleLog(tmp_path, max_classes=12, max_bytes=10**8)
    (tmp_path / file).rename(tmp_path / "aside")
    for _ in range(2):  # a copy is not it, either
        with pytest.raises(Refusal, match="replaced"), held.transaction():
            held.add([Operation("sample", label="a", pixels=bytes(64))])
        assert (held.accepted, held.operations) == (0, 0)
        shutil.copy(tmp_path / "aside", tmp_path / file)
    (tmp_path / "aside").replace(tmp_path / file)
    with held.transaction():
        held.add([Operation("sample", label="a", pixels=bytes(64))])
    held.close()
    assert check_log(tmp_path, 0) == 1


@pytest.mark.slow
def test_a_status_without_a_folder(tmp_path):
    async def live():
        async with serving(tmp_path / "live") as service:
            await taught(service, 0, 20, seen="checkpoint")
            shutil.rmtree(tmp_path / "live")
            status = service.status()
            assert (status["disk_bytes"], status["learnt"]) == (None, 20)
            assert status["disk_most"] > 0
            text = ServiceMetrics(service).to_text().decode()
            assert "iblurry_samples_learnt_total 20.0" in text
            assert "iblurry_disk_bytes" not in text

    asyncio.run(live())


def test_what_holds_no_numbers_does_not_answer(working):
    apply = working.learner.apply

    def poisoned(entry):
        point = apply(entry)
        working.publish.due_at = 0.0
        if entry.at == 20:
            with torch.no_grad():
                next(iter(working.learner.learner.context.network.parameters())).fill_(float("nan"))
        return point

    working.learner.apply = poisoned
    with pytest.raises(DivergedError):
        working.run()
    answering = SnapshotModel(SMALL)
    answering.load([message for message in working.messages.sent if isinstance(message, Snapshot)][-1])
    assert answering.at == 19
    assert np.isfinite(answering.predict(np.zeros((1, 1, 8, 8), np.uint8)).probabilities).all()


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_is_told_and_tried_again(working, tmp_path):
    (tmp_path / "checkpoint-x.tmp").mkdir()  # in the way
    apply = working.learner.apply

    def slowly(entry):
        working.save.due_at = 0.0
        working.stopping = entry.at == 40
        if entry.at == 30:
            (tmp_path / "checkpoint-x.tmp").rmdir()
        return apply(entry)

    working.learner.apply = slowly
    working.run()
    told = [message for message in working.messages.sent if isinstance(message, Warned | CheckpointSaved)]
    assert isinstance(told[0], Warned)
    assert str(tmp_path) in told[0].sentence
    assert isinstance(told[-1], CheckpointSaved)
    assert told[-1].at == 40


@pytest.mark.slow
def test_what_is_learnt_is_published_before_it_waits(working):
    """For a command, which may be the next sample's."""
    sent = []

    def poll(*seconds):
        if seconds and not working.stopping:
            sent.extend(working.messages.sent)
            working.stopping = True
        return False

    working.commands.poll = poll
    working.run()
    assert [one.operation for one in sent if isinstance(one, Snapshot)][-1] == 40
    assert [one.learnt for one in sent if isinstance(one, LearnerReport)][-1] == 40


def test_a_process_lost_again_and_again_without_a_checkpoint_is_given_up(tmp_path, monkeypatch):
    lives = []
    monkeypatch.setattr(process, "RESTART_AFTER", (0.0,))
    heard = []
    one = process.LearnerProcess(tmp_path, SMALL, heard.append)
    monkeypatch.setattr(one, "_run_once", lambda: (lives.append(1), (len(lives) == 3, "exit code 1"))[1])
    one.start()
    one._supervisor.join(20)
    assert len(lives) == 3 + process.MAX_LOSSES
    assert isinstance(heard[-1], Stalled)
    one.close()


@pytest.mark.slow
def test_what_an_operator_should_know_is_in_the_log(tmp_path, monkeypatch, caplog):
    """A damaged checkpoint that was skipped, a learner that was lost, and one that fails with its traceback."""
    monkeypatch.setattr(process, "RESTART_AFTER", (0.0,))
    folder = tmp_path / "live"

    def lines(level):
        return [record.getMessage() for record in caplog.records if record.levelname == level]

    async def live():
        async with serving(folder) as service:
            for begin in (0, 10):
                await taught(service, begin, begin + 10, seen="checkpoint")
        assert not caplog.records
        (folder / "checkpoint-000000000020.safetensors").write_bytes(b"damaged")
        async with serving(folder) as service:
            (line,) = lines("WARNING")
            assert line.startswith("checkpoint-000000000020.safetensors is damaged")
            os.kill(service._process.pid, signal.SIGKILL)
            await until(lambda: service.status()["restarts"] == 1)
            assert lines("ERROR") == ["The process that learns was lost (exit code -9) and is started again."]

    asyncio.run(live())
    caplog.clear()
    heard = []
    one = process.LearnerProcess(tmp_path / "no folder", Settings(network="mlp"), heard.append)
    monkeypatch.setattr(Settings, "user_code", lambda self: (["no_such_module"], {}))
    one.start()
    one._supervisor.join(60)
    assert isinstance(heard[-1], Stalled)
    assert sum("No module named 'no_such_module'" in line for line in lines("ERROR")) == process.MAX_LOSSES
    assert "standard error" in heard[-1].sentence
    assert lines("ERROR")[-1] == heard[-1].sentence


def test_a_damaged_checkpoint_is_never_what_is_left(tmp_path):
    first = LiveLearner(tmp_path, SMALL)
    for entry in entries(0, 20):
        first.apply(entry)
        if entry.at in (10, 20):
            first.save()
    (tmp_path / "checkpoint-000000000020.safetensors").write_bytes(b"damaged")
    again = LiveLearner(tmp_path, SMALL)
    assert len(again.recover()) == 1
    for entry in entries(10, 30):
        again.apply(entry)
    again.save()
    names = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert names == ["checkpoint-000000000010.safetensors", "checkpoint-000000000030.safetensors"]
    for path in tmp_path.glob("checkpoint-*"):
        path.write_bytes(b"damaged")
    with pytest.raises(CheckpointError):
        LiveLearner(tmp_path, SMALL).recover()


def test_a_log_that_does_not_go_on_from_the_checkpoint_stops_the_start(tmp_path):
    held = SampleLog(tmp_path, max_classes=12, max_bytes=10**8)
    with held.transaction():
        held.add(list(operations(0, 10)))
        held.drop(5)
    held.close()
    with pytest.raises(StoppedError, match="checkpoint at operation 0"):
        asyncio.run(Service(tmp_path, SMALL).start())


def test_a_start_writes_nothing_to_an_existing_log(tmp_path):
    """The disk may be full."""
    SampleLog(tmp_path, max_classes=12, max_bytes=10**8).close()
    before = (tmp_path / FILE).read_bytes()
    SampleLog(tmp_path, max_classes=12, max_bytes=10**8).close()
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("size", [64, 2304, 5000])
def test_the_log_takes_as_many_samples_as_it_says(tmp_path, size):
    kept = 600
    held = SampleLog(tmp_path, max_classes=3, max_bytes=max_log_bytes(size, kept=kept, classes=3) - KEYS * PER_KEY)
    pixels = np.random.default_rng(1).bytes(size)
    for begin in range(0, 3 * kept, 100):  # round and round, as checkpoints free what was learnt
        with held.transaction():
            if held.kept == kept:
                held.drop(begin - kept + 100)
            held.add([Operation("sample", label="label", pixels=pixels)] * 100)
    assert held.kept == kept
    held.close()


def test_the_most_is_known_before_the_first_checkpoint(tmp_path):
    learning = LiveLearner(tmp_path, SMALL)
    before = learning.report().checkpoint_most
    for entry in entries(0, 60):
        learning.apply(entry)
    learning.save()
    (path,) = tmp_path.glob("checkpoint-*")
    assert path.stat().st_size <= before == learning.report().checkpoint_most < 2 * path.stat().st_size + 2**21

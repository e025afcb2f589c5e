"""The service without HTTP: durable, answering meanwhile, started again when its process is lost."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import pytest
import torch

from iblurry.data.load import load
from iblurry.errors import BusyError, InputError, StoppedError
from iblurry.live.learning import LiveLearner
from iblurry.live.log import LogEntry
from iblurry.live.messages import IncomingSample, Operation
from iblurry.live.quota import Limits, Refusal
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from iblurry.storage import checkpoint

SMALL = Settings(network="mlp", image=(1, 8, 8), memory=20, max_classes=12, batch=4)
PATIENCE = 60.0


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def some(digits, begin, end):
    pairs = zip(digits.train.images[begin:end], digits.train.labels[begin:end], strict=True)
    return [IncomingSample(digits.classes[label], image) for image, label in pairs]


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def left_behind(folder, digits, count):
    """Whether the last checkpoint is that of a learner that took these samples in peace."""
    peace = folder.parent / "peace"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    peace.mkdir(exist_ok=True)
    learning = LiveLearner(peace, SMALL)
    saved = checkpoint.load_latest(folder).state["quality"]["points"]
    times = {point["at"]: point["time"] for point in saved}  # when samples were accepted differs
    for at, (label, pixels) in enumerate(some(digits, 0, count), 1):
        sample = Operation("sample", at, label, pixels=pixels.tobytes())
        learning.apply(LogEntry(at, sample, times.get(at, 0.0)))
    learning.save()
    torch.set_num_threads(before)
    name = f"checkpoint-{count:012d}.safetensors"
    return (folder / name).read_bytes() == (peace / name).read_bytes()


def test_a_life(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.live.service.STATUS_SECONDS", 0.03)
    folder = tmp_path / "live"

    async def first():
        service = Service(folder, SMALL)
        await service.start()
        assert service.not_ready() is None
        assert (service.status()["state"], service.status()["loss"]) == ("starting", None)
        assert service.status()["sentence"] == "The process that learns is being started."
        await until(lambda: service.status()["state"] == "idle")
        with pytest.raises(Refusal, match="not learnt any"):
            await service.predict(digits.test.images[:1])
        with pytest.raises(BusyError, match=str(folder)):
            await Service(folder, SMALL).start()
        with service.subscribe() as events:
            assert (await service.learn(some(digits, 0, 40), key="first")).last == 40
            again = await service.learn(some(digits, 0, 40), key="first")
            assert (again.first, again.last, again.repeated) == (1, 40, True)
            assert (await service.learn(some(digits, 40, 60))).first == 41
            await until(lambda: service.status()["model"])
            answers = await service.predict(digits.test.images[:3])  # while it learns
            assert answers.probabilities.shape == (3, len(answers.labels))
            np.testing.assert_allclose(answers.probabilities.sum(1), 1, rtol=1e-5)
            await until(lambda: service.status()["learnt"] == 60 == service.status()["model"])
            await asyncio.sleep(0.1)
            heard = [events.get_nowait() for _ in range(events.qsize())]
        names = [name for name, _ in heard]
        assert names[0] == "status"
        assert heard[-1][1]["learnt"] == 60
        assert [data["at"] for name, data in heard if name == "point"] == [10, 20, 30, 40, 50, 60]
        assert {data["label"] for name, data in heard if name == "class"} == {
            row["label"] for row in service.report.classes
        }
        status = service.status()
        assert (status["state"], status["queue"], status["accepted"], status["held"]) == ("idle", 0, 60, 20)
        (folder / "gone").symlink_to(folder / "nowhere")  # files come and go
        assert 0 < status["disk_bytes"] == service.status()["disk_bytes"] < status["disk_most"]
        assert len(service.report.history) == 6
        assert len(await service.memory()) == 20
        answers = await service.predict(digits.test.images[:5])
        await service.close()
        with pytest.raises(Refusal, match="stopped"):
            await service.learn(some(digits, 0, 1))
        return answers

    async def second():
        monkeypatch.setattr(Settings, "check", lambda self: pytest.fail("a folder that has begun is not tried again"))
        service = Service(folder, Settings.of(folder))
        await service.start()
        answers = await service.predict(digits.test.images[:5])
        status = service.status()
        assert status["learnt"] == status["accepted"] == status["checkpoint"] == 60
        assert status["loss"] is None  # no update was made since the start, and none is known from before
        assert 0 <= status["checkpoint_age_seconds"] < PATIENCE
        assert (await service.learn(some(digits, 0, 40), key="first")).repeated
        await service.learn(some(digits, 60, 61))
        await until(lambda: service.status()["loss"] is not None)
        await service.close()
        return answers

    before = asyncio.run(first())
    assert left_behind(folder, digits, 60)
    after = asyncio.run(second())
    assert (after.model, after.labels) == (before.model, before.labels) == (60, before.labels)
    np.testing.assert_array_equal(after.probabilities, before.probabilities)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_process_is_started_again(number, digits, tmp_path):
    folder = tmp_path / "live"

    async def live():
        service = Service(folder, SMALL, Limits(queue=300))
        await service.start()
        await service.learn(some(digits, 0, 200))
        await until(lambda: service.status()["learnt"] > 20 and service.status()["model"])
        os.kill(service._process.pid, number)
        await service.predict(digits.test.images[:1])  # from the last snapshot
        await until(lambda: service.status()["state"] == "recovering")
        assert service.status()["restarts"] == 1
        await service.learn(some(digits, 200, 230))
        await until(lambda: service.status()["learnt"] == 230)
        await service.close()

    asyncio.run(live())
    assert left_behind(folder, digits, 230)


def test_a_full_queue_says_when_to_come_back(digits, tmp_path):
    async def live():
        service = Service(tmp_path, SMALL, Limits(queue=20))
        await service.start()
        refused = []
        for begin in range(0, 100, 20):
            while True:
                try:
                    await service.learn(some(digits, begin, begin + 20), key=str(begin))
                    break
                except Refusal as refusal:
                    refused.append(refusal)
                    await asyncio.sleep(0.02)
            assert service.status()["queue"] <= 20
        await until(lambda: service.status()["learnt"] == 100)
        await service.close()
        return refused

    refused = asyncio.run(live())
    assert {(refusal.status, refusal.code) for refusal in refused} == {(429, "queue_full")}
    assert all(0 < refusal.retry_after <= 60 for refusal in refused)


async def begin(folder, settings):
    await Service(folder, settings).start()


@pytest.mark.parametrize("given", [{"method": "gdumb"}, {"network": "convnut"}, {"memory": 10**12}, {"device": "tpu"}])
def test_settings_that_cannot_be_used_are_refused_before_the_folder_is_made(given, tmp_path):
    with pytest.raises(InputError, match=str(*given.values())):
        asyncio.run(begin(tmp_path / "new", Settings(**given)))
    assert not (tmp_path / "new").exists()


def test_a_start_that_fails_leaves_the_folder_free(tmp_path):
    (tmp_path / "checkpoint-000000000001.safetensors").write_bytes(b"damaged")
    with pytest.raises(StoppedError, match=r"No checkpoint in .* can be used"):
        asyncio.run(begin(tmp_path, SMALL))
    (tmp_path / "checkpoint-000000000001.safetensors").unlink()

    async def live():
        service = Service(tmp_path, SMALL)
        await service.start()
        await service.close()

    asyncio.run(live())


@pytest.mark.slow
def test_listeners_hear_of_a_change_at_once(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.live.service.STATUS_SECONDS", 0.05)

    async def live():
        service = Service(tmp_path / "live", SMALL)
        await service.start()
        await until(lambda: service.status()["state"] == "idle")
        await asyncio.sleep(1)  # that is told
        monkeypatch.setattr("iblurry.live.service.STATUS_SECONDS", 100.0)  # to the next look, had nothing changed
        await asyncio.sleep(0.5)
        with service.subscribe() as events:
            await service.learn(some(digits, 0, 1))
            async with asyncio.timeout(50):
                while True:
                    name, data = await events.get()
                    if name == "status" and data["learnt"] == 1:
                        break
        await service.close()

    asyncio.run(live())

"""The service without HTTP: durable, answering meanwhile, rehearsing while idle, started anew when its process ends."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import time

import numpy as np
import pytest

from iblurry.errors import BusyError, InputError, StoppedError
from iblurry.live.log import LogReader
from iblurry.live.messages import Operation
from iblurry.live.quota import Limits, Refusal
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from tests.live.lives import DIGITS, PATIENCE, SMALL, left_behind, serving, some, taught, until


def test_a_life(tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.live.service.STATUS_SECONDS", 0.03)
    folder = tmp_path / "live"

    async def first():
        async with serving(folder) as service:
            assert service.not_ready() is None
            assert (service.status()["state"], service.status()["loss"]) == ("starting", None)
            await until(lambda: service.status()["state"] == "idle")
            with pytest.raises(Refusal, match="not learnt any"):
                await service.predict(DIGITS.test.images[:1])
            with pytest.raises(BusyError, match=str(folder)):
                await Service(folder, SMALL).start()
            with service.subscribe() as events:
                assert (await service.learn(some(0, 40), key="first")).last == 40
                again = await service.learn(some(0, 40), key="first")
                assert (again.first, again.last, again.repeated) == (1, 40, True)
                assert (await service.learn(some(40, 60))).first == 41
                await until(lambda: service.status()["model"])
                answers = await service.predict(DIGITS.test.images[:3])  # while it learns
                assert answers.probabilities.shape == (3, len(answers.labels))
                np.testing.assert_allclose(answers.probabilities.sum(1), 1, rtol=1e-5)
                await until(lambda: service.status()["learnt"] == 60 == service.status()["model"])
                await asyncio.sleep(0.1)
                heard = [events.get_nowait() for _ in range(events.qsize())]
            assert heard[0][0] == "status"
            assert heard[-1][1]["learnt"] == 60
            assert [data["at"] for name, data in heard if name == "point"] == [10, 20, 30, 40, 50, 60]
            classes = {row["label"] for row in service.report.classes}
            assert {data["label"] for name, data in heard if name == "class"} == classes
            status = service.status()
            assert (status["state"], status["queue"], status["accepted"], status["held"]) == ("idle", 0, 60, 20)
            (folder / "gone").symlink_to(folder / "nowhere")  # files come and go
            assert 0 < status["disk_bytes"] == service.status()["disk_bytes"] < status["disk_most"]
            assert len(service.report.history) == 6
            assert len(await service.memory()) == 20
            answers = await service.predict(DIGITS.test.images[:5])
        with pytest.raises(Refusal) as refused:
            await service.learn(some(0, 1))
        assert refused.value.code == "stopping"
        return answers

    async def second():
        monkeypatch.setattr(Settings, "check", lambda self: pytest.fail("a folder that has begun is not tried again"))
        async with serving(folder, Settings.of(folder)) as service:
            answers = await service.predict(DIGITS.test.images[:5])
            status = service.status()
            assert status["learnt"] == status["accepted"] == status["checkpoint"] == 60
            assert status["loss"] is None  # no update was made since the start, and none is known from before
            assert 0 <= status["checkpoint_age_seconds"] < PATIENCE
            assert (await service.learn(some(0, 40), key="first")).repeated
            await service.learn(some(60, 61))
            await until(lambda: service.status()["loss"] is not None)
        return answers

    before = asyncio.run(first())
    assert left_behind(folder, 60)
    after = asyncio.run(second())
    assert (after.model, after.labels) == (before.model, before.labels) == (60, before.labels)
    np.testing.assert_array_equal(after.probabilities, before.probabilities)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_process_is_started_again(number, tmp_path):
    async def live():
        async with serving(tmp_path / "live", SMALL, Limits(queue=300)) as service:
            await service.learn(some(0, 200))
            await until(lambda: service.status()["learnt"] > 20 and service.status()["model"])
            os.kill(service._process.pid, number)
            await service.predict(DIGITS.test.images[:1])  # from the last snapshot
            await until(lambda: service.status()["state"] == "recovering")
            assert service.status()["restarts"] == 1
            await taught(service, 200, 230)

    asyncio.run(live())
    assert left_behind(tmp_path / "live", 230)


def test_a_full_queue_says_when_to_come_back(tmp_path):
    refused = []

    async def live():
        async with serving(tmp_path, SMALL, Limits(queue=20)) as service:
            for begin in range(0, 100, 20):
                while True:
                    try:
                        await service.learn(some(begin, begin + 20), key=str(begin))
                        break
                    except Refusal as refusal:
                        refused.append(refusal)
                        await asyncio.sleep(0.02)
                assert service.status()["queue"] <= 20
            await until(lambda: service.status()["learnt"] == 100)

    asyncio.run(live())
    assert {(refusal.status, refusal.code) for refusal in refused} == {(429, "queue_full")}
    assert all(0 < refusal.retry_after <= 60 for refusal in refused)


async def begin(folder, settings):
    async with serving(folder, settings):
        pass


@pytest.mark.parametrize("given", [{"method": "gdumb"}, {"network": "convnut"}, {"memory": 10**12}, {"device": "tpu"}])
def test_settings_that_cannot_be_used_are_refused_before_the_folder_is_made(given, tmp_path):
    with pytest.raises(InputError, match=str(*given.values())):
        asyncio.run(begin(tmp_path / "new", Settings(**given)))
    assert not (tmp_path / "new").exists()


def test_a_start_that_fails_leaves_the_folder_free(tmp_path):
    (tmp_path / "checkpoint-000000000001.safetensors").write_bytes(b"damaged")
    with pytest.raises(StoppedError, match=str(tmp_path)):
        asyncio.run(begin(tmp_path, SMALL))
    (tmp_path / "checkpoint-000000000001.safetensors").unlink()
    asyncio.run(begin(tmp_path, SMALL))


@pytest.mark.slow
def test_listeners_hear_of_a_change_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.live.service.STATUS_SECONDS", 0.05)

    async def live():
        async with serving(tmp_path / "live") as service:
            await until(lambda: service.status()["state"] == "idle")
            await asyncio.sleep(1)  # that is told
            monkeypatch.setattr("iblurry.live.service.STATUS_SECONDS", 100.0)  # to the next look, had nothing changed
            await asyncio.sleep(0.5)
            with service.subscribe() as events:
                await service.learn(some(0, 1))
                async with asyncio.timeout(50):
                    name, data = await events.get()
                    while name != "status" or data["learnt"] < 1:
                        name, data = await events.get()

    asyncio.run(live())


# rehearsal while idle

REHEARSING = dataclasses.replace(SMALL, memory=40, batch=8)


def test_it_rehearses_while_idle_and_stops_for_samples(tmp_path):
    folder, seconds = tmp_path / "live", []

    async def live():
        async with serving(folder, REHEARSING, idle_updates=600) as service:
            await service.learn(some(0, 40))
            await until(lambda: service.status()["rehearsed"] > 0)
            began = time.monotonic()
            await until(lambda: service.status()["rehearsed"] == 600)
            seconds.append(time.monotonic() - began)
            await until(lambda: service.status()["updates"] == 640 and service.status()["model_operation"] > 40)
            await asyncio.sleep(0.6)
            assert service.status()["rehearsed"] == 600  # and not one more
            one = (await service.learn(some(40, 41))).operation
            assert service.status()["rehearsed"] < 600
            await until(lambda: service.status()["rehearsed"] > 0)
            began = time.monotonic()
            other = (await service.learn(some(41, 42))).operation
            await until(lambda: service.status()["learnt"] == 42)
            seconds.append(time.monotonic() - began)
            between = [entry.operation for entry in LogReader(folder).read_after(one, other - one - 1)]
            assert {operation.kind for operation in between} == {"rehearse"}
            assert 0 < sum(operation.number for operation in between) < 600  # the rest of it comes behind the sample
            await service.correct([Operation("remove", 1)])
            await until(lambda: service.status()["rehearsed"] == 600)
            await until(lambda: service.status()["applied"] == service.status()["operations"])

    async def again():
        async with serving(folder, Settings.of(folder), idle_updates=600) as service:
            await asyncio.sleep(0.6)
            assert (service.status()["rehearsed"], service.status()["state"]) == (600, "idle")

    asyncio.run(live())
    rehearsing, waiting = seconds  # on the same machine: how fast it is does not matter
    assert waiting < rehearsing / 2
    newest = sorted(folder.glob("checkpoint-*"))[-1].name
    asyncio.run(again())
    assert sorted(folder.glob("checkpoint-*"))[-1].name == newest


@pytest.mark.slow
@pytest.mark.parametrize("method", ["clib", "agem"])
def test_without_samples_or_a_memory_nothing_is_rehearsed(method, tmp_path):
    async def live():
        async with serving(tmp_path, dataclasses.replace(REHEARSING, method=method), idle_updates=50) as service:
            await until(lambda: service.status()["state"] == "idle")
            await asyncio.sleep(0.3)
            assert service.status()["operations"] == 0
            if method == "agem":  # trains on the stream alone
                await service.learn(some(0, 20))
                await until(lambda: service.status()["learnt"] == 20)
                await asyncio.sleep(0.3)
                assert service.status()["operations"] == 20

    asyncio.run(live())

"""Rehearsal while idle: a service takes updates from its memory, and stops for samples."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest

from iblurry.live.log import LogReader
from iblurry.live.messages import Operation
from iblurry.live.settings import Settings
from tests.live.lives import serving, some, until

SMALL = Settings(network="mlp", image=(1, 8, 8), memory=40, max_classes=12, batch=8)


pytestmark = pytest.mark.usefixtures("one_thread")


def test_it_rehearses_while_idle_and_stops_for_samples(tmp_path):
    folder, seconds = tmp_path / "live", []

    async def live():
        async with serving(folder, SMALL, idle_updates=600) as service:
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
        async with serving(tmp_path, dataclasses.replace(SMALL, method=method), idle_updates=50) as service:
            await until(lambda: service.status()["state"] == "idle")
            await asyncio.sleep(0.3)
            assert service.status()["operations"] == 0
            if method == "agem":  # trains on the stream alone
                await service.learn(some(0, 20))
                await until(lambda: service.status()["learnt"] == 20)
                await asyncio.sleep(0.3)
                assert service.status()["operations"] == 20

    asyncio.run(live())

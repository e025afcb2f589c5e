"""Server-sent events: told as they happen, to so many and no more, until someone leaves."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic_core import PydanticSerializationError

from iblurry.live.quota import Limits, Refusal

pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
from iblurry.live.http.app import create_app
from iblurry.live.http.responses import EventStream, Listeners


class Line:
    """A client's end of the stream, by hand."""

    def __init__(self, answer):
        self.gone, self.sent, self.news = asyncio.Event(), [], asyncio.Event()
        self.task = asyncio.create_task(answer({"type": "http"}, self.receive, self.send))

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)
        self.news.set()

    async def until(self, count):
        async with asyncio.timeout(5):
            while len(self.sent) < count:
                self.news.clear()
                await self.news.wait()
        return [message.get("body", b"").decode() for message in self.sent[1:]]


def read(text):
    """Names and data of the events in a text."""
    lines = [block.split("\n") for block in text.split("\n\n") if block and not block.startswith(":")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


def test_the_status_comes_at_once_and_then_what_happens(toy):
    async def go():
        line = Line(EventStream(toy, Listeners(2)))
        await line.until(2)
        toy.tell("class", {"label": "a\nb π"})
        toy.tell("point", {"at": 1, "accuracy": float("nan")})
        bodies = await line.until(4)
        line.gone.set()
        await line.task
        return line.sent, bodies

    sent, bodies = asyncio.run(go())
    assert sent[0]["status"] == 200
    assert dict(sent[0]["headers"])[b"content-type"] == b"text/event-stream"
    assert b"content-length" not in dict(sent[0]["headers"])
    events = read("".join(bodies))
    assert [name for name, _ in events] == ["status", "class", "point"]
    assert events[0][1]["method"] == "clib"
    assert events[1][1] == {"label": "a\nb π"}
    assert events[2][1] == {"at": 1, "accuracy": None}
    assert sent[-1] == {"type": "http.response.body", "body": b""}
    assert not toy.queues


def test_silence_is_broken_by_comments(toy):
    async def go():
        line = Line(EventStream(toy, Listeners(2), keep_alive=0.01))
        bodies = await line.until(5)
        line.gone.set()
        await line.task
        return bodies

    assert set(asyncio.run(go())[1:]) == {": nothing new\n\n"}


@pytest.mark.parametrize("how", ["stopping", "end"])
def test_streams_end_when_the_service_does(toy, how):
    async def go():
        listeners = Listeners(2)
        line = Line(EventStream(toy, listeners))
        await line.until(2)
        if how == "end":
            await toy.close()
        else:
            listeners.stopping.set()
        await asyncio.wait_for(line.task, 5)
        return line.sent, listeners

    sent, listeners = asyncio.run(go())
    assert sent[-1] == {"type": "http.response.body", "body": b""}
    assert not any(b"event: end" in message.get("body", b"") for message in sent)
    assert listeners.count == 0
    if how == "stopping":
        with pytest.raises(Refusal, match="stopping"), listeners.add():
            pytest.fail("it was let in")


def test_a_listener_that_does_not_listen_is_let_go(toy):
    """Its end of the line is full, so that sending waits for ever."""

    async def go():
        listeners, full = Listeners(1), asyncio.Event()

        async def send(message):
            if message["type"] == "http.response.body" and message["body"]:
                await full.wait()

        async def receive():
            await asyncio.Event().wait()

        task = asyncio.create_task(EventStream(toy, listeners)({"type": "http"}, receive, send))
        await asyncio.sleep(0.02)
        before = listeners.count
        listeners.stopping.set()
        await asyncio.wait_for(task, 5)
        return before, listeners.count

    assert asyncio.run(go()) == (1, 0)


def test_an_error_is_not_lost(toy):
    async def go():
        line = Line(EventStream(toy, Listeners(2)))
        await line.until(2)
        toy.tell("point", {"at": object()})
        await asyncio.wait_for(line.task, 5)

    with pytest.raises(PydanticSerializationError, match="object"):
        asyncio.run(go())


def test_so_many_and_no_more(toy):
    async def go():
        toy.limits = Limits(listeners=2)
        listeners = create_app(toy).state.listeners
        lines = [Line(EventStream(toy, listeners)) for _ in range(2)]
        for line in lines:
            await line.until(2)
        with pytest.raises(Refusal) as no:
            await EventStream(toy, listeners)({"type": "http"}, lines[0].receive, lines[0].send)
        assert (no.value.status, no.value.code) == (429, "too_many_listeners")
        lines[0].gone.set()
        await lines[0].task
        third = Line(EventStream(toy, listeners))
        await third.until(2)
        for line in (*lines, third):
            line.gone.set()
            await line.task
        return listeners.count

    assert asyncio.run(go()) == 0

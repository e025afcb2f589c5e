"""The endpoints: each takes a request, has it read, asks the service and words the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import parse_qsl

import numpy as np
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from iblurry.live import page
from iblurry.live.http import prometheus
from iblurry.live.http.answers import SAFE, Json
from iblurry.live.http.bodies import Reader
from iblurry.live.http.events import Events, Listeners
from iblurry.live.http.pages import Asset, docs, sent
from iblurry.live.http.pictures import thumbnail
from iblurry.live.limits import Limits
from iblurry.live.refusal import Refusal

if TYPE_CHECKING:
    from iblurry.live.exchange import Answers, Kept
    from iblurry.live.service import Service

Result = TypeVar("Result")
ENDPOINTS = (
    *("/", "/docs", "/openapi.json", "/healthz", "/readyz"),
    *(f"/v1/{name}" for name in ("learn", "predict", "status", "classes", "history", "memory", "events", "metrics")),
)
MOST = 1000  # classes of an answer, or thumbnails of a class


class Desk:
    """One service's endpoints.

    What takes time is done in a thread of its own, one for questions and one for the rest: a question waits for other
    questions but never for a batch of pictures to be decoded.
    """

    def __init__(self, service: Service, limits: Limits) -> None:
        self.service = service
        self.reader = Reader(service.settings.image, limits)
        self.listeners = Listeners(limits.listeners)
        self.requests = prometheus.Requests(ENDPOINTS)
        self.asking = ThreadPoolExecutor(1, "questions")
        self.working = ThreadPoolExecutor(1, "pictures")

    async def learn(self, request: Request) -> Response:
        """Accept samples.

        They are on the disk when the answer comes, and are learnt in the order they were accepted. A label never
        heard before makes a new class, as long as there is room.
        """
        keys, label = request.headers.getlist("idempotency-key"), _label(request)
        key = self.reader.key(" ".join(keys) if keys else None)  # two are none
        kind, raw = await _body(request)
        samples = await _in(self.working, lambda: self.reader.samples(kind, raw, label))
        receipt = await self.service.learn(samples, key=key)
        return Json({"accepted": len(samples), **receipt._asdict()}, 202)

    async def predict(
        self,
        request: Request,
        top: Annotated[int, Query(ge=1, le=MOST, description="How many classes to name for each image.")] = 5,
    ) -> Response:
        """Name images.

        Probabilities are over the classes met so far. The answer comes from the last published state of the model and
        does not wait for learning.
        """
        kind, raw = await _body(request)
        pixels = await _in(self.asking, lambda: self.reader.questions(kind, raw))
        return Json(worded(await self.service.predict(pixels), top))

    async def status(self) -> Response:
        """How the service is: its state, queue, accuracy, memory and disk."""
        return Json(self.service.status())

    async def classes(self) -> Response:
        """Every class met so far, with its counts and accuracies."""
        return Json({"classes": self.service.classes()})

    async def history(self) -> Response:
        """The course of accuracy and learning rate."""
        return Json({"points": self.service.history()})

    async def memory(
        self, each: Annotated[int, Query(ge=1, le=MOST, description="At most so many samples of a class.")] = 20
    ) -> Response:
        """What the memory holds, as thumbnails by class, the most important samples first."""
        kept, capacity = await self.service.memory(), self.service.status()["capacity"]
        held = await _in(self.working, lambda: sheet(kept, each))
        return Json({"capacity": capacity, "size": len(kept), "classes": held})

    async def events(self) -> Response:
        """What happens, as it happens: server-sent events.

        A `status` comes at once, and about once a second while something changes; its data is that of /v1/status. A
        `point` is one of /v1/history, a `class` is `{"label": ...}`. A comment comes every 15 seconds.
        """
        return Events(self.service, self.listeners)

    async def metrics(self) -> Response:
        """The same numbers for Prometheus, and counts and times of requests."""
        text = prometheus.metrics(
            self.service.status(), self.service.classes(), self.requests, listeners=self.listeners.count
        )
        return Response(text, headers={**SAFE, "Content-Type": prometheus.KIND})

    async def healthz(self) -> Response:
        """Whether the process lives."""
        return Json({"ok": True})

    async def readyz(self) -> Response:
        """Whether it can learn and answer; if not, why."""
        reason = self.service.ready()
        if reason is not None:
            raise Refusal(503, "not_ready", reason, retry_after=1)
        return Json({"ok": True})

    async def page(self, request: Request) -> Response:
        """The service's own page."""
        body, kind = page.asset("index.html")
        return sent(request, Asset(body, kind, page.POLICY))

    async def asset(self, request: Request, name: str) -> Response:
        """A file of the page."""
        if name not in page.names():
            raise Refusal(404, "not_found", "The page has no such file; load it again.")
        return sent(request, Asset(*page.asset(name)))

    async def docs(self, request: Request) -> Response:
        """This description, to be read."""
        return sent(request, docs())

    def close(self) -> None:
        """Ends the threads."""
        for pool in (self.asking, self.working):
            pool.shutdown()


def worded(answers: Answers, top: int) -> dict[str, Any]:
    """The `top` likeliest classes of each image; of equals, the one met first."""
    if not np.isfinite(answers.probabilities).all():
        raise Refusal(
            503,
            "not_finite",
            "The model's answer is no number, so its learning has gone wrong; look at /v1/status, and if it stays so, "
            "begin anew in another folder.",
        )
    order = np.argsort(-answers.probabilities, axis=1, kind="stable")[:, :top]
    named = [
        [{"label": answers.labels[one], "probability": float(shares[one])} for one in row]
        for row, shares in zip(order.tolist(), answers.probabilities, strict=True)
    ]
    return {"model": answers.model, "answers": [{**best[0], "top": best} for best in named]}


def sheet(kept: list[Kept], each: int) -> list[dict[str, Any]]:
    """What is kept of each class, the most important first and, where nothing is said, the newest."""
    classes: dict[str, list[Kept]] = {}
    for one in sorted(kept, key=lambda one: (-(one.importance or 0.0), -one.since)):
        classes.setdefault(one.label, []).append(one)
    return [
        {
            "label": label,
            "count": len(those),
            "items": [
                {
                    "row": one.row,
                    "importance": one.importance,
                    "since": one.since,
                    "thumbnail": thumbnail(one.pixels),
                }
                for one in those[:each]
            ],
        }
        for label, those in sorted(classes.items())
    ]


async def _in(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(pool, work)


async def _body(request: Request) -> tuple[str, bytes]:
    """Its kind and its bytes."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(
            415, "unknown_kind", "The body is compressed, which this service does not read; send it as it is."
        )
    return request.headers.get("content-type", ""), await request.body()


def _label(request: Request) -> str | None:
    """The one in the address, which the guard has seen to be UTF-8."""
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="strict")
    given = [value for name, value in pairs if name == "label"]
    if len(given) > 1:
        raise Refusal(422, "bad_label", "The address has more than one label; give one.")
    return given[0] if given else None

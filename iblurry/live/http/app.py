"""The HTTP interface of a service: every endpoint, and the description that FastAPI makes of them."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from functools import partial
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from iblurry.live import page
from iblurry.live.http import answers, bodies
from iblurry.live.http.answers import format_memory, format_predictions, refusal_response, unlearning
from iblurry.live.http.bodies import JSON, KEY_PATTERN, ONE_PIXEL, RAW, BodyReader, Label, refusal_of
from iblurry.live.http.guard import WITHOUT_TOKEN, GuardMiddleware
from iblurry.live.http.metrics import CONTENT_TYPE, ServiceMetrics
from iblurry.live.quota import BATCH, KEY, Refusal
from iblurry.version import __version__

if TYPE_CHECKING:
    from iblurry.live.messages import Acceptance, IncomingSample
    from iblurry.live.service import Service

Spec: TypeAlias = dict[str, Any]
LARGEST = 1000  # classes of an answer, or thumbnails of a class
PIECE = 2**18  # bytes of a file sent at once
END = "end"  # the service's last event
ABOUT = """A learner that takes labelled images as they arrive and answers at any moment.

A sample is on the disk before it is acknowledged. Labels are strings; a new label makes a new class. Every error is
`{"error": ..., "message": ...}` with a sentence that says what to do. If one entry of the JSON is wrong, `index` is its
number and `field` its field.
"""
GROUPS = {
    "learn and ask": "Send samples, get predictions.",
    "watch": "Progress of learning.",
    "operate": "For operators.",
}
LEARN: list[str | Enum] = ["learn and ask"]
WATCH: list[str | Enum] = ["watch"]
OPERATE: list[str | Enum] = ["operate"]
REASONS = {
    400: "The request is malformed: its JSON, its URL or its Host.",
    401: "The token is missing or wrong.",
    403: "The request comes from another web site.",
    404: "There is no such sample, class or answer.",
    408: "The request did not arrive in time.",
    409: "Not now: nothing has been learnt yet, there is no room for one more class, or it was done before.",
    410: "The image of that answer is not kept any more.",
    413: "Larger than a request may be: bytes, images or pixels.",
    415: "The Content-Type is not supported.",
    422: "A value cannot be used: a picture, a label, a parameter or an idempotency key.",
    429: "Too many requests or samples at the moment.",
    503: "The service is stopping, is not ready, or its model has diverged.",
    507: "The disk is full; nothing that was acknowledged is lost.",
}


def refusals(*statuses: int) -> dict[int | str, Spec]:
    """Describe with which statuses an endpoint refuses, and why."""
    found: dict[int | str, Spec] = {
        status: {"model": answers.ErrorResponse, "description": REASONS[status]} for status in statuses
    }
    for status, name, schema in ((401, "WWW-Authenticate", {"type": "string"}), (429, "Retry-After", {"minimum": 1})):
        if status in found:
            found[status]["headers"] = {name: {"schema": {"type": "integer"} | schema}}
    return found


def body(model: type[BaseModel], example: Spec, *, pictures: bool = False) -> Spec:
    """Describe a body that a handler reads itself: JSON of this model, and where `pictures` a picture or raw bytes."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content: Spec = {JSON: {"schema": schema, "example": {next(iter(model.model_fields)): [example]}}}
    if pictures:
        content["image/*"] = {"schema": {"type": "string", "contentMediaType": "image/*"}}
        content[RAW] = {"schema": {"type": "string", "contentMediaType": RAW}}
    return {"requestBody": {"required": True, "content": content}}


REQUESTS = (bodies.LearnRequest, bodies.PredictRequest, bodies.LabelRequest, bodies.CorrectRequest)
LEARN_BODY = body(bodies.LearnRequest, {"label": "cat", "image": ONE_PIXEL}, pictures=True)
ACCEPTED: Spec = {"status_code": 202, "tags": LEARN}
LEARNS = ACCEPTED | {"openapi_extra": LEARN_BODY}
MODEL_HEADERS: Spec = {
    "ETag": {"schema": {"type": "string"}, "description": "The last operation in it, and its format."},
    "X-Samples": {"schema": {"type": "integer", "minimum": 1}, "description": "Samples it has learnt."},
    "X-Accepted": {"schema": {"type": "integer", "minimum": 1}, "description": "Samples accepted until now."},
}
MODEL_ANSWERS: dict[int | str, Spec] = {
    200: {
        "description": "The file.",
        "headers": MODEL_HEADERS,
        "content": {RAW: {"schema": {"type": "string", "contentMediaType": RAW}}},
    },
    304: {"description": "The model with this ETag has not changed since."},
}
UrlLabel = Annotated[Label | None, Query(description="What the body shows, if it is a picture or raw pixels.")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=KEY,
        pattern=KEY_PATTERN,
        description="Text of your choice: a request sent again with the same key counts once.",
    ),
]


class Live:
    """What the handlers share: one service, and two threads for slow work.

    One thread is for predictions and one for the rest: a prediction waits for others of its kind but never for a batch
    of pictures to be decoded.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.reader = BodyReader(service.settings.image, service.limits)
        self.metrics = ServiceMetrics(service)
        self.predicting, self.decoding = CapacityLimiter(1), CapacityLimiter(1)


def live(request: Request) -> Live:
    """Return what `create_app` has put there."""
    found: Live = request.app.state.live
    return found


api = APIRouter(responses=refusals(400, 403, 408, 413, 429, 503))
pages = APIRouter(include_in_schema=False)


@api.post("/v1/learn", response_model=answers.LearnResponse, responses=refusals(409, 415, 422, 507), **LEARNS)
async def learn(request: Request, label: UrlLabel = None, key: Key = None) -> Any:
    """Accept samples.

    They are on the disk when the answer comes, and are learnt in the order they were accepted. A new
    label makes a new class, as long as there is room.
    """
    samples = await _samples(request, label)
    return _accepted(len(samples), await live(request).service.learn(samples, key=key))


@api.post("/v1/held-out", response_model=answers.HeldOutResponse, responses=refusals(415, 422, 507), **LEARNS)
async def hold_out(request: Request, label: UrlLabel = None, key: Key = None) -> Any:
    """Accept held-out samples, which are never learnt.

    They take the same bodies as /v1/learn and are on the disk when the answer comes. As the service learns, it asks
    itself about them in turn: `held_out_accuracy` of the status and of /v1/history is the share of right answers
    among those whose class is known. The newest are kept, as many as the memory can hold.
    """
    samples = await _samples(request, label)
    return _accepted(len(samples), await live(request).service.hold_out(samples, key=key))


@api.post(
    "/v1/predict",
    response_model=answers.PredictResponse,
    tags=LEARN,
    responses=refusals(409, 415, 422),
    openapi_extra=body(bodies.PredictRequest, {"image": ONE_PIXEL}, pictures=True),
)
async def predict(
    request: Request,
    top: Annotated[int, Query(ge=1, le=LARGEST, description="How many classes to return for each image.")] = 5,
) -> Any:
    """Name images.

    Probabilities are over the classes met so far, calibrated by the answers to samples before they were learnt. An
    answer less probable than `threshold` is `unknown`. It comes from the last published state of the model and does
    not wait for learning.
    """
    of = live(request)
    content_type, raw = await _body(request)
    if of.reader.is_quick(content_type, raw):  # less work than to hand it to another thread
        pixels = of.reader.read_images(content_type, raw)
    else:
        pixels = await to_thread.run_sync(of.reader.read_images, content_type, raw, limiter=of.predicting)
    answer = format_predictions(await of.service.predict(pixels), top)
    return Response(answer.model_dump_json(), media_type=JSON)


@api.post(
    "/v1/label",
    response_model=answers.LearnResponse,
    **ACCEPTED,
    responses=refusals(404, 409, 410, 415, 422, 507),
    openapi_extra=body(bodies.LabelRequest, {"id": "5f2a9c01-17", "label": "cat"}),
)
async def label(request: Request, key: Key = None) -> Any:
    """Accept labels of images that were predicted before, by their ids.

    The images become samples as those of /v1/learn do. An id is good once, until the service is restarted, and as
    long as its image is kept: the last ones for a while, see the answer to one that is gone (410).
    """
    labels = live(request).reader.read_labels(*await _body(request))
    return _accepted(len(labels), await live(request).service.label(labels, key=key))


@api.post(
    "/v1/correct",
    response_model=answers.CorrectResponse,
    **ACCEPTED,
    responses=refusals(404, 409, 415, 422, 507),
    openapi_extra=body(bodies.CorrectRequest, {"action": "delete", "label": "cot"}),
)
async def correct(request: Request, key: Key = None) -> Any:
    """Correct samples and classes: all corrections of a request, in order, or none.

    They are on the disk when the answer comes, and are applied in turn with the samples. A sample is named by its
    number: remove it from the memory, or relabel it there. A class is named by its label: rename it, merge it into
    another, or delete it. What the weights have learnt from a mistake stays until updates from the corrected memory
    overwrite it, as the answer says.
    """
    service = live(request).service
    corrections = live(request).reader.read_corrections(*await _body(request))
    answer = _accepted(len(corrections), await service.correct(corrections, key=key))
    return answer | {"sentence": unlearning(service.idle_updates, trains=service.trains)}


@api.get("/v1/status", response_model=answers.StatusResponse, tags=WATCH)
async def status(request: Request) -> Any:
    """Say how the service is: its state, queue, accuracy, memory and disk."""
    return live(request).service.status()


@api.get("/v1/classes", response_model=answers.ClassesResponse, tags=WATCH)
async def classes(request: Request) -> Any:
    """List every class met so far, with its counts and accuracies."""
    return {"classes": live(request).service.report.classes}


@api.get("/v1/history", response_model=answers.HistoryResponse, tags=WATCH)
async def history(request: Request) -> Any:
    """Give the course of accuracy and learning rate."""
    return {"points": live(request).service.report.history}


@api.get("/v1/confusion", response_model=answers.ConfusionResponse, tags=WATCH)
async def confusion(request: Request) -> Any:
    """Count which classes were taken for which, among the recent samples that were tested before they were learnt.

    Only pairs that occurred: at most as many as there are samples in the window.
    """
    report = live(request).service.report
    return {"window": report.window, "counts": report.confusion}


@api.get("/v1/memory", response_model=answers.MemoryResponse, tags=WATCH, responses=refusals(422))
async def memory(
    request: Request,
    each: Annotated[int, Query(ge=1, le=LARGEST, description="Maximum number of samples of a class.")] = 20,
) -> Any:
    """Show what the memory holds, as thumbnails by class, the most important samples first."""
    of = live(request)
    samples, capacity = await of.service.memory(), of.service.settings.memory
    shown = await to_thread.run_sync(format_memory, samples, each, limiter=of.decoding)
    return {"capacity": capacity, "size": len(samples), "classes": shown}


@api.get("/v1/model", response_class=Response, tags=WATCH, responses=MODEL_ANSWERS | refusals(409, 422))
async def model(
    request: Request,
    format: Annotated[
        Literal["pt2", "onnx", "safetensors"],
        Query(description="torch.export; ONNX, if its extra is installed; or the whole learner."),
    ] = "pt2",
) -> Any:
    """Give the current model as a file.

    Of torch.export or ONNX: pixels in, logits out, with normalisation and class names inside. What was accepted
    before is learnt first, as far as ten seconds allow: X-Samples says how many samples it has learnt, X-Accepted
    how many there were. A request with `If-None-Match` is answered with 304 until samples, corrections or
    rehearsal have changed the model.
    """
    tag = re.fullmatch(rf'(?:W/)?"([0-9]{{1,15}})-{format}"', request.headers.get("if-none-match", "").strip())
    known = int(tag[1]) if tag else None
    found = await live(request).service.model(format, known=known)
    if found is None:
        return Response(status_code=304, headers={"ETag": f'"{known}-{format}"'})
    headers = {
        "ETag": f'"{found.operation}-{format}"',
        "X-Samples": str(found.samples),
        "X-Accepted": str(found.accepted),
        "Content-Length": str(found.file.seek(0, 2)),
        "Content-Disposition": f'attachment; filename="model.{format}"',
    }
    return StreamingResponse(_pieces(found.file), headers=headers, media_type=RAW)


async def _listen(request: Request) -> AsyncIterator[asyncio.Queue[tuple[str, Spec]]]:
    with live(request).service.subscribe() as queue:
        yield queue


@api.get("/v1/events", response_class=EventSourceResponse, tags=WATCH)
async def events(
    queue: Annotated[asyncio.Queue[tuple[str, Spec]], Depends(_listen)],
) -> AsyncIterator[ServerSentEvent]:
    """Tell what happens, as it happens: server-sent events.

    A `status` comes at once, and about once a second while something changes; its data is that of /v1/status. A
    `point` is one of /v1/history, a `class` is `{"label": ...}`. A comment comes every 15 seconds.
    """
    while (event := await queue.get())[0] != END:
        yield ServerSentEvent(event=event[0], data=event[1])


@api.get("/v1/metrics", response_class=PlainTextResponse, tags=OPERATE)
async def metrics(request: Request) -> Any:
    """Give the same numbers for Prometheus, and counts and times of requests."""
    return Response(live(request).metrics.to_text(), headers={"Content-Type": CONTENT_TYPE})


@api.get("/healthz", response_model=answers.HealthResponse, tags=OPERATE)
async def healthz() -> Any:
    """Say that the process lives."""
    return {"ok": True}


@api.get("/readyz", response_model=answers.HealthResponse, tags=OPERATE)
async def readyz(request: Request) -> Any:
    """Say whether it can learn and answer; if not, why."""
    reason = live(request).service.not_ready()
    if reason is not None:
        raise Refusal(503, "not_ready", reason, retry_after=1)
    return {"ok": True}


@pages.get("/")
async def index(request: Request) -> Response:
    """Show the service's own page."""
    return _file(request, "index.html")


@pages.get("/docs")
async def docs(request: Request) -> Response:
    """Show the description, to be read."""
    return _file(request, "docs.html")


@pages.get("/assets/{name}")
async def asset(request: Request, name: Annotated[str, Path()]) -> Response:
    """Give a file of a page."""
    if name not in page.names():
        raise Refusal(404, "not_found", f"The page has no file {name[:40]!a}; reload the page.")
    return _file(request, name)


class QuickPath:
    """ASGI middleware: a POST to /v1/predict without a query goes straight to its handler, all else to the app.

    FastAPI's layers and its reading of parameters take 0.3 ms, more than the rest of a small answer's way here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and (scope["path"], scope["method"], scope["query_string"])
        respond = self.app if asked != ("/v1/predict", "POST", b"") else await predict(Request(scope, receive))
        await respond(scope, receive, send)


def create_app(service: Service, *, token: str | None = None) -> FastAPI:
    """Make an ASGI application.

    Parameters
    ----------
    service : Service
        What the requests are for.
    token : str, optional
        What every request must carry, except to pages and health checks; without one only requests to a loopback
        address are answered.
    """
    # FastAPI's own pages load scripts from other hosts, and its redirects are built from a header of the request.
    app = FastAPI(
        title="iblurry, live",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.live = of = Live(service)
    app.include_router(api)
    app.include_router(pages)
    app.openapi = partial(describe, app, service, needs_token=token is not None)  # type: ignore[method-assign]
    of.metrics.endpoints |= {route.path for route in (*api.routes, *pages.routes) if isinstance(route, APIRoute)}
    app.add_middleware(QuickPath)
    app.add_middleware(GuardMiddleware, token=token, limits=service.limits, metrics=of.metrics)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    return app


def describe(app: FastAPI, service: Service, *, needs_token: bool) -> Spec:
    """Return the OpenAPI description of this service, with its sizes and with its token if it has one."""
    shape, limits = service.settings.image, service.limits
    sizes = f"{' x '.join(map(str, shape))} = {math.prod(shape)} bytes (channels, rows, columns)"
    about = (
        f"{ABOUT}\nImages of this service have {sizes}. A request has at most {limits.body} bytes and {BATCH} images."
    )
    tags = [{"name": name, "description": text} for name, text in GROUPS.items()]
    spec = get_openapi(title=app.title, version=app.version, description=about, tags=tags, routes=app.routes)
    _, found = models_json_schema(
        [(model, "validation") for model in REQUESTS], ref_template="#/components/schemas/{model}"
    )
    spec["components"]["schemas"] |= found["$defs"]
    refused = {JSON: {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}
    if needs_token:
        spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in spec["paths"].items():
        for operation in operations.values():
            if needs_token and path not in WITHOUT_TOKEN:
                operation["security"] = [{"token": []}]
                operation["responses"]["401"] = {"description": REASONS[401]}
            summary, _, rest = operation["description"].partition("\n\n")
            operation |= {"summary": summary.rstrip("."), "description": rest}
            for code, answer in operation["responses"].items():
                if int(code) >= 400:  # JSON, also where the answer itself is not
                    answer["content"] = refused
    return spec


async def _samples(request: Request, label: str | None) -> list[IncomingSample]:
    """Return the labelled images of a request."""
    of = live(request)
    content_type, raw = await _body(request)
    return await to_thread.run_sync(of.reader.read_samples, content_type, raw, label, limiter=of.decoding)


async def _body(request: Request) -> tuple[str, bytes]:
    """Return its content type and its bytes."""
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise Refusal(415, "unknown_kind", f"The Content-Encoding {coding[:40]!a} is not supported; send plain bytes.")
    return request.headers.get("content-type", ""), await request.body()


def _accepted(count: int, acceptance: Acceptance) -> Spec:
    """Return what the models of answers take their fields from."""
    return {"accepted": count} | acceptance._asdict()


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(PIECE):
            yield piece


def _file(request: Request, name: str) -> Response:
    """Return a file of a page, or 304 where the browser has it already."""
    content, content_type = page.asset(name)
    tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": page.POLICY, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "Content-Type": content_type})


def _no_route(_: Request, error: Any) -> JSONResponse:
    """Answer where there is no such path, or not with this method."""
    if error.status_code == 405:
        message = f"This URL does not support this method; use {error.headers['Allow']}."
        return refusal_response(Refusal(405, "wrong_method", message), error.headers)
    return refusal_response(Refusal(404, "not_found", "There is nothing at this URL; see /docs."))


def _bad_parameter(_: Request, error: Any) -> JSONResponse:
    return refusal_response(refusal_of(error.errors()[0]))

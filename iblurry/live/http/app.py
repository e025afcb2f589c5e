"""The HTTP interface of a service: the handlers of all endpoints, and their routes behind the guard."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import Depends, FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from iblurry.live import page
from iblurry.live.http import metrics, openapi
from iblurry.live.http.answers import format_memory, format_predictions, unlearning
from iblurry.live.http.bodies import BodyReader
from iblurry.live.http.guard import WITHOUT_TOKEN, GuardMiddleware
from iblurry.live.http.responses import (
    SECURITY_HEADERS,
    EventStream,
    JsonResponse,
    Listeners,
    ModelResponse,
    docs_page,
    file_response,
    model_tag,
    refusal_response,
)
from iblurry.live.quota import Refusal
from iblurry.version import __version__

if TYPE_CHECKING:
    from iblurry.live.messages import Acceptance, IncomingSample
    from iblurry.live.service import Service

Result = TypeVar("Result")
LARGEST = 1000  # classes of an answer, or thumbnails of a class
LEARN, WATCH, OPERATE = (group["name"] for group in openapi.GROUPS)


def create_app(service: Service, *, token: str | None = None) -> FastAPI:
    """An ASGI application; setting `app.state.listeners.stopping` ends its event streams.

    Parameters
    ----------
    service : Service
        What the requests are for.
    token : str, optional
        What every request must carry, except to pages and health checks; without one only requests to a loopback
        address are answered.
    """
    handlers, limits, shape = Handlers(service), service.limits, service.settings.image

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        handlers.close()

    # FastAPI's own pages load scripts from other hosts, and its redirects are built from a header of the request.
    app = FastAPI(
        title="iblurry, live",
        version=__version__,
        description=openapi.ABOUT,
        openapi_tags=openapi.GROUPS,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.listeners, app.state.metrics = handlers.listeners, handlers.registry
    bearer = Depends(HTTPBearer(scheme_name="token", auto_error=False))  # the guard has checked it: this describes it

    def add(
        path: str, handle: Callable[..., Any], tag: str, model: Any = None, refuses: tuple[int, ...] = (), **more: Any
    ) -> None:
        summary, _, description = inspect.cleandoc(handle.__doc__ or "").partition("\n\n")
        app.add_api_route(
            path,
            handle,
            tags=[tag],
            operation_id=handle.__name__,
            summary=summary.rstrip("."),
            description=description,
            response_model=model,
            responses=more.pop("answers", {}) | openapi.refusals(refuses, needs_token=token is not None),
            dependencies=[bearer] if token is not None and path not in WITHOUT_TOKEN else [],
            **{"methods": ["GET"], "response_class": JSONResponse, **more},
        )

    learning = {"methods": ["POST"], "status_code": 202, "openapi_extra": openapi.learn_body(shape, limits)}
    asking = {"methods": ["POST"], "openapi_extra": openapi.predict_body(shape, limits)}
    add("/v1/learn", handlers.learn, LEARN, openapi.LearnResponse, (409, 415, 422, 507), **learning)
    add("/v1/held-out", handlers.hold_out, LEARN, openapi.HeldOutResponse, (415, 422, 507), **learning)
    add("/v1/predict", handlers.predict, LEARN, openapi.PredictResponse, (409, 415, 422), **asking)
    labelling = {"methods": ["POST"], "status_code": 202, "openapi_extra": openapi.label_body(limits)}
    correcting = {"methods": ["POST"], "status_code": 202, "openapi_extra": openapi.correct_body(limits)}
    add("/v1/label", handlers.label, LEARN, openapi.LearnResponse, (404, 409, 410, 415, 422, 507), **labelling)
    add("/v1/correct", handlers.correct, LEARN, openapi.CorrectResponse, (404, 409, 415, 422, 507), **correcting)
    add("/v1/status", handlers.status, WATCH, openapi.StatusResponse)
    add("/v1/classes", handlers.classes, WATCH, openapi.ClassesResponse)
    add("/v1/history", handlers.history, WATCH, openapi.HistoryResponse)
    add("/v1/confusion", handlers.confusion, WATCH, openapi.ConfusionResponse)
    add("/v1/memory", handlers.memory, WATCH, openapi.MemoryResponse, (422,))
    model = {"response_class": ModelResponse, "status_code": 200, "answers": openapi.MODEL_ANSWERS}
    add("/v1/model", handlers.model, WATCH, None, (409, 422), **model)
    add("/v1/events", handlers.events, WATCH, response_class=EventStream, status_code=200)
    add("/v1/metrics", handlers.metrics, OPERATE, response_class=PlainTextResponse)
    for path, health in (("/healthz", handlers.healthz), ("/readyz", handlers.readyz)):
        # The first route answers, also to the HEAD of load balancers, which needs no description of its own.
        app.add_api_route(path, health, methods=["GET", "HEAD"], include_in_schema=False)
        add(path, health, OPERATE, openapi.HealthResponse)

    async def describe() -> Response:
        return JsonResponse(openapi.describe(app))

    pages: dict[str, Callable[..., Any]]
    pages = {"/": handlers.page, "/assets/{name}": handlers.asset, "/docs": handlers.docs, "/openapi.json": describe}
    for path, handle in pages.items():
        app.add_api_route(path, handle, include_in_schema=False)
    handlers.registry.endpoints |= {route.path for route in app.routes if isinstance(route, APIRoute)}
    app.add_middleware(QuickPath, path="/v1/predict", handle=handlers.predict)
    app.add_middleware(GuardMiddleware, token=token, limits=limits, metrics=handlers.registry)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    return app


class QuickPath:
    """ASGI middleware: a POST to this path without a query goes straight to its handler, all else to the app.

    Ways through FastAPI's layers and its reading of parameters take about a quarter of a small answer's time.
    """

    def __init__(self, app: ASGIApp, *, path: str, handle: Callable[[Request], Awaitable[Response]]) -> None:
        self.app, self.path, self.handle = app, path, handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and (scope["path"], scope["method"], scope["query_string"])
        respond = await self.handle(Request(scope, receive)) if asked == (self.path, "POST", b"") else self.app
        await respond(scope, receive, send)


class Handlers:
    """One service's endpoints; the docstrings of the handlers are the API's description.

    Slow work is done in two threads, one for predictions and one for the rest: a prediction waits for others of its
    kind but never for a batch of pictures to be decoded.
    """

    def __init__(self, service: Service) -> None:
        self.service, limits = service, service.limits
        self.reader = BodyReader(service.settings.image, limits)
        self.listeners = Listeners(limits.listeners)
        self.registry = metrics.ServiceMetrics(service, lambda: self.listeners.count)
        self.predict_pool = ThreadPoolExecutor(1, "predictions")
        self.decode_pool = ThreadPoolExecutor(1, "pictures")

    async def learn(self, request: Request) -> Response:
        """Accept samples.

        They are on the disk when the answer comes, and are learnt in the order they were accepted. A new
        label makes a new class, as long as there is room.
        """
        samples, key = await self._samples(request)
        return _accepted(len(samples), await self.service.learn(samples, key=key))

    async def hold_out(self, request: Request) -> Response:
        """Accept held-out samples, which are never learnt.

        They take the same bodies as /v1/learn and are on the disk when the answer comes. As the service learns, it asks
        itself about them in turn: `held_out_accuracy` of the status and of /v1/history is the share of right answers
        among those whose class is known. The newest are kept, as many as the memory can hold.
        """
        samples, key = await self._samples(request)
        acceptance = await self.service.hold_out(samples, key=key)
        answer = {"accepted": len(samples), "operation": acceptance.operation, "repeated": acceptance.repeated}
        return JsonResponse(answer, 202)

    async def label(self, request: Request) -> Response:
        """Accept labels of images that were predicted before, by their ids.

        The images become samples as those of /v1/learn do. An id is good once, until the service is restarted, and as
        long as its image is kept: the last ones for a while, see the answer to one that is gone (410).
        """
        key = self._key(request)
        labels = self.reader.read_labels(*await _body(request))
        return _accepted(len(labels), await self.service.label(labels, key=key))

    async def correct(self, request: Request) -> Response:
        """Correct samples and classes: all corrections of a request, in order, or none.

        They are on the disk when the answer comes, and are applied in turn with the samples. A sample is named by its
        number: remove it from the memory, or relabel it there. A class is named by its label: rename it, merge it into
        another, or delete it. What the weights have learnt from a mistake stays until updates from the corrected memory
        overwrite it, as the answer says.
        """
        key = self._key(request)
        corrections = self.reader.read_corrections(*await _body(request))
        acceptance = await self.service.correct(corrections, key=key)
        answer = {"accepted": len(corrections), "operation": acceptance.operation, "repeated": acceptance.repeated}
        sentence = unlearning(self.service.idle_updates, trains=self.service.trains)
        return JsonResponse(answer | {"sentence": sentence}, 202)

    async def predict(
        self,
        request: Request,
        top: Annotated[int, Query(ge=1, le=LARGEST, description="How many classes to return for each image.")] = 5,
    ) -> Response:
        """Name images.

        Probabilities are over the classes met so far, calibrated by the answers to samples before they were learnt. An
        answer less probable than `threshold` is `unknown`. It comes from the last published state of the model and does
        not wait for learning.
        """
        content_type, raw = await _body(request)
        if self.reader.is_quick(content_type, raw):  # less work than to hand it to another thread
            pixels = self.reader.read_images(content_type, raw)
        else:
            pixels = await _run_in(self.predict_pool, lambda: self.reader.read_images(content_type, raw))
        return JsonResponse(format_predictions(await self.service.predict(pixels), top))

    async def status(self) -> Response:
        """How the service is: its state, queue, accuracy, memory and disk."""
        return JsonResponse(self.service.status())

    async def classes(self) -> Response:
        """Every class met so far, with its counts and accuracies."""
        return JsonResponse({"classes": self.service.classes()})

    async def history(self) -> Response:
        """The course of accuracy and learning rate."""
        return JsonResponse({"points": self.service.history()})

    async def confusion(self) -> Response:
        """Which classes were taken for which, among the recent samples that were tested before they were learnt.

        Only pairs that occurred: at most as many as there are samples in the window.
        """
        return JsonResponse({"window": self.service.status()["window"], "counts": self.service.confusion()})

    async def memory(
        self, each: Annotated[int, Query(ge=1, le=LARGEST, description="Maximum number of samples of a class.")] = 20
    ) -> Response:
        """What the memory holds, as thumbnails by class, the most important samples first."""
        samples, capacity = await self.service.memory(), self.service.status()["capacity"]
        classes = await _run_in(self.decode_pool, lambda: format_memory(samples, each))
        return JsonResponse({"capacity": capacity, "size": len(samples), "classes": classes})

    async def model(
        self,
        request: Request,
        format: Annotated[
            Literal["pt2", "onnx", "safetensors"],
            Query(description="torch.export; ONNX, if its extra is installed; or the whole learner."),
        ] = "pt2",
    ) -> Response:
        """The current model as a file.

        Of torch.export or ONNX: pixels in, logits out, with normalisation and class names inside. What was accepted
        before is learnt first, as far as ten seconds allow: X-Samples says how many samples it has learnt, X-Accepted
        how many there were. A request with `If-None-Match` is answered with 304 until samples, corrections or
        rehearsal have changed the model.
        """
        known = _operation_of(request.headers.get("if-none-match", ""), format)
        found = await self.service.model(format, known=known)
        if found is None:
            return Response(status_code=304, headers={**SECURITY_HEADERS, "ETag": model_tag(known, format)})
        return ModelResponse(found, format)

    async def events(self) -> Response:
        """What happens, as it happens: server-sent events.

        A `status` comes at once, and about once a second while something changes; its data is that of /v1/status. A
        `point` is one of /v1/history, a `class` is `{"label": ...}`. A comment comes every 15 seconds.
        """
        return EventStream(self.service, self.listeners)

    async def metrics(self) -> Response:
        """The same numbers for Prometheus, and counts and times of requests."""
        headers = {**SECURITY_HEADERS, "Content-Type": metrics.CONTENT_TYPE}
        return Response(self.registry.to_text(), headers=headers)

    async def healthz(self) -> Response:
        """Whether the process lives."""
        return JsonResponse({"ok": True})

    async def readyz(self) -> Response:
        """Whether it can learn and answer; if not, why."""
        reason = self.service.not_ready()
        if reason is not None:
            raise Refusal(503, "not_ready", reason, retry_after=1)
        return JsonResponse({"ok": True})

    async def page(self, request: Request) -> Response:
        """The service's own page."""
        return file_response(request, *page.asset("index.html"), page.POLICY)

    async def asset(self, request: Request, name: str) -> Response:
        """A file of the page."""
        if name not in page.names():
            raise Refusal(404, "not_found", "The page has no such file; reload the page.")
        return file_response(request, *page.asset(name))

    async def docs(self, request: Request) -> Response:
        """This description, to be read."""
        return file_response(request, *docs_page())

    async def _samples(self, request: Request) -> tuple[list[IncomingSample], str | None]:
        """Labelled images and an idempotency key."""
        labels = request.query_params.getlist("label")
        if len(labels) > 1:
            raise Refusal(422, "bad_label", "The URL has more than one label; give one.")
        label, key = labels[0] if labels else None, self._key(request)
        content_type, raw = await _body(request)
        return await _run_in(self.decode_pool, lambda: self.reader.read_samples(content_type, raw, label)), key

    def _key(self, request: Request) -> str | None:
        keys = request.headers.getlist("idempotency-key")
        return self.reader.check_key(" ".join(keys) if keys else None)  # two are refused for their space

    def close(self) -> None:
        """End the threads."""
        for pool in (self.predict_pool, self.decode_pool):
            pool.shutdown()


def _operation_of(tag: str, format: str) -> int | None:
    """The last operation in the model behind an ETag of this format."""
    found = re.fullmatch(rf'(?:W/)?"([0-9]{{1,15}})-{format}"', tag.strip())
    return int(found[1]) if found else None


def _accepted(count: int, acceptance: Acceptance) -> Response:
    first, last, repeated, _ = acceptance
    return JsonResponse({"accepted": count, "first": first, "last": last, "repeated": repeated}, 202)


async def _run_in(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(pool, work)


async def _body(request: Request) -> tuple[str, bytes]:
    """Its content type and its bytes."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "unknown_kind", "Compressed bodies are not supported; send it uncompressed.")
    return request.headers.get("content-type", ""), await request.body()


def _no_route(_: Request, error: Any) -> JsonResponse:
    """No such path, or not with this method."""
    if error.status_code == 405:
        message = f"This URL does not support this method; use {error.headers['Allow']}."
        return refusal_response(Refusal(405, "wrong_method", message), error.headers)
    return refusal_response(Refusal(404, "not_found", "There is nothing at this URL; see /docs."))


def _bad_parameter(_: Request, error: Any) -> JsonResponse:
    first = error.errors()[0]
    return refusal_response(Refusal(422, "bad_parameter", f"{first['loc'][-1]}: {first['msg']}."))

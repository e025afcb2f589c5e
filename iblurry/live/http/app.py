"""The HTTP interface of a service: its endpoints behind the guard, each with its description."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from iblurry.live.http import openapi
from iblurry.live.http.events import EventStream
from iblurry.live.http.guard import WITHOUT_TOKEN, GuardMiddleware
from iblurry.live.http.handlers import Handlers
from iblurry.live.http.responses import JsonResponse, refusal_response
from iblurry.live.quota import Refusal
from iblurry.version import __version__

if TYPE_CHECKING:
    from iblurry.live.service import Service

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
            responses=openapi.refusals(refuses, needs_token=token is not None),
            dependencies=[bearer] if token is not None and path not in WITHOUT_TOKEN else [],
            **{"methods": ["GET"], "response_class": JSONResponse, **more},
        )

    learning = {"methods": ["POST"], "status_code": 202, "openapi_extra": openapi.learn_body(shape, limits)}
    asking = {"methods": ["POST"], "openapi_extra": openapi.predict_body(shape, limits)}
    add("/v1/learn", handlers.learn, LEARN, openapi.LearnResponse, (409, 415, 422, 507), **learning)
    add("/v1/predict", handlers.predict, LEARN, openapi.PredictResponse, (409, 415, 422), **asking)
    add("/v1/status", handlers.status, WATCH, openapi.StatusResponse)
    add("/v1/classes", handlers.classes, WATCH, openapi.ClassesResponse)
    add("/v1/history", handlers.history, WATCH, openapi.HistoryResponse)
    add("/v1/memory", handlers.memory, WATCH, openapi.MemoryResponse, (422,))
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
    for path, page in pages.items():
        app.add_api_route(path, page, include_in_schema=False)
    app.add_middleware(GuardMiddleware, token=token, limits=limits, metrics=handlers.registry)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    return app


def _no_route(_: Request, error: Any) -> JsonResponse:
    """No such path, or not with this method."""
    if error.status_code == 405:
        message = f"This address is not for this method; use {error.headers['Allow']}."
        return refusal_response(Refusal(405, "wrong_method", message), error.headers)
    return refusal_response(Refusal(404, "not_found", "There is nothing at this address; see /docs for what there is."))


def _bad_parameter(_: Request, error: Any) -> JsonResponse:
    first = error.errors()[0]
    return refusal_response(Refusal(422, "bad_parameter", f"{first['loc'][-1]}: {first['msg']}."))

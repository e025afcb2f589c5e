"""The HTTP interface of a service: its endpoints behind the guard, each with its description."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from iblurry.live.http import events, metrics, openapi
from iblurry.live.http.guard import GuardMiddleware
from iblurry.live.http.handlers import Handlers
from iblurry.live.http.responses import JsonResponse, refusal_response
from iblurry.live.quota import Limits, Refusal

if TYPE_CHECKING:
    from iblurry.live.service import Service

LEARN, WATCH, OPERATE = "learn and ask", "watch", "operate"


def create_app(service: Service, *, token: str | None = None, limits: Limits | None = None) -> FastAPI:
    """An ASGI application; setting `app.state.listeners.stopping` ends its event streams.

    Parameters
    ----------
    service : Service
        What the requests are for.
    token : str, optional
        What every request must carry, except to pages and health checks; without one only requests to a loopback
        address are answered.
    limits : Limits, optional
        Of a request; the service's own unless given.
    """
    limits, shape = limits or service.limits, service.settings.image
    handlers = Handlers(service, limits)
    app = openapi.DescribedApp(needs_token=token is not None, close=handlers.close)
    app.state.listeners, app.state.metrics = handlers.listeners, handlers.registry

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
            responses=openapi.refusals(*refuses, needs_token=token is not None),
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
    add("/v1/events", handlers.events, WATCH, response_class=_Stream)
    add("/v1/metrics", handlers.metrics, OPERATE, response_class=_Text)
    for path, health in (("/healthz", handlers.healthz), ("/readyz", handlers.readyz)):
        # The first route answers, also to the HEAD of load balancers, which needs no description of its own.
        app.add_api_route(path, health, methods=["GET", "HEAD"], include_in_schema=False)
        add(path, health, OPERATE, openapi.HealthResponse)

    async def describe() -> Response:
        return JsonResponse(app.openapi())

    pages: dict[str, Callable[..., Any]]
    pages = {"/": handlers.page, "/assets/{name}": handlers.asset, "/docs": handlers.docs, "/openapi.json": describe}
    for path, page in pages.items():
        app.add_api_route(path, page, include_in_schema=False)
    app.add_middleware(GuardMiddleware, token=token, limits=limits, metrics=handlers.registry)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    return app


class _Stream(Response):
    media_type = events.CONTENT_TYPE


class _Text(Response):
    media_type = metrics.CONTENT_TYPE


def _no_route(_: Request, error: Exception) -> JsonResponse:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another")
        return refusal_response(
            Refusal(405, "wrong_method", f"This address is not for this method; use {allowed}."), error.headers
        )
    return refusal_response(Refusal(404, "not_found", "There is nothing at this address; see /docs for what there is."))


def _bad_parameter(_: Request, error: Exception) -> JsonResponse:
    """A parameter that cannot be used."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return refusal_response(Refusal(422, "bad_parameter", f"{first['loc'][-1]}: {first['msg']}."))

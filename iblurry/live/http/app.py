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

from iblurry.live.http import prometheus, schema
from iblurry.live.http.answers import Json, refused
from iblurry.live.http.describe import Described, learn_body, predict_body, refusals
from iblurry.live.http.desk import Desk
from iblurry.live.http.events import KIND
from iblurry.live.http.guard import Guard
from iblurry.live.limits import Limits
from iblurry.live.refusal import Refusal

if TYPE_CHECKING:
    from iblurry.live.service import Service

LEARN, WATCH, OPERATE = "learn and ask", "watch", "operate"


def create_app(service: Service, *, token: str | None = None, limits: Limits | None = None) -> FastAPI:
    """An ASGI application; setting `app.state.listeners.stopping` ends its streams.

    With a token every request must carry it, but for those to pages and health; without one only requests from this
    machine are answered.
    """
    limits, shape = limits or service.limits, service.settings.image
    desk = Desk(service, limits)
    app = Described(token=token is not None, close=desk.close)
    app.state.listeners, app.state.requests = desk.listeners, desk.requests

    def offer(
        path: str, handle: Callable[..., Any], tag: str, model: Any = None, no: tuple[int, ...] = (), **more: Any
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
            responses=refusals(*no, token=token is not None),
            **{"methods": ["GET"], "response_class": JSONResponse, **more},
        )

    learning = {"methods": ["POST"], "status_code": 202, "openapi_extra": learn_body(shape, limits)}
    asking = {"methods": ["POST"], "openapi_extra": predict_body(shape, limits)}
    offer("/v1/learn", desk.learn, LEARN, schema.Receipt, (409, 415, 422, 507), **learning)
    offer("/v1/predict", desk.predict, LEARN, schema.Answers, (409, 415, 422), **asking)
    offer("/v1/status", desk.status, WATCH, schema.Status)
    offer("/v1/classes", desk.classes, WATCH, schema.Classes)
    offer("/v1/history", desk.history, WATCH, schema.History)
    offer("/v1/memory", desk.memory, WATCH, schema.Memory, (422,))
    offer("/v1/events", desk.events, WATCH, response_class=_Stream)
    offer("/v1/metrics", desk.metrics, OPERATE, response_class=_Text)
    for path, health in (("/healthz", desk.healthz), ("/readyz", desk.readyz)):
        # The first route is the one that answers; load balancers ask by HEAD, which needs no description of its own.
        app.add_api_route(path, health, methods=["GET", "HEAD"], include_in_schema=False)
        offer(path, health, OPERATE, schema.Alive)

    async def openapi() -> Response:
        return Json(app.openapi())

    pages: dict[str, Callable[..., Any]]
    pages = {"/": desk.page, "/assets/{name}": desk.asset, "/docs": desk.docs, "/openapi.json": openapi}
    for path, page in pages.items():
        app.add_api_route(path, page, include_in_schema=False)
    app.add_middleware(Guard, token=token, limits=limits, requests=desk.requests)
    app.add_exception_handler(HTTPException, _unrouted)
    app.add_exception_handler(RequestValidationError, _misfit)
    return app


class _Stream(Response):
    media_type = KIND


class _Text(Response):
    media_type = prometheus.KIND


def _unrouted(_: Request, error: Exception) -> Json:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another")
        return refused(
            Refusal(405, "wrong_method", f"This address is not for this method; use {allowed}."), error.headers
        )
    return refused(Refusal(404, "not_found", "There is nothing at this address; see /docs for what there is."))


def _misfit(_: Request, error: Exception) -> Json:
    """A parameter that cannot be used."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return refused(Refusal(422, "bad_parameter", f"{first['loc'][-1]}: {first['msg']}."))

"""The API's description: what each endpoint takes, gives and refuses, with the numbers of this service."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from iblurry.data.images import Shape
from iblurry.live.http.bodies import FORMS, JSON, KEY, LABEL, RAW
from iblurry.live.http.schema import Error
from iblurry.live.limits import Limits
from iblurry.version import __version__

Spec = dict[str, Any]
ABOUT = """A learner that takes labelled images as they arrive and answers at any moment.

A sample is on the disk before it is acknowledged. Labels are texts; a new one makes a new class. Every refusal is
`{"error": ..., "message": ...}` with a sentence that says what to do.
"""
GROUPS = [
    {"name": "learn and ask", "description": "Samples go in, answers come out."},
    {"name": "watch", "description": "How the learning goes."},
    {"name": "operate", "description": "For whoever keeps it running."},
]
WHY = {
    400: "The request itself is malformed: its JSON, its address or its Host.",
    401: "The token is missing or wrong.",
    403: "The request comes by way of another site.",
    408: "The request did not arrive in time.",
    409: "Not now: nothing has been learnt yet, or there is no room for one more class.",
    413: "Larger than a request may be: bytes, images or pixels.",
    415: "A kind of body that is not read here.",
    422: "Something in it cannot be used: a picture, a label, a parameter or an idempotency key.",
    429: "More than can be taken at the moment.",
    503: "The service is stopping, is not ready, or has no answer that is a number.",
    507: "The disk is full; nothing that was acknowledged is lost.",
}
ALWAYS = (400, 403, 408, 413, 429, 503)
PICTURE = {"schema": {"type": "string", "contentMediaType": "image/*", "description": "The bytes of one picture."}}
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mM4UaEBAAN0AWn1BwN7AAAAAElFTkSuQmCC"  # a PNG of one pixel
)
OPEN = ("/healthz", "/readyz")  # they need no token


class Described(FastAPI):
    """A FastAPI whose description also knows whether a token is needed."""

    def __init__(self, *, token: bool, close: Callable[[], None]) -> None:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield
            close()

        # Its own pages would load scripts from elsewhere, and a redirect would be built from a header of the request.
        super().__init__(
            title="iblurry, live",
            version=__version__,
            description=ABOUT,
            openapi_tags=GROUPS,
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            redirect_slashes=False,
            lifespan=lifespan,
        )
        self.token = token

    def openapi(self) -> Spec:
        """The description, made once."""
        if self.openapi_schema is None:
            spec = get_openapi(
                title=self.title,
                version=self.version,
                description=self.description,
                tags=self.openapi_tags,
                routes=self.routes,
            )
            if self.token:
                spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in spec["paths"].items():
                for operation in operations.values():
                    if self.token:
                        operation["security"] = [] if path in OPEN else [{"token": []}]
                    for status, answer in operation["responses"].items():
                        if int(status) >= 400:  # also where an answer is not JSON
                            answer["content"] = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
                    if operation["description"].rstrip(".") == operation["summary"]:
                        del operation["description"]
            self.openapi_schema = spec
        return self.openapi_schema


def refusals(*statuses: int, token: bool) -> dict[int | str, Spec]:
    """What an endpoint may refuse with, besides what any may."""
    possible = {*ALWAYS, *statuses, *([401] if token else [])}
    return {status: {"model": Error, "description": WHY[status], **_headers(status)} for status in sorted(possible)}


def learn_body(shape: Shape, limits: Limits) -> Spec:
    """Parameters and body of `POST /v1/learn`."""
    name = _label(limits)
    return {
        "parameters": [
            {
                "name": "label",
                "in": "query",
                "required": False,
                "schema": name,
                "description": "What the body shows, if it is a picture or raw pixels.",
            },
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": limits.key, "pattern": f"^{KEY}$"},
                "description": "Any text of your choice: a request sent again with the same key counts once.",
            },
        ],
        "requestBody": _body("samples", shape, limits, {"label": name}, example={"label": "cat", "image": DOT}),
    }


def predict_body(shape: Shape, limits: Limits) -> Spec:
    """The body of `POST /v1/predict`."""
    return {"requestBody": _body("images", shape, limits, {}, example={"image": DOT})}


def _body(name: str, shape: Shape, limits: Limits, more: Spec, *, example: Spec) -> Spec:
    image: Spec = {"type": "string", "contentEncoding": "base64", "description": "A PNG, JPEG, WebP, GIF or BMP."}
    each = f"{' x '.join(map(str, shape))} = {math.prod(shape)} bytes: channel by channel, row by row"
    pixels: Spec = {"type": "string", "contentEncoding": "base64", "description": f"{each}."}
    array: Spec = {"type": "integer", "minimum": 0, "maximum": 255}
    for size, word in ((shape[2], "numbers"), (shape[1], "rows"), (shape[0], "channels")):
        array = {"type": "array", "items": array, "description": f"{size} {word}."}
    forms = dict(zip(FORMS, (image, pixels, array), strict=True))
    entry = {
        "oneOf": [
            {
                "type": "object",
                "title": form,
                "properties": {**more, form: schema},
                "required": [*more, form],
                "additionalProperties": False,
            }
            for form, schema in forms.items()
        ]
    }
    entries = {"type": "array", "minItems": 1, "maxItems": limits.batch, "items": entry}
    whole = {"type": "object", "properties": {name: entries}, "required": [name], "additionalProperties": False}
    raw = {"type": "string", "contentMediaType": RAW, "description": f"{each}; or those of several images."}
    return {
        "required": True,
        "description": f"At most {limits.body} bytes, {limits.batch} images and {limits.pixels} pixels a picture.",
        "content": {
            JSON: {"schema": whole, "example": {name: [example]}},
            "image/*": PICTURE,
            RAW: {"schema": raw},
        },
    }


def _label(limits: Limits) -> Spec:
    return {"type": "string", "minLength": 1, "maxLength": limits.label, "pattern": f"^{LABEL}$", "examples": ["cat"]}


def _headers(status: int) -> Spec:
    if status == 401:
        return {"headers": {"WWW-Authenticate": {"schema": {"type": "string"}}}}
    if status == 429:
        return {"headers": {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}}}
    return {}

"""The API's description: schemas of responses and bodies, and why requests are refused, with this service's limits."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field

from iblurry.data.images import Shape
from iblurry.live.http.bodies import FORMS, JSON, KEY, LABEL, RAW
from iblurry.live.quota import Limits
from iblurry.version import __version__

Spec = dict[str, Any]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
ABOUT = """A learner that takes labelled images as they arrive and answers at any moment.

A sample is on the disk before it is acknowledged. Labels are texts; a new one makes a new class. Every refusal is
`{"error": ..., "message": ...}` with a sentence that says what to do.
"""
GROUPS = [
    {"name": "learn and ask", "description": "Samples go in, answers come out."},
    {"name": "watch", "description": "Progress of learning."},
    {"name": "operate", "description": "For operators."},
]
REASONS = {
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
ANY_ENDPOINT = (400, 403, 408, 413, 429, 503)
PICTURE = {"schema": {"type": "string", "contentMediaType": "image/*", "description": "The bytes of one picture."}}
ONE_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mM4UaEBAAN0AWn1BwN7AAAAAElFTkSuQmCC"  # a PNG of one pixel
)
WITHOUT_TOKEN = ("/healthz", "/readyz")


class ErrorResponse(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="For programs.", examples=["queue_full"])
    message: str = Field(description="For people: what was given, what is allowed, what to do.")


class LearnResponse(BaseModel):
    """The samples are on the disk and will be learnt, whatever happens to the process."""

    accepted: int = Field(ge=1, examples=[2])
    first: int = Field(ge=1, description="The number of the first of them, from 1.", examples=[17])
    last: int = Field(ge=1, examples=[18])
    repeated: bool = Field(description="This key and content had been accepted before.", examples=[False])


class LabelProbability(BaseModel):
    """A class met so far, and how likely it is."""

    label: str = Field(examples=["cat"])
    probability: Share = Field(examples=[0.93])


class ImagePrediction(LabelProbability):
    """The likeliest class of an image, and the next ones."""

    top: list[LabelProbability]


class PredictResponse(BaseModel):
    """One answer for each image, all from the same state of the model."""

    model: Count = Field(description="How many samples it had learnt: its version.", examples=[18])
    answers: list[ImagePrediction]


class StatusResponse(BaseModel):
    """How the service is."""

    iblurry: str = Field(description="The program's version.", examples=["0.1.0"])
    method: str = Field(examples=["clib"])
    network: str = Field(examples=["convnet"])
    image: list[int] = Field(min_length=3, max_length=3, description="Channels, height, width.", examples=[[3, 32, 32]])
    capacity: Count = Field(description="Samples the memory can hold.", examples=[500])
    max_classes: Count
    device: str
    threads: int
    state: Literal["recovering", "learning", "idle", "stopping", "stalled"]
    sentence: str = Field(description="The state in words.")
    accepted: Count = Field(description="Samples on the disk.")
    learnt: Count
    queue: Count = Field(description="Accepted and not learnt yet.")
    queue_limit: Count
    classes: Count = Field(description="Classes met so far.")
    model: Count = Field(description="Samples learnt by the state that answers.")
    model_age_seconds: float | None
    learning_rate: float | None
    loss: float | None
    updates: Count
    samples_per_second: float | None
    accuracy: Share | None = Field(description="Of all samples tested before they were learnt.")
    recent_accuracy: Share | None = Field(description="Of those within the window.")
    window: Count
    tested: Count = Field(description="A sample of a class never met before is not tested.")
    drift: Share | None = Field(description="Half the sum of what the shares of classes changed by between windows.")
    held: Count = Field(description="Samples in the memory.")
    checkpoint: Count = Field(description="Samples learnt by the last state that was saved.")
    checkpoint_age_seconds: float | None
    disk_bytes: Count
    disk_most: int | None = Field(description="What the service may come to use of the disk.")
    restarts: Count = Field(description="Of the learner process.")
    uptime_seconds: float


class ClassStatus(BaseModel):
    """Counts and accuracies of one class."""

    label: str
    seen: Count
    held: Count
    tested: Count
    right: Count
    accuracy: Share | None
    recent_accuracy: Share | None
    recent_share: Share | None = Field(description="Of the last window of samples.")
    before_share: Share | None = Field(description="Of the window before it.")


class ClassesResponse(BaseModel):
    """All classes met so far, in the order they were met."""

    classes: list[ClassStatus]


class HistoryPoint(BaseModel):
    """The service after some samples."""

    at: Count = Field(description="Samples learnt.")
    accuracy: Share | None
    recent_accuracy: Share | None
    learning_rate: float | None
    classes: Count


class HistoryResponse(BaseModel):
    """At most some hundred points, evenly spaced."""

    points: list[HistoryPoint]


class MemoryItem(BaseModel):
    """A sample in the memory."""

    row: Count
    importance: float | None
    since: Count = Field(description="The number of the sample.")
    thumbnail: str = Field(description="A data URI of a PNG.", pattern="^data:image/png;base64,")


class ClassMemory(BaseModel):
    """What the memory holds of one class, the most important first."""

    label: str
    count: Count
    items: list[MemoryItem]


class MemoryResponse(BaseModel):
    """What the memory holds."""

    capacity: Count
    size: Count
    classes: list[ClassMemory]


class HealthResponse(BaseModel):
    """The process lives."""

    ok: Literal[True] = True


class DescribedApp(FastAPI):
    """A FastAPI application whose description also says whether a token is needed.

    Parameters
    ----------
    needs_token : bool
        Whether requests must carry a token.
    close : callable
        Called when the application is shut down.
    """

    def __init__(self, *, needs_token: bool, close: Callable[[], None]) -> None:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield
            close()

        # FastAPI's own pages load scripts from other hosts, and its redirects are built from a header of the request.
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
        self.needs_token = needs_token

    def openapi(self) -> Spec:
        """The description, made once."""
        if self.openapi_schema is None:
            spec = super().openapi()
            if self.needs_token:
                spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in spec["paths"].items():
                for operation in operations.values():
                    if self.needs_token:
                        operation["security"] = [] if path in WITHOUT_TOKEN else [{"token": []}]
                    for status, answer in operation["responses"].items():
                        if int(status) >= 400:  # also where an answer is not JSON
                            answer["content"] = {JSON: {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}
                    if operation["description"].rstrip(".") == operation["summary"]:
                        del operation["description"]
        assert self.openapi_schema is not None
        return self.openapi_schema


def refusals(*statuses: int, needs_token: bool) -> dict[int | str, Spec]:
    """Responses of an endpoint that refuses, besides what any endpoint may refuse with."""
    possible = {*ANY_ENDPOINT, *statuses, *([401] if needs_token else [])}
    return {
        status: {"model": ErrorResponse, "description": REASONS[status], **_headers(status)}
        for status in sorted(possible)
    }


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
        "requestBody": _body("samples", shape, limits, {"label": name}, example={"label": "cat", "image": ONE_PIXEL}),
    }


def predict_body(shape: Shape, limits: Limits) -> Spec:
    """The body of `POST /v1/predict`."""
    return {"requestBody": _body("images", shape, limits, {}, example={"image": ONE_PIXEL})}


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

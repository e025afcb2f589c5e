"""The API's description: schemas of responses and bodies, and why requests are refused, with this service's limits."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field

from iblurry.data.images import Shape
from iblurry.live.http.bodies import ACTIONS, JSON, KEY, LABEL, RAW
from iblurry.live.quota import Limits

Spec = dict[str, Any]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
ABOUT = """A learner that takes labelled images as they arrive and answers at any moment.

A sample is on the disk before it is acknowledged. Labels are strings; a new label makes a new class. Every error is
`{"error": ..., "message": ...}` with a sentence that says what to do. If one entry of the JSON is wrong, `index` is its
number and `field` its field.
"""
GROUPS = [
    {"name": "learn and ask", "description": "Send samples, get predictions."},
    {"name": "watch", "description": "Progress of learning."},
    {"name": "operate", "description": "For operators."},
]
REASONS = {
    400: "The request is malformed: its JSON, its URL or its Host.",
    401: "The token is missing or wrong.",
    403: "The request comes from another web site.",
    408: "The request did not arrive in time.",
    404: "There is no such sample, class or answer.",
    409: "Not now: nothing has been learnt yet, there is no room for one more class, or it was done before.",
    410: "The image of that answer is not kept any more.",
    413: "Larger than a request may be: bytes, images or pixels.",
    415: "The Content-Type is not supported.",
    422: "A value cannot be used: a picture, a label, a parameter or an idempotency key.",
    429: "Too many requests or samples at the moment.",
    503: "The service is stopping, is not ready, or its model has diverged.",
    507: "The disk is full; nothing that was acknowledged is lost.",
}
ANY_ENDPOINT = (400, 403, 408, 413, 429, 503)
ONE_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mM4UaEBAAN0AWn1BwN7AAAAAElFTkSuQmCC"  # a PNG
METRIC = "x-prometheus"  # the name of the metric, in the schema of a number


class ErrorResponse(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="For programs.", examples=["queue_full"])
    message: str = Field(description="For people: what was given, what is allowed, what to do.")
    index: Count | None = Field(
        None, description="The number of the wrong entry of the JSON, from 0; absent if no single entry is wrong."
    )
    field: Literal["image", "pixels", "array", "label", "to", "id"] | None = Field(
        None, description="The wrong field of that entry."
    )


class LearnResponse(BaseModel):
    """The samples are on the disk and will be learnt, whatever happens to the process."""

    accepted: int = Field(ge=1, examples=[2])
    first: int = Field(ge=1, description="The number of the first sample, from 1.", examples=[17])
    last: int = Field(ge=1, examples=[18])
    repeated: bool = Field(description="This key and content had been accepted before.", examples=[False])


class HeldOutResponse(BaseModel):
    """The samples are on the disk, and will be tested and not learnt."""

    accepted: int = Field(ge=1, examples=[1])
    operation: int = Field(ge=1, description="The number of the last sample, see `model_operation` of the status.")
    repeated: bool = Field(description="This key and content had been accepted before.", examples=[False])


class CorrectResponse(HeldOutResponse):
    """The corrections are on the disk and will be applied, whatever happens to the process."""

    sentence: str = Field(description="How the model forgets the mistake.")


class LabelProbability(BaseModel):
    """A class met so far, and how likely it is."""

    label: str = Field(examples=["cat"])
    probability: Share = Field(examples=[0.93])


class ImagePrediction(LabelProbability):
    """The likeliest class of an image, and the next ones."""

    id: str = Field(description="Send the label later with this id, see /v1/label.", examples=["5f2a9c01-17"])
    unknown: bool = Field(description="Whether `probability` is below `threshold`: perhaps a new class.")
    top: list[LabelProbability]


class PredictResponse(BaseModel):
    """One answer for each image, all from the same state of the model."""

    model: Count = Field(description="How many samples it had learnt: its version.", examples=[18])
    threshold: Share | None = Field(
        description="Answers below this probability are unknown; null until enough samples are tested."
    )
    answers: list[ImagePrediction]


def measured(metric: str, description: str) -> Any:
    """A field that is also exported to Prometheus, as `iblurry_<metric>`."""
    return Field(description=description, json_schema_extra={METRIC: f"iblurry_{metric}"})


class StatusResponse(BaseModel):
    """The state of the service."""

    iblurry: str = Field(description="The program's version.", examples=["0.1.0"])
    method: str = Field(examples=["clib"])
    network: str = Field(examples=["convnet"])
    freeze: str = Field(
        description="The part of the network that is not trained; with a frozen body, features are stored."
    )
    pretrained: bool = Field(description="Whether the network started with weights that were trained elsewhere.")
    image: list[int] = Field(min_length=3, max_length=3, description="Channels, height, width.", examples=[[3, 32, 32]])
    capacity: Count = measured("memory_capacity_samples", "Samples the memory can hold.")
    max_classes: Count = measured("classes_limit", "Classes the head has room for.")
    device: str
    threads: int
    state: Literal["starting", "recovering", "learning", "idle", "stopping", "stalled"]
    sentence: str = Field(description="The state in words.")
    accepted: Count = measured("samples_accepted_total", "Samples that are on the disk.")
    learnt: Count = measured("samples_learnt_total", "Samples that were learnt.")
    queue: Count = measured("queue_samples", "Samples accepted and not learnt yet.")
    queue_limit: Count = measured("queue_limit_samples", "Samples the queue may hold.")
    classes: Count = measured("classes", "Classes met so far.")
    model: Count = measured("model_samples", "Samples learnt by the model that answers.")
    operations: Count = measured(
        "operations_total", "Samples, held-out samples, corrections and rehearsal steps on the disk."
    )
    applied: Count = measured("operations_applied_total", "Operations that were applied.")
    model_operation: Count = measured("model_operations", "Operations in the model that answers.")
    rehearsed: Count = measured("rehearsed_updates", "Updates taken while idle, since the last sample or correction.")
    idle_updates: Count = measured("idle_updates_limit", "Maximum number of updates while idle.")
    model_age_seconds: float | None = measured("model_age_seconds", "Age of the model that answers.")
    learning_rate: float | None = measured("learning_rate", "The learning rate of the next update.")
    loss: float | None = measured("loss", "The loss of the last update; null before the first since a start.")
    updates: Count = measured("updates_total", "Updates of the model.")
    samples_per_second: float | None = measured("learning_samples_per_second", "Speed of learning.")
    accuracy: Share | None = measured("accuracy_ratio", "Test-then-train accuracy over all samples tested.")
    recent_accuracy: Share | None = measured("recent_accuracy_ratio", "The same within the window.")
    window: Count = measured("window_samples", "Samples that count as recent.")
    tested: Count = measured(
        "samples_tested_total", "Samples tested before they were learnt: not the first of a class."
    )
    drift: Share | None = measured("drift_ratio", "Total variation between the class mixes of the last two windows.")
    held_out: Count = measured("held_out_samples", "Samples that are tested and never learnt.")
    held_out_accuracy: Share | None = measured(
        "held_out_accuracy_ratio", "Accuracy on held-out samples of known classes, by their last answers."
    )
    held: Count = measured("memory_samples", "Samples in the memory.")
    checkpoint: Count = measured("checkpoint_samples", "Samples learnt by the last state that was saved.")
    checkpoint_age_seconds: float | None = measured("checkpoint_age_seconds", "Age of the last state that was saved.")
    disk_bytes: Count | None = measured("disk_bytes", "Disk space that the service uses; null if unknown.")
    disk_most: int | None = measured("disk_most_bytes", "Maximum disk space that it will use.")
    restarts: Count = measured("learner_restarts_total", "Restarts of the process that learns.")
    uptime_seconds: float = measured("uptime_seconds", "Since the service was started.")


class ClassStatus(BaseModel):
    """Counts and accuracies of one class."""

    label: str
    first: int | None = Field(ge=1, description="The number of its first sample; null if it has none.")
    seen: Count = measured("class_samples_total", "Samples of the class.")
    held: Count = measured("class_memory_samples", "Samples of the class in the memory.")
    tested: Count = measured("class_tested_total", "Samples of the class tested before they were learnt.")
    right: Count = measured("class_right_total", "Samples of the class that were predicted correctly.")
    accuracy: Share | None = measured("class_accuracy_ratio", "`right` divided by `tested`.")
    recent_accuracy: Share | None = measured("class_recent_accuracy_ratio", "The same within the window.")
    recent_share: Share | None = measured("class_recent_share_ratio", "Fraction of the last window of samples.")
    before_share: Share | None = Field(description="Fraction of the window before it.")


class ClassesResponse(BaseModel):
    """All classes met so far, in the order they were met."""

    classes: list[ClassStatus]


class HistoryPoint(BaseModel):
    """The service after some samples."""

    at: Count = Field(description="Samples learnt.")
    time: float | None = Field(description="When the last of them was accepted, in seconds since 1970.")
    accuracy: Share | None
    recent_accuracy: Share | None
    tested: Count | None = Field(description="Samples tested since the start, also of deleted classes.")
    right: Count | None = Field(description="Samples predicted correctly; the difference of two points is a window.")
    held_out_accuracy: Share | None
    learning_rate: float | None
    classes: Count


class HistoryResponse(BaseModel):
    """At most some hundred points, evenly spaced."""

    points: list[HistoryPoint]


class Confusion(BaseModel):
    """How often samples of a class were given an answer."""

    label: str
    answer: str | None = Field(description="Null if that class was deleted later.")
    count: int = Field(ge=1)


class ConfusionResponse(BaseModel):
    """The confusion matrix of the recent samples, without its zeros; right answers are its diagonal."""

    window: Count = Field(description="Samples that count as recent.")
    counts: list[Confusion]


class MemoryItem(BaseModel):
    """A sample in the memory."""

    row: Count
    importance: float | None
    since: Count = Field(description="The number of the sample.")
    thumbnail: str | None = Field(
        description="A data URI of a PNG; null if features are stored instead of pictures.",
        pattern="^data:image/png;base64,",
    )


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
    """The process is running."""

    ok: Literal[True] = True


MODEL_ANSWERS: dict[int | str, Spec] = {
    200: {
        "description": "The file.",
        "headers": {
            "ETag": {"schema": {"type": "string"}, "description": "The last operation in it, and its format."},
            "X-Samples": {"schema": {"type": "integer", "minimum": 1}, "description": "Samples it has learnt."},
            "X-Accepted": {"schema": {"type": "integer", "minimum": 1}, "description": "Samples accepted until now."},
        },
        "content": {RAW: {"schema": {"type": "string", "contentMediaType": RAW}}},
    },
    304: {"description": "The model with this ETag has not changed since."},
}


def describe(app: FastAPI) -> Spec:
    """FastAPI's description, made once; every refusal is JSON, also where the answer itself is not."""
    spec = app.openapi()
    for operation in (each for operations in spec["paths"].values() for each in operations.values()):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                answer["content"] = {JSON: {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}
        if operation.get("description", "").rstrip(".") == operation["summary"]:
            del operation["description"]
    return spec


def refusals(statuses: tuple[int, ...], *, needs_token: bool) -> dict[int | str, Spec]:
    """Responses of an endpoint that refuses, besides what any endpoint may refuse with."""
    possible = sorted({*ANY_ENDPOINT, *statuses, *([401] if needs_token else [])})
    headers: dict[int, Spec] = {
        401: {"headers": {"WWW-Authenticate": {"schema": {"type": "string"}}}},
        429: {"headers": {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}}},
    }
    return {
        status: {"model": ErrorResponse, "description": REASONS[status], **headers.get(status, {})}
        for status in possible
    }


def learn_body(shape: Shape, limits: Limits) -> Spec:
    """Parameters and body of `POST /v1/learn`."""
    label = _label(limits)
    shown = _parameter("label", "query", label, "What the body shows, if it is a picture or raw pixels.")
    body = _body("samples", shape, limits, {"label": label}, example={"label": "cat", "image": ONE_PIXEL})
    return {"parameters": [shown, _key(limits)], "requestBody": body}


def label_body(limits: Limits) -> Spec:
    """Parameters and body of `POST /v1/label`."""
    entry = _object(id={"type": "string", "maxLength": limits.key}, label=_label(limits))
    return _json_list("labels", entry, limits, example={"id": "5f2a9c01-17", "label": "cat"})


def correct_body(limits: Limits) -> Spec:
    """Parameters and body of `POST /v1/correct`."""
    fields = {"sample": {"type": "integer", "minimum": 1, "examples": [17]}, "label": _label(limits)}
    fields["to"] = fields["label"]
    entries = [
        {"title": action} | _object(action={"const": action}, **{name: fields[name] for name in names})
        for action, names in ACTIONS.items()
    ]
    return _json_list("corrections", {"oneOf": entries}, limits, example={"action": "delete", "label": "cot"})


def _json_list(name: str, entry: Spec, limits: Limits, *, example: Spec) -> Spec:
    whole = _object(**{name: {"type": "array", "minItems": 1, "maxItems": limits.batch, "items": entry}})
    content = {JSON: {"schema": whole, "example": {name: [example]}}}
    return {"parameters": [_key(limits)], "requestBody": {"required": True, "content": content}}


def _label(limits: Limits) -> Spec:
    return {"type": "string", "minLength": 1, "maxLength": limits.label, "pattern": f"^{LABEL}$", "examples": ["cat"]}


def _key(limits: Limits) -> Spec:
    key = {"type": "string", "minLength": 1, "maxLength": limits.key, "pattern": f"^{KEY}$"}
    about = "Text of your choice: a request sent again with the same key counts once."
    return _parameter("Idempotency-Key", "header", key, about)


def _parameter(name: str, place: str, schema: Spec, description: str) -> Spec:
    return {"name": name, "in": place, "schema": schema, "description": description, "required": False}


def predict_body(shape: Shape, limits: Limits) -> Spec:
    """The body of `POST /v1/predict`."""
    return {"requestBody": _body("images", shape, limits, {}, example={"image": ONE_PIXEL})}


def _body(name: str, shape: Shape, limits: Limits, more: Spec, *, example: Spec) -> Spec:
    each = f"{' x '.join(map(str, shape))} = {math.prod(shape)} bytes: channel by channel, row by row"
    base64: Spec = {"type": "string", "contentEncoding": "base64"}
    array: Spec = {"type": "integer", "minimum": 0, "maximum": 255}
    for size, word in ((shape[2], "numbers"), (shape[1], "rows"), (shape[0], "channels")):
        array = {"type": "array", "items": array, "description": f"{size} {word}."}
    forms = {
        "image": base64 | {"description": "A PNG, JPEG, WebP, GIF or BMP."},
        "pixels": base64 | {"description": f"{each}."},
        "array": array,
    }
    entries = [{"title": form} | _object(**more, **{form: schema}) for form, schema in forms.items()]
    whole = _object(**{name: {"type": "array", "minItems": 1, "maxItems": limits.batch, "items": {"oneOf": entries}}})
    picture = {"type": "string", "contentMediaType": "image/*", "description": "The bytes of one picture."}
    raw = {"type": "string", "contentMediaType": RAW, "description": f"{each}; or those of several images."}
    return {
        "required": True,
        "description": f"At most {limits.body} bytes, {limits.batch} images and {limits.pixels} pixels a picture.",
        "content": {
            JSON: {"schema": whole, "example": {name: [example]}},
            "image/*": {"schema": picture},
            RAW: {"schema": raw},
        },
    }


def _object(**properties: Spec) -> Spec:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}

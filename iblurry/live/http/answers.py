"""Answers: models of every response, refusals, and how predictions and the memory become answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import nlargest
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from iblurry.live.http.pictures import thumbnail
from iblurry.live.messages import MemorySample, Predictions
from iblurry.live.quota import Refusal

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
METRIC = "x-prometheus"  # the name of the metric, in the schema of a number


class ErrorResponse(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="For programs.", examples=["queue_full"])
    message: str = Field(description="For people: what was given, what is allowed, what to do.")
    index: Count | None = Field(
        None, description="The number of the wrong entry of the JSON, from 0; absent if no single entry is wrong."
    )
    field: str | None = Field(
        None, description="The wrong field of that entry: image, pixels, array, label, to or id.", examples=["image"]
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
    """The curve so far: at most some hundred points, evenly spaced."""

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


def refusal_response(refusal: Refusal, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return `{"error": "code", "message": "A sentence."}`, with Retry-After in whole seconds where it is known.

    `index` and `field` are there where one entry of the request is at fault.
    """
    more = dict(headers or {})
    if refusal.retry_after is not None:
        more["Retry-After"] = str(max(1, math.ceil(refusal.retry_after)))
    if refusal.status == 401:
        more["WWW-Authenticate"] = "Bearer"
    if refusal.status == 408:
        more["Connection"] = "close"
    answer = ErrorResponse(error=refusal.code, message=refusal.message, index=refusal.index, field=refusal.field)
    return JSONResponse(answer.model_dump(exclude_none=True), refusal.status, more)


def format_predictions(predictions: Predictions, top: int) -> PredictResponse:
    """Name the `top` likeliest classes of each image; of equals, the one met first."""
    if not np.isfinite(predictions.probabilities).all():
        message = "The model returns NaN: it has diverged; see /v1/status, or start with another folder."
        raise Refusal(503, "not_finite", message)
    labels = predictions.labels
    known = [row for row, label in enumerate(labels) if label]  # others were deleted
    if not known:
        raise Refusal(409, "nothing_learnt", "All classes were deleted; send a sample first.")
    named = [
        [{"label": labels[row], "probability": shares[row]} for row in nlargest(top, known, key=shares.__getitem__)]
        for shares in predictions.probabilities.tolist()
    ]
    least = predictions.threshold
    answers = [
        {"id": one, **best[0], "unknown": least is not None and best[0]["probability"] < least, "top": best}
        for one, best in zip(predictions.ids, named, strict=True)
    ]
    return PredictResponse.model_validate({"model": predictions.model, "threshold": least, "answers": answers})


def unlearning(idle_updates: int, *, trains: bool) -> str:
    """What becomes of what was learnt from a mistake, by a method that trains weights or one that does not."""
    if not trains:
        return "No weights are trained, so the correction is exact if the sample is in the memory."
    stays = "The weights keep what they learnt from the mistake until updates from the corrected memory overwrite it"
    if idle_updates:
        return f"{stays}: up to {idle_updates:,} are made while the service is idle."
    return f"{stays}: those of the next samples, because there are none while idle (--idle-updates 0)."


def format_memory(samples: list[MemorySample], each: int) -> list[dict[str, Any]]:
    """Lists at most `each` samples of each class, the most important first and, where that is not known, the newest."""
    classes: dict[str, list[MemorySample]] = {}
    for sample in sorted(samples, key=lambda sample: (-(sample.importance or 0.0), -sample.since)):
        classes.setdefault(sample.label, []).append(sample)
    return [
        {
            "label": label,
            "count": len(members),
            "items": [
                {"row": row, "importance": importance, "since": since, "thumbnail": thumbnail(pixels)}
                for row, _, importance, since, pixels in members[:each]
            ],
        }
        for label, members in sorted(classes.items())
    ]

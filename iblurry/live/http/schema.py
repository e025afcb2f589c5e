"""The answers as they go over the wire: what is written into the API's description."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class Error(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="For programs.", examples=["queue_full"])
    message: str = Field(description="For people: what was given, what is allowed, what to do.")


class Receipt(BaseModel):
    """The samples are on the disk and will be learnt, whatever happens to the process."""

    accepted: int = Field(ge=1, examples=[2])
    first: int = Field(ge=1, description="The number of the first of them, from 1.", examples=[17])
    last: int = Field(ge=1, examples=[18])
    repeated: bool = Field(description="This key and content had been accepted before.", examples=[False])


class Guess(BaseModel):
    """A class met so far, and how likely it is."""

    label: str = Field(examples=["cat"])
    probability: Share = Field(examples=[0.93])


class Answer(Guess):
    """The likeliest class of an image, and the next ones."""

    top: list[Guess]


class Answers(BaseModel):
    """One answer for each image, all from the same state of the model."""

    model: Count = Field(description="How many samples it had learnt: its version.", examples=[18])
    answers: list[Answer]


class Status(BaseModel):
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
    restarts: Count = Field(description="Of the process that learns.")
    uptime_seconds: float


class Class(BaseModel):
    """How it stands with one class."""

    label: str
    seen: Count
    held: Count
    tested: Count
    right: Count
    accuracy: Share | None
    recent_accuracy: Share | None
    recent_share: Share | None = Field(description="Of the last window of samples.")
    before_share: Share | None = Field(description="Of the window before it.")


class Classes(BaseModel):
    """All classes met so far, in the order they were met."""

    classes: list[Class]


class Point(BaseModel):
    """The service after some samples."""

    at: Count = Field(description="Samples learnt.")
    accuracy: Share | None
    recent_accuracy: Share | None
    learning_rate: float | None
    classes: Count


class History(BaseModel):
    """Some hundred points at most, evenly thinned."""

    points: list[Point]


class Item(BaseModel):
    """A sample in the memory."""

    row: Count
    importance: float | None
    since: Count = Field(description="The number of the sample.")
    thumbnail: str = Field(description="A data URI of a PNG.", pattern="^data:image/png;base64,")


class Held(BaseModel):
    """What the memory holds of one class, the most important first."""

    label: str
    count: Count
    items: list[Item]


class Memory(BaseModel):
    """What the memory holds."""

    capacity: Count
    size: Count
    classes: list[Held]


class Alive(BaseModel):
    """The process lives."""

    ok: Literal[True] = True

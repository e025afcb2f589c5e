"""What the HTTP process and the learner process exchange, as typed and frozen records."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray


class IncomingSample(NamedTuple):
    """A labelled image to learn."""

    label: str
    pixels: NDArray[np.uint8]  # (C, H, W), of the service's shape


class Acceptance(NamedTuple):
    """The numbers, from 1, under which the samples of a request were accepted."""

    first: int
    last: int
    repeated: bool = False  # the same request had been accepted before


class Predictions(NamedTuple):
    """Class probabilities of some images from one state of the model."""

    model: int  # samples it had learnt
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]  # (B, len(labels))


class MemorySample(NamedTuple):
    """A sample in the memory."""

    row: int
    label: str
    importance: float | None
    since: int  # the sample's number
    pixels: NDArray[np.uint8] | None  # (C, H, W); None where features are stored


class Command(Enum):
    """From the HTTP process to the learner process; the values are what is sent."""

    WAKE = b"w"  # look for samples in the log
    SEND_MEMORY = b"m"  # answer with MemoryContents
    STOP = b"s"  # finish the current sample, save and exit


@dataclass(frozen=True)
class Snapshot:
    """A state of the model to answer with, after `at` samples."""

    at: int
    labels: tuple[str, ...]
    tensors: list[NDArray[Any]]  # of the readout's `answers_with`, in its order


@dataclass(frozen=True, kw_only=True)
class LearnerReport:
    """Progress and quality of learning; the defaults describe a learner that has learnt nothing."""

    learnt: int = 0
    learning_rate: float | None = None
    loss: float | None = None
    updates: int = 0
    held: int = 0  # samples in the memory
    accuracy: float | None = None
    recent_accuracy: float | None = None
    window: int = 0
    tested: int = 0
    drift: float | None = None
    checkpoint: int = 0  # samples learnt by the newest checkpoint
    checkpoint_written: float | None = None  # when that was, in seconds since 1970
    samples_per_second: float = 0.0
    checkpoint_most: int = 0  # upper bound of a checkpoint's bytes
    classes: list[dict[str, Any]] = field(default_factory=list)  # rows of /v1/classes
    history: list[dict[str, Any]] = field(default_factory=list)  # points of /v1/history
    new_points: list[dict[str, Any]] = field(default_factory=list)  # those since the report before


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint after `at` samples; the log no longer needs those up to `droppable`."""

    at: int
    droppable: int


@dataclass(frozen=True)
class MemoryContents:
    """All samples of the memory, as asked for by Command.SEND_MEMORY."""

    samples: list[MemorySample]


@dataclass(frozen=True)
class Warned:
    """Something an operator should read; learning goes on."""

    sentence: str


@dataclass(frozen=True)
class ProcessLost:
    """The learner process ended unexpectedly and is started again."""

    sentence: str


@dataclass(frozen=True)
class Stalled:
    """Learning ended for good: starting the process again would not help."""

    sentence: str


Message: TypeAlias = Snapshot | LearnerReport | CheckpointSaved | MemoryContents | Warned | ProcessLost | Stalled

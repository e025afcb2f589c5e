"""What the HTTP process and the learner process exchange, as typed and frozen records."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray


class IncomingSample(NamedTuple):
    """A labelled image to learn."""

    label: str
    pixels: NDArray[np.uint8]  # (C, H, W), of the service's shape


Kind = Literal["sample", "hold", "rehearse", "remove", "relabel", "rename", "merge", "delete"]


class Operation(NamedTuple):
    """One step of learning, as the log keeps it: the state of a learner is a function of these in order."""

    kind: Kind
    number: int = 0  # of the sample that is learnt (set by the log), removed or relabelled, from 1; or of updates
    label: str = ""  # of the sample, also of one that is held out; or the class that is renamed, merged or deleted
    to: str = ""  # the new name of that class, or the one that it is merged into
    pixels: bytes = b""


class Acceptance(NamedTuple):
    """The numbers, from 1, under which a request was accepted."""

    first: int  # of its samples; 0 where it has none
    last: int
    repeated: bool = False  # the same request had been accepted before
    operation: int = 0  # its last one


class Predictions(NamedTuple):
    """Class probabilities of some images from one state of the model."""

    model: int  # samples it had learnt
    labels: tuple[str, ...]
    probabilities: NDArray[np.float64]  # (B, len(labels))
    ids: tuple[str, ...] = ()  # under which labels can be sent later, one for each image
    threshold: float | None = None  # an answer less probable than this is unknown


class MemorySample(NamedTuple):
    """A sample in the memory."""

    row: int
    label: str
    importance: float | None
    since: int  # the sample's number
    pixels: NDArray[np.uint8] | None  # (C, H, W); None where features are stored


class Command(Enum):
    """A command from the HTTP process to the learner process; the values are what is sent."""

    WAKE = b"w"  # look for samples in the log
    SAVE = b"c"  # write a checkpoint now
    SEND_MEMORY = b"m"  # answer with MemoryContents
    STOP = b"s"  # finish the current sample, save and exit


class Calibration(NamedTuple):
    """How answers become probabilities: the defaults leave them as they are."""

    temperature: float = 1.0
    confidences: tuple[float, ...] = ()  # of the recorded answers, at this temperature, ascending

    def threshold(self, rate: float) -> float | None:
        """The k-th smallest of n, k = floor(rate (n + 1)): a share of `rate` of samples like these is below it."""
        k = int(rate * (len(self.confidences) + 1))
        return self.confidences[k - 1] if k else None


@dataclass(frozen=True)
class Snapshot:
    """A state of the model to answer with, after `at` samples."""

    at: int
    labels: tuple[str, ...]  # by head row; "" where a class was deleted
    tensors: list[NDArray[Any]]  # of the readout's `answers_with`, in its order
    operation: int = 0  # the last one that is in it
    calibration: Calibration = Calibration()


@dataclass(frozen=True, kw_only=True)
class LearnerReport:
    """Progress and quality of learning; the defaults describe a learner that has learnt nothing."""

    learnt: int = 0
    applied: int = 0  # the last operation
    learning_rate: float | None = None
    loss: float | None = None
    updates: int = 0
    held: int = 0  # samples in the memory
    accuracy: float | None = None
    recent_accuracy: float | None = None
    window: int = 0
    tested: int = 0
    drift: float | None = None
    held_out: int = 0  # samples that are never learnt
    held_out_accuracy: float | None = None
    checkpoint: int = 0  # samples learnt by the newest checkpoint
    checkpoint_operation: int = 0  # the last one that is in it
    checkpoint_written: float | None = None  # when that was, in seconds since 1970
    samples_per_second: float = 0.0
    checkpoint_most: int = 0  # upper bound of a checkpoint's bytes
    classes: list[dict[str, Any]] = field(default_factory=list)  # rows of /v1/classes
    history: list[dict[str, Any]] = field(default_factory=list)  # points of /v1/history
    confusion: list[dict[str, Any]] = field(default_factory=list)  # entries of /v1/confusion
    new_points: list[dict[str, Any]] = field(default_factory=list)  # those since the report before


@dataclass(frozen=True)
class CaughtUp:
    """All operations up to `at` are applied; the learner could rehearse `updates` before it looks again."""

    at: int
    updates: int


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint after `at` samples and `operation`; the log no longer needs the operations up to `droppable`."""

    at: int
    operation: int
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
class Crashed:
    """The traceback with which the learner process ends."""

    traceback: str


@dataclass(frozen=True)
class ProcessLost:
    """The learner process ended unexpectedly and is started again."""

    sentence: str


@dataclass(frozen=True)
class Stalled:
    """Learning ended for good: starting the process again would not help."""

    sentence: str


Message: TypeAlias = (
    Snapshot | LearnerReport | CaughtUp | CheckpointSaved | MemoryContents | Warned | Crashed | ProcessLost | Stalled
)

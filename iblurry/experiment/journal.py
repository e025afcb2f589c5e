"""The journal: one JSON line per event of a run, append-only, byte for byte the same whenever the run is repeated."""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, fields
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import DataError, InputError
from iblurry.storage.files import full_disk_error, sync_folder, write_all
from iblurry.storage.untrusted import parse_json

_fields: Callable[[Any], tuple[Field[Any], ...]] = cache(fields)  # of a kind of record


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {  # by annotation: the check and what it asks for
    "int": (_is_count, "a whole number from 0"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "float": (lambda value: isinstance(value, float) and math.isfinite(value), "a finite float"),
    "tuple[int, ...]": (
        lambda value: isinstance(value, tuple) and all(map(_is_count, value)),
        "a tuple of whole numbers from 0",
    ),
    "dict[str, int]": (
        lambda value: (
            isinstance(value, dict)
            and all(isinstance(key, str) for key in value)
            and all(map(_is_count, value.values()))
        ),
        "a table of whole numbers from 0 by name",
    ),
}
POSITIVE = ("at", "samples", "query_every")  # whole numbers from 1


@dataclass(frozen=True)
class _Record:
    """One line: its fields are checked against their types."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            is_legal, words = TYPES[str(field.type)]
            if not is_legal(value) or (field.name in POSITIVE and value < 1):
                least = " and not 0" if value == 0 else ""
                raise InputError(f"{field.name} is {value!r}: it must be {words}{least}")


@dataclass(frozen=True)
class Start(_Record):
    """The first line: which experiment this is and how its stream is divided."""

    kind: ClassVar[str] = "start"
    experiment: str  # content hash of the experiment
    samples: int  # in the whole stream
    ends: tuple[int, ...]  # samples seen at the end of each task
    query_every: int  # samples between two points of the curve

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ends or list(self.ends) != sorted(set(self.ends)) or self.ends[-1] != self.samples:
            raise InputError(f"ends is {self.ends!r}: task ends must grow and finish at samples, {self.samples}")


@dataclass(frozen=True)
class NewClass(_Record):
    """A class was met for the first time."""

    kind: ClassVar[str] = "class"
    at: int  # number of its first sample, from 1
    label: str


@dataclass(frozen=True)
class Evaluation(_Record):
    """Right answers on the test images of the known classes, class by class in order of exposure (abstract)."""

    at: int  # samples seen
    task: int  # position in Start.ends, from 0
    correct: tuple[int, ...]
    total: tuple[int, ...]
    rate: float  # learning rate
    updates: int  # optimiser steps so far

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.correct) != len(self.total) or any(c > t for c, t in zip(self.correct, self.total, strict=True)):
            raise InputError(f"correct is {self.correct!r}, which does not fit total, {self.total!r}")
        if sum(self.total) == 0:
            raise InputError("total counts no test image: give the test set images of the classes in the stream")

    @property
    def accuracy(self) -> float:
        """Right answers by questions, all known classes together (micro average)."""
        return sum(self.correct) / sum(self.total)


@dataclass(frozen=True)
class Query(Evaluation):
    """A point of the curve."""

    kind: ClassVar[str] = "query"


@dataclass(frozen=True)
class TaskEnd(Evaluation):
    """The extra evaluation after the end of a task; not a point of the curve."""

    kind: ClassVar[str] = "task"


@dataclass(frozen=True)
class Held(_Record):
    """What the memory holds: after each task, and after every tenth query elsewhere."""

    kind: ClassVar[str] = "held"
    at: int  # samples seen
    rows: tuple[int, ...]  # of each class met, in order of exposure


@dataclass(frozen=True)
class Spent(_Record):
    """All that was computed so far, and what is kept for it: after each task."""

    kind: ClassVar[str] = "spent"
    at: int  # samples seen
    updates: int  # optimiser steps, those of refits among them
    forward: dict[str, int]  # images, by purpose: training, losses, distillation, parts, features, queries
    backward: dict[str, int]
    flops: dict[str, int]  # by purpose
    bytes: dict[str, int]  # by kind


@dataclass(frozen=True)
class Logged(_Record):
    """A number that a callback logged."""

    kind: ClassVar[str] = "metric"
    at: int  # samples seen
    name: str
    value: float


@dataclass(frozen=True)
class Answers(_Record):
    """The answers to all test images, those of classes not met yet too; classes are numbered as the data set has them.

    `Answers.of` makes it.
    """

    kind: ClassVar[str] = "answers"
    at: int  # samples seen
    total: tuple[int, ...]  # test images of each class
    known: tuple[int, ...]  # classes met, in order of exposure
    answers: str  # base64 of the answers, a byte each (two, little endian, from 257 classes on), class by class

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            is_legal = len(self.chosen) == sum(self.total) and set(np.unique(self.chosen)) <= set(self.known)
        except ValueError as error:
            raise InputError(f"answers is not valid base64: {error}") from error
        if not is_legal:
            raise InputError(f"answers has {len(self.chosen)} answers, not {sum(self.total)} of known classes")

    @classmethod
    def of(cls, at: int, answers: NDArray[np.int64], total: tuple[int, ...], known: tuple[int, ...]) -> Self:
        """Makes the record of answers, in the order of the classes asked about."""
        return cls(at, total, known, base64.b64encode(answers.astype(_width(total)).tobytes()).decode())

    @property
    def chosen(self) -> NDArray[np.int64]:
        """(test images,) the answers, class by class."""
        return np.frombuffer(base64.b64decode(self.answers, validate=True), _width(self.total)).astype(np.int64)

    @property
    def targets(self) -> NDArray[np.int64]:
        """(test images,) the right ones."""
        return np.repeat(np.arange(len(self.total)), self.total)


def _width(total: tuple[int, ...]) -> str:
    return "u1" if len(total) <= 256 else "<u2"


@dataclass(frozen=True)
class Stopped(_Record):
    """The last line of a run that a callback ended before its stream."""

    kind: ClassVar[str] = "stop"
    at: int  # samples seen
    reason: str


Record = Start | NewClass | Query | TaskEnd | Held | Spent | Logged | Answers | Stopped
KINDS: dict[str, type[Record]] = {
    kind.kind: kind for kind in (Start, NewClass, Query, TaskEnd, Held, Spent, Logged, Answers, Stopped)
}


@dataclass(frozen=True)
class Pending:
    """A record whose numbers are still on the device.

    Parameters
    ----------
    wait : callable
        Waits for the record.
    is_ready : callable
        Whether `wait` would return at once.
    is_deferred : callable
        Whether what it waits for was not begun yet.
    """

    wait: Callable[[], Record]
    is_ready: Callable[[], bool]
    is_deferred: Callable[[], bool] = lambda: False


class Journal:
    """Appends records to a file in their order, so that it is the same however late the numbers of some come.

    A line has been handed to the system before the method that writes it returns.

    Parameters
    ----------
    path : Path or str
        The file; created if it is missing.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.accuracy: float | None = None  # of the last evaluation written
        self.kept: list[Record] | None = None  # what was written, where callbacks want to read it
        self._waiting: deque[Pending] = deque()
        is_new = not self.path.exists()
        with full_disk_error(self.path.parent):
            # Unbuffered: a line the disk refused must not be tried again when the file is closed.
            self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
            if is_new:
                sync_folder(self.path.parent)

    def append(self, record: Record) -> None:
        """Write one line."""
        with full_disk_error(self.path.parent):
            write_all(self._file.fileno(), encode(record))

    def put(self, record: Record | Pending) -> None:
        """Take in a record, and write what is ready."""
        if not isinstance(record, Pending):
            there = record
            record = Pending(lambda: there, lambda: True)
        self._waiting.append(record)
        self.write()

    def write(self) -> None:
        """Write what is ready, up to the first record that is not."""
        while self._waiting and self._waiting[0].is_ready():
            self._write_first()

    def flush(self, *, deferred: bool = True) -> None:
        """Write everything, waiting for numbers; without `deferred`, up to a record that was not begun yet."""
        while self._waiting and (deferred or not self._waiting[0].is_deferred()):
            self._write_first()

    def _write_first(self) -> None:
        record = self._waiting.popleft().wait()
        if isinstance(record, Evaluation):
            self.accuracy = record.accuracy
        self.append(record)
        if self.kept is not None:
            self.kept.append(record)

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        with full_disk_error(self.path.parent):
            os.fsync(self._file.fileno())

    def truncate(self, length: int) -> None:
        """Cut back to a length, where a line ends."""
        os.ftruncate(self._file.fileno(), length)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path | str, *, partial: bool = False) -> list[Record]:
    """All records of a journal, also a packed one; with `partial`, a last line still being written is left out."""
    path = Path(path)
    try:
        *lines, torn = read_bytes(path).split(b"\n")
    except FileNotFoundError:
        raise DataError(f"There is no journal at {path}; name the folder of a run that has started.") from None
    if torn and not partial:
        raise _damaged(path, len(lines) + 1, "it has no line end")
    return decode_lines(path, lines)


def read_bytes(path: Path) -> bytes:
    """A journal's bytes, unpacked if its name ends in .gz."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked: {error}. Put back a good copy.") from error


def decode_lines(path: Path, lines: Sequence[bytes], first: int = 1) -> list[Record]:
    """The records of lines without their ends, of which the first is number `first` of the journal."""
    records: list[Record] = []
    for number, line in enumerate(lines, start=first):
        try:
            record = decode(line)
        except ValueError as error:
            raise _damaged(path, number, str(error)) from error
        if isinstance(record, Start) != (number == 1):
            raise _damaged(path, number, "a journal has one start, on its first line")
        records.append(record)
    return records


def encode(record: Record) -> bytes:
    """The one line that stands for a record.

    >>> encode(NewClass(at=25, label="horse"))
    b'{"kind":"class","at":25,"label":"horse"}\\n'
    """
    values = {"kind": record.kind} | {field.name: getattr(record, field.name) for field in _fields(type(record))}
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Record:
    """The record that a line (without its end) stands for; ValueError for a line `encode` could not have written."""
    values: dict[str, Any] = parse_json(line)
    name = values.pop("kind", None)
    kind: Any = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InputError(f"there is no kind {name!r}, only {', '.join(KINDS)}")
    expected = [field.name for field in _fields(kind)]
    if list(values) != expected:
        raise InputError(f"a line of kind {name!r} has the keys {', '.join(expected)}, not {', '.join(values)}")
    record: Record = kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
    if encode(record) != line + b"\n":
        raise InputError("it is not written the way a journal is")
    return record


def _damaged(path: Path, number: int, why: str) -> DataError:
    return DataError(
        f"{path}, line {number} is damaged: {why}. Put back a good copy, or delete the run's folder and run it again."
    )

"""The log: operations on the disk, in the order they will be applied, until two checkpoints include them.

Most of them are samples; corrections, held-out samples and steps of rehearsal are among them: a replay is exact.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shutil import disk_usage
from typing import NamedTuple

from iblurry.errors import BusyError, DataError, DiskFullError, FolderError, IblurryError
from iblurry.live.messages import Acceptance, Operation
from iblurry.live.quota import KEYS, PAGE, SAVE_SAMPLES, WAL, Refusal
from iblurry.live.worker import BatchWorker
from iblurry.storage.files import file_id, sync_folder
from iblurry.storage.untrusted import MALFORMED, reason

LOGGER = logging.getLogger(__name__)
FILE = "samples.sqlite"
FORMAT = 3
TRANSACTION = 64  # requests written in one transaction: a sync of the disk costs the same for one as for all
OPERATION = """
CREATE TABLE operation (at INTEGER PRIMARY KEY, kind TEXT NOT NULL, number INTEGER NOT NULL, label TEXT NOT NULL,
                        other TEXT NOT NULL, pixels BLOB NOT NULL, time REAL NOT NULL DEFAULT 0);
"""
SCHEMA = f"""
BEGIN;
{OPERATION}
CREATE TABLE class (row INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE);
CREATE TABLE request (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, digest BLOB NOT NULL,
                      first INTEGER NOT NULL, last INTEGER NOT NULL, operation INTEGER NOT NULL);
CREATE TABLE total (accepted INTEGER NOT NULL, operations INTEGER NOT NULL, rehearsed INTEGER NOT NULL);
INSERT INTO total VALUES (0, 0, 0);
PRAGMA user_version = {FORMAT};
COMMIT;
"""
READ_ONLY = (FolderError, "Make the file and its folder readable and writable for this program.")
LOCKED = (BusyError, "Close the other program that has it open.")
TROUBLE: dict[int, tuple[type[IblurryError], str]] = {  # by SQLite's result code: our error, and the remedy
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_PERM: READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: READ_ONLY,
    sqlite3.SQLITE_IOERR: (DataError, "The disk reports an error: check it and its connection."),
}


class LogEntry(NamedTuple):
    """An operation; `at` is its number from 1, samples and all others counted."""

    at: int
    operation: Operation
    time: float = 0.0  # when it was accepted, in seconds since 1970; 0 where that was not noted


class SampleLog:
    """SQLite in WAL mode: one connection writes, others read meanwhile. What is committed survives a power failure.

    There may be `max_classes` labels; SQLite itself keeps the file below `max_bytes`. `accepted` are samples,
    `operations` all that was ever written, and `rehearsed` the updates since the last sample or correction.
    """

    def __init__(self, folder: Path, *, max_classes: int, max_bytes: int) -> None:
        self.path, self.max_classes = folder / FILE, max_classes
        with _database_errors(self.path):
            self._database = _connect(self.path, make=True)
            version: int = self._value("PRAGMA user_version")
            if version not in (0, FORMAT):  # 0: a new file
                raise DataError(
                    f"{self.path} has format {version}, and this version of iblurry reads {FORMAT}; use the "
                    "version that wrote it, or start with another --data-dir."
                )
            if version == 0:  # nothing is written to an existing log: the disk may be full
                self._database.executescript(SCHEMA)
            self._database.execute(f"PRAGMA max_page_count = {max_bytes // PAGE}")
            totals = self._database.execute("SELECT accepted, operations, rehearsed FROM total").fetchone()
            self.accepted, self.operations, self.rehearsed = map(int, totals)
            self.kept = self._value("SELECT count(*) FROM operation")
            self.labels = [str(label) for (label,) in self._database.execute("SELECT label FROM class ORDER BY row")]
        self._ids = {path: file_id(path) for path in (self.path, Path(f"{self.path}-wal"), Path(f"{self.path}-shm"))}
        sync_folder(folder)  # the file's name must survive a power failure, too

    def _value(self, query: str) -> int:
        value: int = self._database.execute(query).fetchone()[0]
        return value

    @property
    def lost(self) -> str | None:
        """Why a restart would not find what is written: its files are not at their paths any more; None if they are."""
        with suppress(OSError):  # the disk is away
            if all(file_id(path) == there for path, there in self._ids.items()):
                return None
        return moved(self.path.parent)

    def begin_at(self, accepted: int, labels: Sequence[str]) -> None:
        """Begins a new log as if so many samples with these labels, in their order, were accepted and dropped
        before.
        """
        with self.transaction():
            self._database.executemany("INSERT INTO class VALUES (?, ?)", enumerate(labels))
            self.accepted = self.operations = accepted
            self.labels = list(labels)
            self._database.execute("UPDATE total SET accepted = ?, operations = ?", (accepted, accepted))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is on the disk when it ends, or nothing of it; Refusal where SQLite fails."""
        before = self.accepted, self.operations, self.rehearsed, self.kept, self.labels
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            if self.lost:
                raise Refusal(503, "log_lost", f"{self.lost} Then send it again.", retry_after=30)
            self._database.execute("COMMIT")
        except BaseException as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self.accepted, self.operations, self.rehearsed, self.kept, self.labels = before
            if not isinstance(error, sqlite3.Error):
                raise
            known = _known_error(error, self.path)
            if isinstance(known, DiskFullError):
                raise Refusal(507, "disk_full", f"{known} Then send it again.", retry_after=10) from error
            raise Refusal(503, "log_failed", f"{known} Then send it again.", retry_after=1) from error

    def find_repeated(self, key: str, digest: bytes) -> Acceptance | None:
        """The answer to the same request before; Refusal where the key was used for another."""
        query = "SELECT digest, first, last, operation FROM request WHERE key = ?"
        found = self._database.execute(query, (key,)).fetchone()
        if found is None:
            return None
        if found[0] != digest:
            message = f"The key {key!r} was used for another request; make a new key for every new one."
            raise Refusal(422, "key_reused", message)
        return Acceptance(found[1], found[2], repeated=True, operation=found[3])

    def add(self, operations: Sequence[Operation], key: str | None = None, digest: bytes = b"") -> Acceptance:
        """Adds operations inside `transaction`; numbers those that are samples. A refusal leaves nothing behind."""
        accepted, labels, rows, now = self.accepted, list(self.labels), [], round(time.time(), 3)
        for at, operation in enumerate(operations, self.operations + 1):
            if operation.kind == "sample":
                accepted += 1
                operation = operation._replace(number=accepted)
            self._change_labels(labels, operation, accepted)
            rows.append((at, *operation, now))
        first, self.accepted = self.accepted + 1 if accepted > self.accepted else 0, accepted
        self._database.executemany("INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        if labels != self.labels:
            self._database.execute("DELETE FROM class")
            self._database.executemany("INSERT INTO class VALUES (?, ?)", enumerate(labels))
            self.labels = labels
        self.operations += len(rows)
        self.kept += len(rows)
        if any(one.kind != "hold" for one in operations):
            rehearsed = sum(one.number for one in operations if one.kind == "rehearse")
            self.rehearsed = self.rehearsed + rehearsed if rehearsed else 0
        totals = (self.accepted, self.operations, self.rehearsed)
        self._database.execute("UPDATE total SET accepted = ?, operations = ?, rehearsed = ?", totals)
        acceptance = Acceptance(first, self.accepted if first else 0, operation=self.operations)
        if key is not None:
            entry_of_key = (key, digest, acceptance.first, acceptance.last, acceptance.operation)
            columns = "key, digest, first, last, operation"
            self._database.execute(f"INSERT INTO request ({columns}) VALUES (?, ?, ?, ?, ?)", entry_of_key)
            self._database.execute("DELETE FROM request WHERE number <= last_insert_rowid() - ?", (KEYS,))
        return acceptance

    def _change_labels(self, labels: list[str], operation: Operation, accepted: int) -> None:
        """What an operation does to the labels there are; Refusal where it cannot be applied."""
        kind, number, label, to, _ = operation
        if kind in ("remove", "relabel") and not 1 <= number <= accepted:
            known = f"samples have numbers from 1 to {accepted}" if accepted else "there are no samples yet"
            raise Refusal(404, "unknown_sample", f"There is no sample {number}: {known}; correct the number.")
        for name in {"rename": [label], "merge": [label, to], "delete": [label]}.get(kind, []):
            if name not in labels:
                raise Refusal(404, "unknown_class", f"There is no class {name!r}; /v1/classes lists all classes.")
        if kind in ("sample", "relabel") and label not in labels:
            if len(labels) == self.max_classes:
                message = (
                    f"There is no room for the label {label!r}: there are {self.max_classes} classes already; use a "
                    "known label, delete a class, or start a new --data-dir with more --max-classes."
                )
                raise Refusal(409, "too_many_classes", message)
            labels.append(label)
        elif kind == "rename" and to != label:
            if to in labels:
                raise Refusal(409, "class_exists", f"There is a class {to!r} already; merge {label!r} into it instead.")
            labels[labels.index(label)] = to
        elif kind == "merge" and label == to:
            raise Refusal(422, "same_class", f"The class {label!r} cannot be merged into itself; give another class.")
        elif kind in ("merge", "delete"):
            labels.remove(label)

    def drop(self, upto: int) -> None:
        """Deletes, inside `transaction`, operations up to this one, which two checkpoints include."""
        self.kept -= self._database.execute("DELETE FROM operation WHERE at <= ?", (upto,)).rowcount

    def close(self) -> None:
        self._database.close()


class LogReader:
    """What the learner process reads of the log."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with _database_errors(self.path):
            self._database = _connect(self.path)

    def read_after(self, at: int, limit: int) -> list[LogEntry]:
        """Reads at most `limit` operations behind number `at`, in order and without a gap."""
        with _database_errors(self.path):
            self._database.execute("BEGIN")  # both queries see the same moment
            (written,) = self._database.execute("SELECT operations FROM total").fetchone()
            columns = "at, kind, number, label, other, pixels, time"
            query = f"SELECT {columns} FROM operation WHERE at > ? ORDER BY at LIMIT ?"
            found = self._database.execute(query, (at, limit)).fetchall()
            self._database.execute("COMMIT")
        entries = [LogEntry(row[0], Operation(*row[1:-1]), row[-1]) for row in found]
        if written < at or (written > at and (not entries or entries[0].at != at + 1)):
            held = f"goes from operation {entries[0].at if entries else 'none'} to {written}"
            remedy = f"does not fit the checkpoint at operation {at}; put back a copy of the whole folder."
            raise DataError(f"{self.path} {held} and {remedy}")
        return entries

    def accepted(self, *, check: bool = False) -> int:
        """Samples accepted; DataError if the file should be checked and is damaged."""
        with _database_errors(self.path):
            found = self._database.execute("PRAGMA quick_check(1)").fetchone()[0] if check else "ok"
            if found != "ok":
                raise DataError(f"{self.path} is damaged ({found}); put back a good copy.")
            return int(self._database.execute("SELECT accepted FROM total").fetchone()[0])

    def close(self) -> None:
        self._database.close()


def moved(folder: Path) -> str:
    remedy = "Stop it, put the folder back or give its new place as --data-dir, and start it again."
    return f"{folder} was moved, replaced or deleted while the service ran. {remedy}"


def copy_log(folder: Path, to: Path) -> None:
    """Copy the log as it is at one moment, by SQLite's online backup; it may be written meanwhile."""
    path = folder / FILE
    with _database_errors(path), closing(_connect(path)) as source, closing(sqlite3.connect(to / FILE)) as copy:
        source.backup(copy)


def check_log(folder: Path, at: int) -> int:
    """Samples accepted; DataError unless the log is intact and goes on from operation `at`."""
    with closing(LogReader(folder)) as reader:
        accepted = reader.accepted(check=True)
        reader.read_after(at, 1)
        return accepted


def accepted_in(folder: Path) -> int | None:
    """Samples that the service of this folder has accepted; None where there is no service."""
    if not (folder / FILE).is_file():
        return None
    with closing(LogReader(folder)) as reader:
        return reader.accepted()


class WriteRequest(NamedTuple):
    """What to write, with its idempotency key.

    Where `operations` is a function, it makes them, unless the request came before; `digest` is then that of the
    request.
    """

    operations: Sequence[Operation] | Callable[[], Sequence[Operation]]
    key: str | None = None
    digest: bytes = b""


class LogWriter(BatchWorker[WriteRequest, Acceptance]):
    """One thread that writes what all waiting requests ask for in one transaction.

    `check` raises a Refusal where there is no room for so many entries; `on_new_labels` is called with the labels that
    were met for the first time, once they are on the disk.
    """

    def __init__(
        self, log: SampleLog, *, check: Callable[[int], None], on_new_labels: Callable[[list[str]], None]
    ) -> None:
        super().__init__("log-writer", most=TRANSACTION)
        self.log, self._check, self._on_new_labels = log, check, on_new_labels
        self._droppable = self._dropped = 0

    def rehearse(self, after: int, updates: int) -> Future[Acceptance]:
        """Write a step of so many updates, but nothing if there is more behind operation `after`, or too much kept."""

        def step() -> list[Operation]:
            is_wanted = after == self.log.operations and self.log.kept < 2 * SAVE_SAMPLES
            return [Operation("rehearse", updates)] if is_wanted else []

        return self.submit(WriteRequest(step))

    def drop(self, upto: int) -> None:
        """Delete operations up to this one, which two checkpoints include."""
        self._droppable = upto
        self.submit(WriteRequest(()))

    def close(self) -> None:
        """Write what waits, and end."""
        super().close()
        self.log.close()

    def handle(self, requests: list[WriteRequest]) -> Sequence[Acceptance | Exception]:
        """No request is answered before all of them are on the disk."""
        if (upto := self._droppable) > self._dropped:
            self._dropped = upto
            self._drop(upto)
        known = self.log.labels
        with self.log.transaction():
            answers = [self._write(request) for request in requests]
        self._on_new_labels([label for label in self.log.labels if label not in known])
        return answers

    def _drop(self, upto: int) -> None:
        """A full disk may refuse even this; it is asked again with the next checkpoint."""
        try:
            with self.log.transaction():
                self.log.drop(upto)
        except Refusal as refusal:
            LOGGER.warning("Operations that are in checkpoints could not be dropped: %s", refusal)

    def _write(self, request: WriteRequest) -> Acceptance | Refusal:
        """A repeated request needs no room."""
        operations, key, digest = request
        try:
            if key is not None:
                if not callable(operations):
                    digest = digest_of(operations)
                if (repeated := self.log.find_repeated(key, digest)) is not None:
                    return repeated
            if callable(operations):
                operations = operations()
            if not operations:
                return Acceptance(0, 0, operation=self.log.operations)
            self._check(len(operations))
            return self.log.add(operations, key, digest)
        except Refusal as refusal:
            return refusal


def digest_of(operations: Sequence[Operation]) -> bytes:
    """SHA-256 of all that is in them, but for the numbers of samples."""
    digest = hashlib.sha256()
    for operation in operations:
        if operation.kind == "sample":
            name = operation.label.encode()
            digest.update(len(name).to_bytes(4, "big") + name + operation.pixels)
        else:
            digest.update(repr(operation._replace(pixels=b"")).encode() + operation.pixels)
    return digest.digest()


def _connect(path: Path, *, make: bool = False) -> sqlite3.Connection:
    if not make and not path.is_file():
        raise FolderError(
            f"{path.parent} has no {FILE}, so it is not the folder of a service; give the folder of --data-dir."
        )
    address = f"{path.absolute().as_uri()}?mode={'rwc' if make else 'rw'}"
    database = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")  # a commit returns when it would survive a power failure
    database.execute(f"PRAGMA journal_size_limit = {WAL}")
    return database


@contextmanager
def _database_errors(path: Path) -> Iterator[None]:
    """SQLite's errors, and those of values of another type than it writes, as this package's."""
    try:
        yield
    except sqlite3.Error as error:
        raise _known_error(error, path) from error
    except IblurryError:
        raise
    except MALFORMED as error:
        raise DataError(f"{path} is damaged ({reason(error)}); put back a copy of the whole folder.") from error


def _known_error(error: sqlite3.Error, path: Path) -> IblurryError:
    """This package's error for one of SQLite's, by its result code; only a disk without room is called full."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # without the bits of an extended code
    # What SQLite maps into memory gives an I/O error on a full disk.
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and disk_usage(path.parent).free < PAGE):
        return DiskFullError(f"The disk of {path.parent} is full: free some space. No accepted sample is lost.")
    kind, remedy = TROUBLE.get(code, (DataError, "Put back a copy of the whole folder, or choose another --data-dir."))
    return kind(f"{path} cannot be used ({error}). {remedy}")

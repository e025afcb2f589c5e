"""The log: accepted samples on the disk, in the order they will be learnt, until two checkpoints include them."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import disk_usage
from typing import NamedTuple

from iblurry.errors import BusyError, DataError, DiskFullError, FolderError, IblurryError
from iblurry.files import sync_folder
from iblurry.live.messages import Acceptance, IncomingSample
from iblurry.live.quota import KEYS, PAGE, WAL, Refusal
from iblurry.live.worker import BatchWorker

LOGGER = logging.getLogger(__name__)
FILE = "samples.sqlite"
FORMAT = 1
TRANSACTION = 64  # requests written in one transaction: a sync of the disk costs the same for one as for all
SCHEMA = """
CREATE TABLE IF NOT EXISTS sample (at INTEGER PRIMARY KEY, class INTEGER NOT NULL, pixels BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS class (row INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, digest BLOB NOT NULL,
                                    first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS total (accepted INTEGER NOT NULL);
INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM total);
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
    """A sample as it is learnt; `at` is its number from 1."""

    at: int
    label: str
    pixels: bytes


class SampleLog:
    """SQLite in WAL mode: one connection writes, others read meanwhile. What is committed survives a power failure.

    There may be `max_classes` labels; SQLite itself keeps the file below `max_bytes`.
    """

    def __init__(self, folder: Path, *, max_classes: int, max_bytes: int) -> None:
        self.path, self.max_classes = folder / FILE, max_classes
        with _database_errors(self.path):
            self._database = _connect(self.path)
            self._database.execute(f"PRAGMA max_page_count = {max_bytes // PAGE}")
            version: int = self._value("PRAGMA user_version")
            if version not in (0, FORMAT):
                raise DataError(f"{self.path} has format {version}, and this version of iblurry reads {FORMAT}.")
            if not version:  # nothing is written to an existing log: the disk may be full
                self._database.executescript(SCHEMA)
                self._database.execute(f"PRAGMA user_version = {FORMAT}")
            self.accepted = self._value("SELECT accepted FROM total")
            self.kept = self._value("SELECT count(*) FROM sample")
            self.labels = [str(label) for (label,) in self._database.execute("SELECT label FROM class ORDER BY row")]
        self._rows = {label: row for row, label in enumerate(self.labels)}
        sync_folder(folder)  # the file's name must survive a power failure, too

    def _value(self, query: str) -> int:
        value: int = self._database.execute(query).fetchone()[0]
        return value

    def begin_at(self, accepted: int, labels: Sequence[str]) -> None:
        """Of a new log: as if so many samples with these labels, in their order, were accepted and dropped before."""
        with self.transaction():
            self._add_classes(labels)
            self.accepted = accepted
            self._database.execute("UPDATE total SET accepted = ?", (accepted,))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is on the disk when it ends, or nothing of it; Refusal where SQLite fails."""
        before = self.accepted, len(self.labels), self.kept
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except BaseException as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self.accepted, labels, self.kept = before
            for label in self.labels[labels:]:
                del self._rows[label]
            del self.labels[labels:]
            if not isinstance(error, sqlite3.Error):
                raise
            known = _known_error(error, self.path)
            if isinstance(known, DiskFullError):
                raise Refusal(507, "disk_full", f"{known} Then send it again.", retry_after=10) from error
            raise Refusal(503, "log_failed", f"{known} Then send it again.", retry_after=1) from error

    def find_repeated(self, key: str, digest: bytes) -> Acceptance | None:
        """The answer to the same request before; Refusal where the key was used for other samples."""
        found = self._database.execute("SELECT digest, first, last FROM request WHERE key = ?", (key,)).fetchone()
        if found is None:
            return None
        if found[0] != digest:
            message = f"The key {key!r} was used for other samples; make a new key for every new request."
            raise Refusal(422, "key_reused", message)
        return Acceptance(found[1], found[2], repeated=True)

    def add(self, samples: Sequence[IncomingSample], key: str | None = None, digest: bytes = b"") -> Acceptance:
        """Inside `transaction`. A refusal leaves nothing behind."""
        self._add_classes([sample.label for sample in samples])
        first = self.accepted + 1
        rows = [(at, self._rows[label], pixels.tobytes()) for at, (label, pixels) in enumerate(samples, first)]
        self._database.executemany("INSERT INTO sample VALUES (?, ?, ?)", rows)
        self.accepted += len(rows)
        self.kept += len(rows)
        self._database.execute("UPDATE total SET accepted = ?", (self.accepted,))
        if key is not None:
            entry = (key, digest, first, self.accepted)
            self._database.execute("INSERT INTO request (key, digest, first, last) VALUES (?, ?, ?, ?)", entry)
            self._database.execute("DELETE FROM request WHERE number <= last_insert_rowid() - ?", (KEYS,))
        return Acceptance(first, self.accepted)

    def _add_classes(self, labels: Sequence[str]) -> None:
        new = [label for label in dict.fromkeys(labels) if label not in self._rows]
        if len(self.labels) + len(new) > self.max_classes:
            message = (
                f"The label {new[self.max_classes - len(self.labels)]!r} is one more than the {self.max_classes} "
                "classes there is room for; use a known label, or begin a new --data-dir with more --max-classes."
            )
            raise Refusal(409, "too_many_classes", message)
        for label in new:
            self._database.execute("INSERT INTO class VALUES (?, ?)", (len(self.labels), label))
            self._rows[label] = len(self.labels)
            self.labels.append(label)

    def drop(self, upto: int) -> None:
        """Inside `transaction`: delete samples up to this one, which two checkpoints include."""
        self.kept -= self._database.execute("DELETE FROM sample WHERE at <= ?", (upto,)).rowcount

    def close(self) -> None:
        self._database.close()


class LogReader:
    """What the learner process reads of the log."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with _database_errors(self.path):
            self._database = _connect(self.path)

    def read_after(self, at: int, limit: int) -> list[LogEntry]:
        """At most `limit` samples behind number `at`, in order and without a gap."""
        with _database_errors(self.path):
            self._database.execute("BEGIN")  # both queries see the same moment
            (accepted,) = self._database.execute("SELECT accepted FROM total").fetchone()
            found = self._database.execute(
                "SELECT at, label, pixels FROM sample JOIN class ON row = class WHERE at > ? ORDER BY at LIMIT ?",
                (at, limit),
            ).fetchall()
            self._database.execute("COMMIT")
        entries = [LogEntry(*row) for row in found]
        if accepted < at or (accepted > at and (not entries or entries[0].at != at + 1)):
            held = f"goes from sample {entries[0].at if entries else 'none'} to {accepted}"
            remedy = f"does not fit the checkpoint at sample {at}; put back a copy of the whole folder."
            raise DataError(f"{self.path} {held} and {remedy}")
        return entries

    def close(self) -> None:
        self._database.close()


def copy_log(folder: Path, to: Path) -> None:
    """Copy the log as it is at one moment, by SQLite's online backup; it may be written meanwhile."""
    path = folder / FILE
    if not path.is_file():  # SQLite would make one
        raise FolderError(f"{folder} has no {FILE}, so it is no service's folder; give that of --data-dir.")
    with _database_errors(path), closing(_connect(path)) as source, closing(sqlite3.connect(to / FILE)) as copy:
        source.backup(copy)


def check_log(folder: Path, at: int) -> int:
    """Samples accepted; DataError unless the log is intact and goes on from sample `at`."""
    reader = LogReader(folder)
    with closing(reader), _database_errors(reader.path):
        (found,) = reader._database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise DataError(f"{reader.path} is damaged ({found}); put back a good copy.")
        reader.read_after(at, 1)
        (accepted,) = reader._database.execute("SELECT accepted FROM total").fetchone()
    return int(accepted)


class WriteRequest(NamedTuple):
    """Samples to write, with their idempotency key."""

    samples: Sequence[IncomingSample]
    key: str | None


class LogWriter(BatchWorker[WriteRequest | int, Acceptance | None]):
    """One thread that writes the samples of all waiting requests in one transaction; a number asks for a drop.

    `check` raises a Refusal where there is no room for so many samples; `on_new_labels` is called with the labels that
    were met for the first time, once they are on the disk.
    """

    def __init__(
        self, log: SampleLog, *, check: Callable[[int], None], on_new_labels: Callable[[list[str]], None]
    ) -> None:
        super().__init__("log-writer", most=TRANSACTION)
        self.log, self._check, self._on_new_labels = log, check, on_new_labels

    def close(self) -> None:
        """Write what waits, and end."""
        super().close()
        self.log.close()

    def handle(self, requests: list[WriteRequest | int]) -> Sequence[Acceptance | Exception | None]:
        """No request is answered before all of them are on the disk."""
        if drops := [request for request in requests if isinstance(request, int)]:
            self._drop(max(drops))
        known = len(self.log.labels)
        with self.log.transaction():
            answers = [None if isinstance(request, int) else self._add(*request) for request in requests]
        self._on_new_labels(self.log.labels[known:])
        return answers

    def _drop(self, upto: int) -> None:
        """A full disk may refuse even this; it is asked again with the next checkpoint."""
        try:
            with self.log.transaction():
                self.log.drop(upto)
        except Refusal as refusal:
            LOGGER.warning("Samples that are in checkpoints could not be dropped: %s", refusal)

    def _add(self, samples: Sequence[IncomingSample], key: str | None) -> Acceptance | Refusal:
        """A repeated request needs no room."""
        digest = b"" if key is None else digest_of(samples)
        try:
            if key is not None and (repeated := self.log.find_repeated(key, digest)) is not None:
                return repeated
            self._check(len(samples))
            return self.log.add(samples, key, digest)
        except Refusal as refusal:
            return refusal


def digest_of(samples: Sequence[IncomingSample]) -> bytes:
    """SHA-256 of labels and pixels."""
    digest = hashlib.sha256()
    for label, pixels in samples:
        name = label.encode()
        digest.update(len(name).to_bytes(4, "big") + name + pixels.tobytes())
    return digest.digest()


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")  # a commit returns when it would survive a power failure
    database.execute(f"PRAGMA journal_size_limit = {WAL}")
    return database


@contextmanager
def _database_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as this package's."""
    try:
        yield
    except sqlite3.Error as error:
        raise _known_error(error, path) from error


def _known_error(error: sqlite3.Error, path: Path) -> IblurryError:
    """This package's error for one of SQLite's, by its result code; only a disk without room is called full."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # without the bits of an extended code
    # What SQLite maps into memory gives an I/O error on a full disk.
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and disk_usage(path.parent).free < PAGE):
        return DiskFullError(
            f"There is no room left on the disk of {path.parent}: make some. Nothing accepted is lost."
        )
    kind, remedy = TROUBLE.get(code, (DataError, "Put back a copy of the whole folder, or choose another --data-dir."))
    return kind(f"{path} cannot be used ({error}). {remedy}")

"""The log: accepted samples on the disk, in the order they will be learnt, until a checkpoint has them."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from iblurry.errors import DataError, DiskFullError
from iblurry.files import sync_folder
from iblurry.live.exchange import Labelled, Receipt
from iblurry.live.refusal import Refusal

FILE = "samples.sqlite"
FORMAT = 1
KEYS = 100_000  # of the latest requests that a repeated one is compared with
PAGE = 4096
WAL = 16 * 2**20  # bytes that the write-ahead log is cut back to
CELL, USABLE = 64, 4000  # bytes beside a sample's pixels, and of a page for samples; both counted generously
PER_KEY, PER_CLASS = 400, 2048  # bytes
SCHEMA = """
CREATE TABLE IF NOT EXISTS sample (at INTEGER PRIMARY KEY, class INTEGER NOT NULL, pixels BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS class (row INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, digest BLOB NOT NULL,
                                    first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS total (accepted INTEGER NOT NULL);
INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM total);
"""


class Entry(NamedTuple):
    """A sample as it is learnt."""

    at: int
    label: str
    pixels: bytes


class Log:
    """SQLite in WAL mode: one connection writes, others read meanwhile. What was committed survives a power failure."""

    def __init__(self, folder: Path, *, max_classes: int, most_bytes: int) -> None:
        self.path, self.max_classes = folder / FILE, max_classes
        with _said(self.path):
            self._database = _opened(self.path)
            self._database.execute(f"PRAGMA max_page_count = {most_bytes // PAGE}")
            if self._version() not in (0, FORMAT):
                raise DataError(
                    f"{self.path} has format {self._version()}, and this version of iblurry reads {FORMAT}."
                )
            if not self._version():  # nothing is written where nothing is new: the disk may be full
                self._database.executescript(SCHEMA)
                self._database.execute(f"PRAGMA user_version = {FORMAT}")
            self.accepted: int = self._database.execute("SELECT accepted FROM total").fetchone()[0]
            self.labels: list[str] = [
                label for (label,) in self._database.execute("SELECT label FROM class ORDER BY row")
            ]
            self.kept: int = self._database.execute("SELECT count(*) FROM sample").fetchone()[0]
        self._rows = {label: row for row, label in enumerate(self.labels)}
        sync_folder(folder)  # a file is safe only when its name is

    def _version(self) -> int:
        version: int = self._database.execute("PRAGMA user_version").fetchone()[0]
        return version

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Everything inside is on the disk when it ends, or nothing of it; Refusal where the disk is full."""
        before = self.accepted, len(self.labels), self.kept
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except BaseException as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self.accepted, known, self.kept = before
            for label in self.labels[known:]:
                del self._rows[label]
            del self.labels[known:]
            if isinstance(error, sqlite3.Error):
                raise _refusal(error, self.path) from error
            raise

    def repeated(self, key: str, digest: bytes) -> Receipt | None:
        """What was answered to the same request before; Refusal where the key was used for another one."""
        found = self._database.execute("SELECT digest, first, last FROM request WHERE key = ?", (key,)).fetchone()
        if found is None:
            return None
        if found[0] != digest:
            raise Refusal(
                422, "key_reused", f"The key {key!r} was used for other samples; make a new key for every new request."
            )
        return Receipt(found[1], found[2], repeated=True)

    def add(self, samples: Sequence[Labelled], key: str | None = None, digest: bytes = b"") -> Receipt:
        """Inside `writing`. A refusal leaves nothing behind."""
        self._meet([sample.label for sample in samples])
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
        return Receipt(first, self.accepted)

    def _meet(self, labels: Sequence[str]) -> None:
        new = [label for label in dict.fromkeys(labels) if label not in self._rows]
        if len(self.labels) + len(new) > self.max_classes:
            raise Refusal(
                409,
                "too_many_classes",
                f"The label {new[self.max_classes - len(self.labels)]!r} is one more than the {self.max_classes} "
                "classes there is room for; use a known label, or begin a new --data-dir with more --max-classes.",
            )
        for label in new:
            self._database.execute("INSERT INTO class VALUES (?, ?)", (len(self.labels), label))
            self._rows[label] = len(self.labels)
            self.labels.append(label)

    def drop(self, upto: int) -> None:
        """Inside `writing`: samples up to this one are in a checkpoint, and in the one before it."""
        self.kept -= self._database.execute("DELETE FROM sample WHERE at <= ?", (upto,)).rowcount

    def close(self) -> None:
        self._database.close()


class Reader:
    """What another process reads of the log."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with _said(self.path):
            self._database = _opened(self.path)

    def after(self, at: int, most: int) -> list[Entry]:
        """The next samples, in order and without a gap."""
        with _said(self.path):
            self._database.execute("BEGIN")  # both look at the same moment
            (accepted,) = self._database.execute("SELECT accepted FROM total").fetchone()
            found = self._database.execute(
                "SELECT at, label, pixels FROM sample JOIN class ON row = class WHERE at > ? ORDER BY at LIMIT ?",
                (at, most),
            ).fetchall()
            self._database.execute("COMMIT")
        entries = [Entry(*one) for one in found]
        if accepted < at or (accepted > at and (not entries or entries[0].at != at + 1)):
            raise DataError(
                f"{self.path} goes from sample {entries[0].at if entries else 'none'} to {accepted} and does not fit "
                f"the checkpoint at sample {at}; put back a copy of the whole folder."
            )
        return entries

    def close(self) -> None:
        self._database.close()


def most_bytes(sample: int, *, kept: int, classes: int) -> int:
    """What the log may grow to, for so many samples of so many bytes each."""
    cell = sample + CELL
    pages = (
        1 / (USABLE // cell) if cell <= USABLE else 1 + math.ceil(cell / USABLE)
    )  # of one: it shares, or has several
    return math.ceil(1.1 * kept * pages * PAGE) + KEYS * PER_KEY + classes * PER_CLASS + 2**20


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")  # a commit returns when it would survive a power failure
    database.execute(f"PRAGMA journal_size_limit = {WAL}")
    return database


def digest_of(samples: Sequence[Labelled]) -> bytes:
    """Of what a request asks to learn: the same only for the same samples."""
    digest = hashlib.sha256()
    for label, pixels in samples:
        name = label.encode()
        digest.update(len(name).to_bytes(4, "big") + name + pixels.tobytes())
    return digest.digest()


@contextmanager
def _said(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if _is_full(error):
            raise DiskFullError(
                f"There is no room left on the disk of {path.parent}; make some and start the service again. Nothing "
                "that was accepted is lost."
            ) from error
        raise DataError(
            f"{path} cannot be used: {error}. Put back a good copy, or choose another --data-dir."
        ) from error


def _is_full(error: sqlite3.Error) -> bool:
    return "full" in str(error) or "disk I/O" in str(error)


def _refusal(error: sqlite3.Error, path: Path) -> Refusal:
    if _is_full(error):
        return Refusal(
            507,
            "disk_full",
            f"There is no room left on the disk of {path.parent}; make room and send it again.",
            retry_after=10,
        )
    return Refusal(503, "log_failed", f"The samples could not be written ({error}); send them again.", retry_after=1)

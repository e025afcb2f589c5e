"""The log of accepted samples: order, keys, classes, compaction, full disks and damage."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from iblurry.errors import BusyError, DataError, DiskFullError, FolderError
from iblurry.live import log as logs
from iblurry.live.log import LogEntry, LogReader, LogWriter, SampleLog, WriteRequest, digest_of
from iblurry.live.messages import Acceptance, LearnerReport, Operation
from iblurry.live.quota import KEYS, PER_KEY, Limits, Refusal, max_log_bytes
from iblurry.live.service import MAX_RETRY, MIN_RETRY, Service
from iblurry.live.settings import Settings

ROOMY = 64 * 2**20


def sample(label, value, size=4):
    return Operation("sample", label=label, pixels=bytes([value] * size))


def samples(*labels):
    return [sample(label, i) for i, label in enumerate(labels)]


@pytest.fixture
def log(tmp_path):
    made = SampleLog(tmp_path, max_classes=3, max_bytes=ROOMY)
    yield made
    made.close()


def add(log, *labels, key=None):
    some = samples(*labels)
    with log.transaction():
        return log.add(some, key, digest_of(some))


def test_samples_come_back_in_order(log, tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.live.log.time.time", lambda: 1234.5678)
    assert add(log, "cat", "dog") == Acceptance(1, 2, operation=2)
    assert add(log, "cat") == Acceptance(3, 3, operation=3)
    found = LogReader(tmp_path).read_after(0, 10)
    assert found == [
        LogEntry(1, Operation("sample", 1, "cat", pixels=bytes(4)), 1234.568),
        LogEntry(2, Operation("sample", 2, "dog", pixels=bytes([1] * 4)), 1234.568),
        LogEntry(3, Operation("sample", 3, "cat", pixels=bytes(4)), 1234.568),
    ]
    assert [entry.at for entry in LogReader(tmp_path).read_after(1, 1)] == [2]
    assert LogReader(tmp_path).read_after(3, 10) == []
    assert (log.accepted, log.labels, log.kept) == (3, ["cat", "dog"], 3)


def test_a_key_counts_once_and_for_one_request(log):
    add(log, "cat", key="one")
    assert log.find_repeated("two", b"") is None
    with pytest.raises(Refusal, match="'one'") as refused:
        log.find_repeated("one", digest_of(samples("dog")))
    assert (refused.value.status, refused.value.code) == (422, "key_reused")
    assert digest_of([sample("a", 1)]) != digest_of([sample("a", 2)])
    assert digest_of([sample("ab", 1)]) != digest_of([sample("a", 1)])


def test_old_keys_are_forgotten(log, monkeypatch):
    monkeypatch.setattr(logs, "KEYS", 2)
    for number in range(4):
        add(log, "cat", key=f"key {number}")
    digest = digest_of(samples("cat"))
    assert [log.find_repeated(f"key {number}", digest) is None for number in range(4)] == [True, True, False, False]


def test_one_class_too_many_leaves_nothing_behind(log, tmp_path):
    add(log, "a", "b")
    with pytest.raises(Refusal, match="'d': there are 3 classes") as refused:
        add(log, "c", "d", "a")
    assert refused.value.status == 409
    assert (log.accepted, log.labels) == (2, ["a", "b"])
    assert add(log, "c") == Acceptance(3, 3, operation=3)
    assert [entry.operation.label for entry in LogReader(tmp_path).read_after(0, 10)] == ["a", "b", "c"]


def test_a_transaction_is_whole_or_not_there(log, tmp_path):
    add(log, "a")

    def breaking():
        with log.transaction():
            log.add(samples("b", "c"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        breaking()
    assert (log.accepted, log.labels, log.kept) == (1, ["a"], 1)
    assert add(log, "c", "b") == Acceptance(2, 3, operation=3)
    assert [entry.operation.label for entry in LogReader(tmp_path).read_after(0, 10)] == ["a", "c", "b"]


def test_dropped_samples_are_a_gap_for_who_needs_them(log, tmp_path):
    add(log, "a", "b", "a", "b")
    with log.transaction():
        log.drop(3)
    reader = LogReader(tmp_path)
    assert [entry.at for entry in reader.read_after(3, 10)] == [4]
    assert log.kept == 1
    for at in (1, 9):
        with pytest.raises(DataError, match=f"operation {at};"):
            reader.read_after(at, 10)
    with log.transaction():
        log.drop(4)
    assert reader.read_after(4, 10) == []
    with pytest.raises(DataError, match="operation 3;"):
        reader.read_after(3, 10)


def test_the_file_is_bounded_and_reuses_its_room(tmp_path):
    most = max_log_bytes(1024, kept=300, classes=3) - KEYS * PER_KEY
    log = SampleLog(tmp_path, max_classes=3, max_bytes=most)
    large = [sample("a", 7, 1024)] * 100

    def fill():
        with log.transaction():
            log.add(large)

    for _ in range(3):
        fill()
    size = log.path.stat().st_size
    for round_ in range(1, 10):  # three hundred kept at any time
        with log.transaction():
            log.drop(100 * round_)
        fill()
    assert log.path.stat().st_size <= max(size, most)
    with pytest.raises(Refusal, match=str(tmp_path)) as refused:
        [fill() for _ in range(50)]
    assert (refused.value.status, refused.value.code) == (507, "disk_full")
    kept = log.kept
    assert len(LogReader(tmp_path).read_after(900, 10_000)) == kept  # nothing of what was accepted is lost
    with log.transaction():
        log.drop(1000)
    fill()
    log.close()


def test_a_damaged_file_is_said(tmp_path):
    (tmp_path / logs.FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(DataError, match=r"samples\.sqlite"):
        SampleLog(tmp_path, max_classes=3, max_bytes=ROOMY)


def failing(code):
    """A function that raises SQLite's error of this code, in the words that name a full disk most."""

    def fail(*_, **__):
        error = sqlite3.OperationalError("disk I/O error or full")
        error.sqlite_errorcode = code
        raise error

    return fail


@pytest.mark.parametrize(
    "code, kind, refused_with",
    [
        (sqlite3.SQLITE_FULL, DiskFullError, "disk_full"),
        (sqlite3.SQLITE_BUSY, BusyError, "log_failed"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, BusyError, "log_failed"),
        (sqlite3.SQLITE_CORRUPT, DataError, "log_failed"),
        (sqlite3.SQLITE_READONLY, FolderError, "log_failed"),
        (sqlite3.SQLITE_IOERR_WRITE, DataError, "log_failed"),
    ],
)
def test_only_a_full_disk_is_called_full(code, kind, refused_with, log, monkeypatch, tmp_path):
    monkeypatch.setattr(logs, "_connect", failing(code))
    with pytest.raises(kind, match=str(tmp_path)) as raised:
        LogReader(tmp_path)
    assert type(raised.value) is kind
    monkeypatch.setattr(log, "add", failing(code))
    with pytest.raises(Refusal, match=str(tmp_path)) as refused:
        add(log, "cat")
    assert refused.value.code == refused_with


def test_an_io_error_on_a_disk_without_room_is_a_full_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(logs, "_connect", failing(sqlite3.SQLITE_IOERR_SHMSIZE))
    monkeypatch.setattr(logs, "disk_usage", lambda folder: SimpleNamespace(free=100))
    with pytest.raises(DiskFullError):
        LogReader(tmp_path)


def test_another_format_is_said(log, tmp_path):
    database = sqlite3.connect(tmp_path / logs.FILE)
    database.execute("PRAGMA user_version = 7")
    database.close()
    with pytest.raises(DataError, match="has format 7"):
        SampleLog(tmp_path, max_classes=3, max_bytes=ROOMY)


# ---------------------------------------------------------------------------------------------------- the writer


@pytest.fixture
def writer(tmp_path):
    met, most = [], []
    log = SampleLog(tmp_path, max_classes=3, max_bytes=ROOMY)
    made = LogWriter(log, check=lambda count: _check(count, most), on_new_labels=met.extend)
    made.met, made.most = met, most
    made.start()
    yield made
    made.close()


def _check(count, most):
    if most and count > most[0]:
        raise Refusal(429, "queue_full", "no")


def test_requests_of_many_threads_are_numbered_without_a_gap(writer, tmp_path):
    receipts = []

    def send(number):
        for i in range(20):
            receipts.append(writer.submit(WriteRequest(samples("a", "b"), f"{number}-{i}")).result(30))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(receipt.first for receipt in receipts) == list(range(1, 161, 2))
    assert len(LogReader(tmp_path).read_after(0, 1000)) == 160
    assert writer.met == ["a", "b"]


def test_a_refused_request_does_not_stop_its_neighbours(writer):
    futures = [writer.submit(WriteRequest(samples(*labels))) for labels in (["a"], ["a", "b", "c", "d"], ["b"])]
    assert futures[0].result(30) == Acceptance(1, 1, operation=1)
    with pytest.raises(Refusal, match="'d'"):
        futures[1].result(30)
    assert futures[2].result(30) == Acceptance(2, 2, operation=2)
    assert writer.met == ["a", "b"]


def test_a_repeated_request_needs_no_room(writer):
    first = writer.submit(WriteRequest(samples("a", "b"), "key")).result(30)
    writer.most.append(1)
    assert writer.submit(WriteRequest(samples("a", "b"), "key")).result(30) == first._replace(repeated=True)
    with pytest.raises(Refusal, match="no"):
        writer.submit(WriteRequest(samples("a", "b"), "other")).result(30)


def test_a_failed_transaction_is_told_to_all_who_wait(writer, monkeypatch, tmp_path):
    writer.submit(WriteRequest(samples("a"))).result(30)

    monkeypatch.setattr(writer.log, "add", failing(sqlite3.SQLITE_FULL))
    with pytest.raises(Refusal, match=str(tmp_path)) as refused:
        writer.submit(WriteRequest(samples("a"))).result(30)
    assert refused.value.code == "disk_full"
    monkeypatch.undo()
    assert writer.submit(WriteRequest(samples("a"))).result(30) == Acceptance(2, 2, operation=2)


def test_who_went_away_is_not_waited_for(writer, tmp_path):
    gone = writer.submit(WriteRequest(samples("a")))
    gone.cancel()  # it may have been too late
    assert writer.submit(WriteRequest(samples("b"))).result(30).last == len(LogReader(tmp_path).read_after(0, 10))
    assert writer.submit(WriteRequest(samples("c"))).result(30)


def test_dropping_comes_after_what_waits(writer, tmp_path):
    writer.submit(WriteRequest(samples("a", "b", "a"))).result(30)
    writer.drop(2)
    assert writer.submit(WriteRequest(samples("b"))).result(30) == Acceptance(4, 4, operation=4)
    writer.submit(WriteRequest(samples("b"))).result(30)
    assert [entry.at for entry in LogReader(tmp_path).read_after(2, 10)] == [3, 4, 5]
    assert writer.log.kept == 3


# the quota


@pytest.mark.parametrize(
    "rate, stalled, seconds",
    [
        (10.0, None, 0.5),
        (0.01, None, MAX_RETRY),
        (0.0, None, MIN_RETRY),  # it was just started
        (10.0, "The loss is no number.", MAX_RETRY),
    ],
)
def test_a_full_queue_says_when_there_will_be_room(rate, stalled, seconds):
    """For 10 samples where 995 wait and 1,000 may."""
    service = Service(Path(), Settings(image=(1, 8, 8)), Limits(queue=1000))
    service.log = SimpleNamespace(accepted=1000)
    service.report, service.stalled = LearnerReport(learnt=5, samples_per_second=rate), stalled
    with pytest.raises(Refusal) as refused:
        service.check_room(10)
    assert (refused.value.status, refused.value.code) == (429, "queue_full")
    assert refused.value.retry_after == seconds

"""The journal: its lines byte for byte, damage, full disks, and answers that come late."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from iblurry.errors import DataError, DiskFullError, DivergedError, InputError
from iblurry.experiment import run_loop
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.evaluator import Evaluator, PendingAnswer
from iblurry.experiment.journal import (
    Held,
    Journal,
    NewClass,
    Pending,
    Query,
    Record,
    Spent,
    Start,
    TaskEnd,
    decode,
    encode,
    read,
)
from iblurry.launch.launch import run
from iblurry.learner.learner import Learner
from iblurry.storage import checkpoint
from tests.experiment.small import At, Recorder, checkpoints, kept, small, stop

RECORDS: list[Record] = [
    Start(experiment="5f3a", samples=20, ends=(10, 20), query_every=5),
    NewClass(at=1, label="ship"),
    NewClass(at=2, label='naïve "cat"\n\udcff'),
    Query(at=5, task=0, correct=(3, 0), total=(4, 4), rate=0.0003, updates=5),
    TaskEnd(at=10, task=0, correct=(4, 1), total=(4, 4), rate=1e-05, updates=10),
    Held(at=10, rows=(3, 5)),
    Spent(
        at=10,
        updates=10,
        forward={"training": 160, "queries": 9},
        backward={"training": 160, "queries": 0},
        flops={"training": 4800, "queries": 90},
        bytes={"memory": 640},
    ),
]


def write(path: Path, records: list[Record]) -> Path:
    with Journal(path) as journal:
        for record in records:
            journal.append(record)
    return path


def test_the_lines_are_exactly_these_bytes(tmp_path: Path) -> None:
    data = write(tmp_path / "journal.jsonl", [*RECORDS[:2], *RECORDS[3:]]).read_bytes()
    assert data == (
        b'{"kind":"start","experiment":"5f3a","samples":20,"ends":[10,20],"query_every":5}\n'
        b'{"kind":"class","at":1,"label":"ship"}\n'
        b'{"kind":"query","at":5,"task":0,"correct":[3,0],"total":[4,4],"rate":0.0003,"updates":5}\n'
        b'{"kind":"task","at":10,"task":0,"correct":[4,1],"total":[4,4],"rate":1e-05,"updates":10}\n'
        b'{"kind":"held","at":10,"rows":[3,5]}\n'
        b'{"kind":"spent","at":10,"updates":10,"forward":{"training":160,"queries":9},'
        b'"backward":{"training":160,"queries":0},"flops":{"training":4800,"queries":90},"bytes":{"memory":640}}\n'
    )


def test_what_was_spent_is_counted_in_whole_numbers_by_name() -> None:
    with pytest.raises(InputError, match="forward"):
        Spent(at=1, updates=0, forward={"training": 1.5}, backward={}, flops={}, bytes={})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="bytes"):
        Spent(at=1, updates=0, forward={}, backward={}, flops={}, bytes=(1,))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rows is"):
        Held(at=1, rows=(-1,))


@given(rate=st.floats(min_value=0, max_value=1e300), label=st.text())
def test_floats_and_labels_survive_bit_for_bit(rate: float, label: str) -> None:
    query = Query(at=1, task=0, correct=(1,), total=(1,), rate=rate, updates=0)
    for record in (query, NewClass(at=1, label=label)):
        line = encode(record)
        assert line.count(b"\n") == 1
        assert decode(line[:-1]) == record


def test_reopening_appends(tmp_path: Path) -> None:
    path = write(tmp_path / "journal.jsonl", RECORDS[:2])
    assert read(write(path, RECORDS[2:])) == RECORDS


def test_a_line_is_in_the_file_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        for count, record in enumerate(RECORDS, start=1):
            journal.append(record)
            assert read(journal.path) == RECORDS[:count]


def test_truncate_goes_back_and_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        for record in RECORDS:
            journal.append(record)
        whole = path.read_bytes()
        journal.truncate(len(b"".join(map(encode, RECORDS[:3]))))
        assert read(path) == RECORDS[:3]
        for record in RECORDS[3:]:
            journal.append(record)
    assert path.read_bytes() == whole


def test_a_torn_last_line_is_read_only_when_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "journal.jsonl", RECORDS)
    whole = path.read_bytes()
    last = len(encode(RECORDS[-1]))
    for cut in range(1, last):
        path.write_bytes(whole[:-cut])
        assert read(path, partial=True) == RECORDS[:-1]
        with pytest.raises(DataError, match=f"line {len(RECORDS)}"):
            read(path)


def test_every_damaged_byte_is_noticed_or_is_another_valid_value(tmp_path: Path) -> None:
    """A journal has no digest, but no damage may be read as what was written, and what cannot be read is named."""
    path = write(tmp_path / "journal.jsonl", RECORDS)
    whole = path.read_bytes()
    complaints = 0
    for offset in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[offset] ^= 0x10
        path.write_bytes(flipped)
        number = whole[:offset].count(b"\n") + 1
        try:
            outcome: object = read(path)
        except DataError as error:
            outcome = str(error).split(" is damaged")[0]
            complaints += 1
        assert outcome == f"{path}, line {number}" or (isinstance(outcome, list) and outcome != RECORDS)
    assert complaints


@pytest.mark.parametrize(
    "line, why",
    [
        (b"", "line 2 is damaged"),
        (b"nonsense", "line 2 is damaged"),
        (b"\xff\xfe", "line 2 is damaged"),
        (b"[" * 100_000, "line 2 is damaged"),
        (b"[1]", "not an object"),
        (b'{"kind":"quary"}', "no kind 'quary', only start, class, query, task"),
        (b'{"kind":["class"]}', "no kind"),
        (b'{"kind":"class","at":1}', "has the keys at, label, not at"),
        (b'{"kind":"class","at":1,"label":"a","time":3}', "has the keys at, label"),
        (b'{"kind":"class","label":"a","at":1}', "has the keys"),
        (b'{"kind":"class","at":1,"at":1,"label":"a"}', "'at' is given twice"),
        (b'{"kind":"class", "at":1,"label":"a"}', "not written the way"),
        (b'{"kind":"class","at":0,"label":"a"}', "at is 0"),
        (b'{"kind":"class","at":true,"label":"a"}', "at is True"),
        (b'{"kind":"class","at":1,"label":7}', "label is 7"),
        (b'{"kind":"query","at":5,"task":0,"correct":[5],"total":[4],"rate":0.1,"updates":5}', "does not fit total"),
        (b'{"kind":"query","at":5,"task":0,"correct":[1,1],"total":[4],"rate":0.1,"updates":5}', "does not fit total"),
        (b'{"kind":"query","at":5,"task":0,"correct":[0],"total":[0],"rate":0.1,"updates":5}', "no test image"),
        (b'{"kind":"query","at":5,"task":0,"correct":[1],"total":[4],"rate":NaN,"updates":5}', "finite"),
        (b'{"kind":"query","at":5,"task":0,"correct":[1],"total":[4],"rate":1,"updates":5}', "finite float"),
        (b'{"kind":"query","at":5,"task":0,"correct":[1],"total":[4],"rate":1E-1,"updates":5}', "not written the way"),
        (b'{"kind":"query","at":5,"task":0,"correct":[[1]],"total":[4],"rate":0.1,"updates":5}', "whole numbers"),
        (encode(RECORDS[0])[:-1], "one start, on its first line"),
    ],
)
def test_a_line_that_no_journal_writes_is_refused_with_its_number(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(encode(RECORDS[0]) + line + b"\n" + encode(RECORDS[1]))
    with pytest.raises(DataError, match="line 2 is damaged") as caught:
        read(path)
    assert why in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_journal_starts_with_start(tmp_path: Path) -> None:
    path = write(tmp_path / "journal.jsonl", RECORDS[1:])
    with pytest.raises(DataError, match="line 1"):
        read(path)


def test_start_needs_growing_ends_up_to_the_last_sample() -> None:
    for ends in ((), (10, 10, 20), (20, 10), (10, 15)):
        with pytest.raises(InputError, match="task ends must grow"):
            Start(experiment="x", samples=20, ends=ends, query_every=5)


def test_no_journal_is_said_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no journal at"):
        read(tmp_path / "journal.jsonl")
    Journal(tmp_path / "journal.jsonl").close()
    assert read(tmp_path / "journal.jsonl") == []


def test_a_quota_or_a_full_disk_at_sync_stops_too_and_other_errors_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        for code, kind in ((errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EIO, OSError)):

            def fail(*args: object, code: int = code) -> int:
                raise OSError(code, os.strerror(code))

            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fail)
                with pytest.raises(kind):
                    journal.sync()
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", fail)
                with pytest.raises(kind):
                    journal.append(RECORDS[0])
    assert read(tmp_path / "journal.jsonl") == []


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_some = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write_some(file, data[:7]))
    path = write(tmp_path / "journal.jsonl", RECORDS)
    monkeypatch.undo()
    assert read(path) == RECORDS


NEVER = 10**9


class Late(PendingAnswer):
    """Is not there before it was asked for so often; who cannot wait for that waits here."""

    def __init__(self, values, totals, *, at, lr, patience=NEVER):
        super().__init__(at=at, lr=lr)
        self.fill(values, totals)
        self.patience = patience

    def is_ready(self):
        self.patience -= 1
        return self.patience < 0


def asked(kind, at, answer):
    return Pending(lambda: kind(at, 0, *answer.counts(), 0.1, at), answer.is_ready)


def late(right, patience, finite=True):
    return Late(torch.tensor([right, int(finite)]), (10,), at=7, lr=0.1, patience=patience)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.jsonl") as journal:
        yield journal


def lines(journal):
    return [(line["kind"], line["at"]) for line in map(json.loads, journal.path.read_bytes().splitlines())]


def test_nothing_overtakes_an_answer(journal):
    journal.put(NewClass(1, "ant"))
    journal.put(asked(Query, 7, late(3, patience=3)))
    journal.put(NewClass(8, "bee"))
    journal.put(asked(TaskEnd, 8, late(4, patience=0)))
    assert lines(journal) == [("class", 1)]
    assert journal.accuracy is None
    journal.write()  # the fourth time it is asked for
    assert lines(journal) == [("class", 1), ("query", 7), ("class", 8), ("task", 8)]
    assert journal.accuracy == 0.4


def test_who_flushes_waits_for_all(journal):
    journal.put(asked(Query, 7, late(3, patience=NEVER)))
    journal.put(asked(Query, 14, late(5, patience=NEVER)))
    journal.put(NewClass(15, "bee"))
    journal.write()
    assert lines(journal) == []
    journal.flush()
    assert lines(journal) == [("query", 7), ("query", 14), ("class", 15)]
    assert journal.accuracy == 0.5


def test_a_broken_answer_is_raised_in_its_turn(journal):
    journal.put(asked(Query, 6, late(3, patience=NEVER)))
    journal.put(asked(Query, 7, late(0, patience=NEVER, finite=False)))
    journal.put(NewClass(8, "bee"))
    with pytest.raises(DivergedError, match=r"sample 7.* 0\.1"):
        journal.flush()
    assert lines(journal) == [("query", 6)]


class Slow:
    """A clock of which a whole run takes less than a second."""

    now, tick = 0.0, 1e-5

    def monotonic(self):
        self.now += self.tick
        return self.now


@pytest.fixture
def remote(monkeypatch):
    """Runs as on a device that goes its own way; `remote(patience)` says how late its answers are. Gives the clock."""

    def remote(patience):
        ask, clock = Evaluator.ask, Slow()

        def ask_late(self, learner):
            answer = ask(self, learner)
            return Late(
                torch.tensor(answer._values.tolist()), answer.totals, at=answer.at, lr=answer.lr, patience=patience
            )

        monkeypatch.setattr(Evaluator, "ask", ask_late)
        monkeypatch.setattr(run_loop.RunLoop, "has_remote_tensors", True)
        monkeypatch.setattr(run_loop, "PROGRESS_EVERY", 1)
        monkeypatch.setattr(run_loop, "time", clock)
        return clock

    return remote


class Reading(Recorder):
    """Reads the journal at every sample."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.journals, self.accuracies = folder, [], []

    def on_progress(self, position, accuracy, lr):
        super().on_progress(position, accuracy, lr)
        self.journals.append((self.folder / "journal.jsonl").read_bytes())
        self.accuracies.append(accuracy)


@pytest.mark.quick("2-er", "10-clib", "1000000000-gdumb")
@pytest.mark.parametrize("name", ["er", "clib", "gdumb"])
@pytest.mark.parametrize("patience", [2, 10, NEVER])
def test_the_same_bytes_however_late_the_answers(name, patience, remote, tmp_path, whole):
    remote(patience)
    callback = Reading(tmp_path / small(name).name)
    done = run(small(name), tmp_path, callback=callback)
    assert kept(done.folder) == whole[name]
    assert all(whole[name][0].startswith(journal) for journal in callback.journals)  # never ahead, never out of order
    first = whole[name][0].index(b'{"kind":"query"')
    if patience == NEVER:
        assert all(len(journal) <= first for journal in callback.journals[:-1])
    else:
        assert len(callback.journals[6 + patience]) > first  # of the seventh sample
    assert callback.accuracies[5:7] == [None, None]
    assert callback.accuracies[-1] == done.metrics.a_last  # the last word is complete


def test_a_checkpoint_waits_for_all_answers(remote, tmp_path, monkeypatch, whole):
    remote(NEVER)
    seen, save = [], checkpoint.save

    def saved(folder, state, *, at, trusted):
        seen.append((at, max(record.at for record in read(folder / "journal.jsonl")[1:])))
        assert state["journal"]["bytes"] == len((folder / "journal.jsonl").read_bytes())
        save(folder, state, at=at, trusted=trusted)

    monkeypatch.setattr(checkpoint, "save", saved)
    done = run(small(), tmp_path, checkpoints=CheckpointPolicy(samples=30))
    assert seen == [(30, 28), (60, 56), (80, 80)]
    assert kept(done.folder) == whole["er"]


def test_a_polite_stop_waits_for_them_too(remote, tmp_path, whole):
    remote(NEVER)
    stopped = run(small(), tmp_path, callback=At(33, stop))
    assert stopped.metrics.samples == 28
    assert [path.stem[-2:] for path in checkpoints(stopped.folder)] == ["33"]
    assert kept(run(small(), tmp_path).folder) == whole["er"]


def test_what_is_broken_is_named_by_the_sample_it_was_asked_at(remote, tmp_path, monkeypatch):
    remote(NEVER)
    observe = Learner.observe

    def spoilt(self, image, label):
        observe(self, image, label)
        if self.context.seen == 21:  # a multiple of query_every
            with torch.no_grad():
                self.context.network.head.weight[0, 0] = float("nan")

    monkeypatch.setattr(Learner, "observe", spoilt)
    callback = Recorder()
    with pytest.raises(DivergedError, match=r"sample 21.*sample 20"):
        run(small(), tmp_path, callback=callback, checkpoints=CheckpointPolicy(samples=10))
    assert callback.position == 30  # noticed where somebody had to wait
    assert max(record.at for record in read(tmp_path / small().name / "journal.jsonl")[1:]) < 21


@pytest.mark.parametrize("tick, checks", [(1e-5, 1), (0.6, 41), (1.5, 81)])
def test_the_loss_is_looked_at_once_a_second_where_it_has_to_be_waited_for(tick, checks, remote, tmp_path, monkeypatch):
    remote(0).tick = tick  # seconds from sample to sample
    calls, check = [], Learner.check
    monkeypatch.setattr(Learner, "check", lambda self: (calls.append(self.context.seen), check(self)))
    run(small(), tmp_path, checkpoints=CheckpointPolicy(seconds=1e9))
    assert len(calls) == checks  # the last one before it is saved

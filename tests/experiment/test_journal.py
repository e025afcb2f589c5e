import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iblurry.errors import DataError, DiskFullError, InputError
from iblurry.experiment.journal import (
    Held,
    Journal,
    NewClass,
    Query,
    Record,
    Spent,
    Start,
    TaskEnd,
    decode,
    encode,
    read,
)

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


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    assert read(write(tmp_path / "journal.jsonl", RECORDS)) == RECORDS


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


def test_journals_without_the_newer_kinds_are_read(tmp_path: Path) -> None:
    assert read(write(tmp_path / "journal.jsonl", RECORDS[:5])) == RECORDS[:5]


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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_stops_the_run_with_a_sentence() -> None:
    with (
        Journal("/dev/full") as journal,
        pytest.raises(DiskFullError, match="/dev"),
    ):
        journal.append(RECORDS[0])


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


def test_reading_results_needs_no_torch() -> None:
    modules = "iblurry.experiment.journal, iblurry.experiment.metrics"
    heavy = ["torch", "matplotlib", "rich", "PIL"]
    code = f"import json, sys, {modules}; print(json.dumps([name for name in {heavy} if name in sys.modules]))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == []

"""Which checkpoints a folder keeps, and which of them are trusted: damage, full disks and kills."""

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from iblurry.errors import CheckpointError, DiskFullError
from iblurry.storage.checkpoint import load_latest, save
from tests.experiment.states import held, latest, same, state


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text("kept")
    for at in (100, 200, 1_000_000_000_000_000, 300):
        save(tmp_path, state(at), at=at)
    # The huge one is later than the last saved: the run resumed from before it because it was damaged.
    assert same(latest(tmp_path).state, state(300))
    save(tmp_path, state(7), at=300)
    assert held(tmp_path) == ["@200", "@300", "journal.jsonl"]
    assert same(latest(tmp_path).state, state(7))


def falls_back(folder: Path) -> bool:
    """Whether the checkpoint at 100 is used and the one at 200 is spoken of."""
    loaded = latest(folder)
    if loaded.at == 200:
        return False
    (sentence,) = loaded.skipped
    assert sentence.startswith("checkpoint-000000000200.safetensors is damaged (")
    assert sentence.endswith("; the previous good one, checkpoint-000000000100.safetensors, is used.")
    return same(loaded.state, state(1))


def test_what_was_refused_is_not_kept_as_the_one_before(tmp_path):
    for at in (100, 200):
        save(tmp_path, state(at), at=at)
    (tmp_path / "checkpoint-000000000200.safetensors").write_bytes(b"damaged")
    loaded = load_latest(tmp_path)
    assert loaded is not None
    save(tmp_path, state(3), at=300, trusted=[loaded.at])
    assert [path.name[11:-12] for path in sorted(tmp_path.iterdir())] == ["000000000100", "000000000300"]


@pytest.mark.slow
def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, state(1), at=100)
    path = save(tmp_path, state(2), at=200)
    whole = path.read_bytes()
    choose = random.Random(1)
    header = range(0, 8 + int.from_bytes(whole[:8], "little"), 5)
    for offset in [*range(8), *header, *range(header.stop, len(whole))]:
        flipped = bytearray(whole)
        flipped[offset] ^= 1 << choose.randrange(8)
        path.write_bytes(flipped)
        assert falls_back(tmp_path), f"byte {offset} of {len(whole)}"
    assert b"1e-05" in whole
    path.write_bytes(whole.replace(b"1e-05", b"1E-05"))  # the same number
    assert falls_back(tmp_path)
    path.write_bytes(whole.replace(b"1.5e+200", b"1.5e+600"))  # no number at all
    assert falls_back(tmp_path)
    path.write_bytes(whole)
    assert not falls_back(tmp_path)


def test_a_truncated_or_longer_file_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, state(1), at=100)
    path = save(tmp_path, state(2), at=200)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert falls_back(tmp_path), length
        path.write_bytes(whole[:length] + bytes(len(whole) - length))  # the size written, the bytes not
        assert falls_back(tmp_path), length
    path.write_bytes(whole + b"\0")
    assert falls_back(tmp_path)


def test_a_renamed_checkpoint_or_another_format_is_not_used(tmp_path: Path) -> None:
    path = save(tmp_path, state(1), at=100)
    other = tmp_path / "checkpoint-000000000200.safetensors"
    other.write_bytes(path.read_bytes())
    assert falls_back(tmp_path)
    other.write_bytes(path.read_bytes().replace(rb"\"format\":2", rb"\"format\":3"))
    assert "its format is 3, and this version of iblurry reads 2" in latest(tmp_path).skipped[0]


def test_if_all_are_damaged_it_says_so_and_what_to_do(tmp_path: Path) -> None:
    for at in (100, 200):
        save(tmp_path, state(), at=at).write_bytes(b"oops")
    with pytest.raises(CheckpointError, match="000100") as caught:
        load_latest(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "000200" in str(caught.value)


def test_the_caller_may_refuse_a_checkpoint(tmp_path: Path) -> None:
    for at in (100, 200):
        save(tmp_path, {"journal": at}, at=at)
    loaded = load_latest(tmp_path, accept=lambda it: "the journal is too short" if it["journal"] > 150 else None)
    assert loaded is not None
    assert loaded.state == {"journal": 100}
    assert "the journal is too short" in loaded.skipped[0]
    with pytest.raises(CheckpointError, match="does not fit"):
        load_latest(tmp_path, accept=lambda it: "never")


@pytest.mark.parametrize("function", ["write", "fsync", "replace", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failing_disk_leaves_the_previous_one_and_no_debris(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int
) -> None:
    save(tmp_path, state(1), at=100)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_some, room = os.write, [100]

    def full(*args: Any, **kwargs: Any) -> int:
        if function == "write" and room[0] > 0:  # a little still fits
            room[0] -= 60
            return write_some(args[0], args[1][:60])
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, full)
        with pytest.raises(OSError if code == errno.EIO else DiskFullError) as caught:
            save(tmp_path, state(2), at=200)
    if code != errno.EIO:
        assert str(tmp_path) in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    save(tmp_path, state(2), at=200)
    assert latest(tmp_path).at == 200


def test_what_a_killed_run_left_behind_is_no_checkpoint_and_is_removed(tmp_path: Path) -> None:
    assert load_latest(tmp_path / "missing") is None
    assert load_latest(tmp_path) is None
    (tmp_path / "checkpoint-000000000050.safetensors.tmp").write_bytes(b"half")
    assert load_latest(tmp_path) is None
    save(tmp_path, state(), at=100)
    assert held(tmp_path) == ["@100"]


def test_the_bytes_are_on_disk_before_the_name_and_the_name_before_anything_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in (100, 200):
        save(tmp_path, state(), at=at)
    events: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "replace")}
    unlink = Path.unlink
    monkeypatch.setattr(os, "fsync", lambda file: (events.append("fsync"), real["fsync"](file))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("replace"), real["replace"](a, b))[1])
    monkeypatch.setattr(Path, "unlink", lambda self, **k: (events.append(f"unlink {self.name}"), unlink(self, **k))[1])
    save(tmp_path, state(), at=300)
    assert events == ["fsync", "replace", "fsync", "unlink checkpoint-000000000100.safetensors"]

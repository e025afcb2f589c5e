"""Checkpoints: a state comes back exactly or is refused; which a folder keeps, and which of them are trusted."""

import errno
import json
import os
import random
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from iblurry.errors import CheckpointError, DiskFullError
from iblurry.storage.checkpoint import LoadedCheckpoint, load_latest, save


def state(seed: int = 0) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(4, 3, generator=draw)
    return {
        "network": {"head.weight": weight, "also/head": weight, "steps": torch.tensor(7 + seed)},
        "optimizer": {"state": {0: {"exp_avg": weight * 2}, 10: {"exp_avg": weight * 3}, 2: {}}, "lr": 3e-4},
        "memory": [torch.randint(0, 256, (5, 2), dtype=torch.uint8, generator=draw), np.arange(3) * 0.1],
        "pace": "2/3",
        "base": (1e-05, 1.5e200, float("-inf"), None, True, -3, [], (), {}),
    }


def same(one: Any, two: Any) -> bool:
    """Equal types, shapes and bits all the way down."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(two, torch.Tensor)
            and one.dtype == two.dtype
            and one.shape == two.shape
            and bits(one) == bits(two)
        )
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(two) and len(one) == len(two) and all(map(same, one, two))
    return type(one) is type(two) and repr(one) == repr(two)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def latest(folder: Path) -> LoadedCheckpoint:
    loaded = load_latest(folder)
    assert loaded is not None
    return loaded


def held(folder: Path) -> list[str]:
    """What lies in a folder, with checkpoints as "@100"."""
    return sorted(re.sub(r"checkpoint-0*(\d+)\.safetensors$", r"@\1", path.name) for path in folder.iterdir())


def test_a_state_comes_back_the_same(tmp_path: Path) -> None:
    path = save(tmp_path, state(), at=1200)
    loaded = latest(tmp_path)
    assert (loaded.at, loaded.path, loaded.skipped) == (1200, path, [])
    assert path.name == "checkpoint-000000001200.safetensors"
    assert same(loaded.state, state())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, -0.0, float("nan"), float("inf"), 1e-40]).to(torch.bfloat16),
        torch.tensor([0x7FC00001, 0x7F800002], dtype=torch.int32).view(torch.float32),
        torch.tensor([2**63 - 1, -(2**63)]),
        torch.tensor([0.1, -0.0, 5e-324], dtype=torch.float64),
        torch.tensor(0.5, dtype=torch.float16),
        torch.tensor(True),
        torch.empty(0),
        torch.empty(3, 0, 2, dtype=torch.int64),
        torch.arange(6, dtype=torch.int16).reshape(2, 3).T,
        torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)).to(memory_format=torch.channels_last),
        torch.tensor([1.0]).expand(4),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.shape)}",
)
def test_tensors_come_back_bit_for_bit(tmp_path: Path, tensor: torch.Tensor) -> None:
    save(tmp_path, {"it": tensor}, at=1)
    back = latest(tmp_path).state["it"]
    assert same(tensor, back)
    back.zero_()  # writable


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_arrays_come_back_with_their_type(tmp_path: Path, dtype: str) -> None:
    for array in (np.array([[1, 0, 1]], dtype=dtype), np.array(1, dtype=dtype), np.empty((0, 2), dtype=dtype)):
        array.flags.writeable = False
        save(tmp_path, {"it": array}, at=1)
        back = latest(tmp_path).state["it"]
        assert same(back, array.astype(array.dtype.newbyteorder("=")))
        back[...] = 0  # writable


def test_aliases_are_saved_apart_and_loaded_fresh(tmp_path: Path) -> None:
    shared = torch.ones(3)
    save(tmp_path, {"a": shared, "b": shared, "part": shared[1:]}, at=1)
    first, second = latest(tmp_path), latest(tmp_path)
    first.state["a"].fill_(5)
    assert first.state["b"].tolist() == [1, 1, 1]
    assert first.state["part"].tolist() == [1, 1]
    assert second.state["a"].tolist() == [1, 1, 1]


def test_equal_states_give_equal_bytes(tmp_path: Path) -> None:
    def reversed_dicts(value: Any) -> Any:
        if isinstance(value, dict):
            return OrderedDict((key, reversed_dicts(value[key])) for key in reversed(list(value)))
        return value.clone() if isinstance(value, torch.Tensor) else value

    for name in ("one", "two", "three", "four"):
        (tmp_path / name).mkdir()
    one = save(tmp_path / "one", state(), at=3).read_bytes()
    two = save(tmp_path / "two", reversed_dicts(state()), at=3).read_bytes()
    strided = state() | {"memory": [state()["memory"][0].T.contiguous().T, np.arange(6)[::2] * 0.05]}
    assert one == two == save(tmp_path / "three", strided, at=3).read_bytes()
    assert one != save(tmp_path / "four", state(1), at=3).read_bytes()


def test_the_file_is_plain_safetensors_with_one_metadata_key(tmp_path: Path) -> None:
    path = save(tmp_path, state(), at=3)
    with safe_open(path, framework="pt") as file:
        assert list(file.metadata()) == ["iblurry"]
        about = json.loads(file.metadata()["iblurry"])
        assert sorted(about) == ["at", "digest", "format", "tree"]
        assert len(about["digest"]) == 64
        assert " ".join(sorted(file.keys())) == (
            "memory/0 memory/1 network/also~1head network/head.weight network/steps "
            "optimizer/state/0/exp_avg optimizer/state/10/exp_avg"
        )
        assert same(file.get_tensor("network/head.weight"), state()["network"]["head.weight"])


def test_paths_that_look_alike_stay_apart(tmp_path: Path) -> None:
    confusing = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, "a~1b": torch.ones(1) * 2, "": torch.ones(1) * 3}
    save(tmp_path, confusing, at=1)
    assert same(latest(tmp_path).state, confusing)


@pytest.mark.parametrize(
    "value", [{1, 2}, np.int64(3), np.float64(0.5), b"x", {"k": {1: 0, "1": 0}}, {(1, 2): 0}, np.array(["a"]), 1j]
)
def test_what_cannot_be_kept_exactly_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(TypeError, match="state/part"):
        save(tmp_path, {"part": value}, at=1)
    with pytest.raises(TypeError, match="__metadata__"):
        save(tmp_path, {"__metadata__": torch.ones(1)}, at=1)
    assert held(tmp_path) == []


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
    assert sentence.index("checkpoint-000000000200") < sentence.index("checkpoint-000000000100")
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
    assert "format is 3" in latest(tmp_path).skipped[0]


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
    loaded = load_latest(tmp_path, accept=lambda it: "too short" if it["journal"] > 150 else None)
    assert loaded is not None
    assert loaded.state == {"journal": 100}
    assert "too short" in loaded.skipped[0]
    with pytest.raises(CheckpointError, match="never"):
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

"""A pickle is a program; ours may only build plain data."""

from __future__ import annotations

import os
import pickle
import pickletools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iblurry.data.sources.cifar import read_pickle
from iblurry.errors import DataError


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_plain_data_come_back(protocol: int, order: str) -> None:
    held = {
        "data": np.array(np.arange(12, dtype=np.uint8).reshape(3, 4), order=order),
        "floats": np.array([1.5, -2.5], dtype=">f8"),
        "labels": [1, 2, -3],
        "none": (None, True, 2.5, "text", b"bytes"),
    }
    back = read_pickle(pickle.dumps(held, protocol=protocol), "here")
    assert list(back) == list(held)
    for key in ("data", "floats"):
        np.testing.assert_array_equal(back[key], held[key])
    assert back["labels"] == held["labels"]
    assert back["none"] == held["none"]


class Calls:
    """Pickles as a call of any function with any arguments."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_and_not_run(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    raw = pickle.dumps({"data": Calls(os.system, f"touch {mark}")}, protocol=protocol)
    with pytest.raises(DataError, match=r"bad\.pkl asks for (posix|nt)\.system"):
        read_pickle(raw, "bad.pkl")
    assert not mark.exists()
    pickle.loads(raw)  # the same bytes do harm elsewhere: the refusal above is what stopped them
    assert mark.exists()


@pytest.mark.parametrize("function", [eval, getattr, np.load, np.fromfile, bytearray, Fraction])
def test_other_globals_are_refused(function: Any) -> None:
    with pytest.raises(DataError, match="asks for"):
        read_pickle(pickle.dumps(Calls(function, "1")), "here")


@pytest.mark.parametrize(
    "held, words",
    [
        (np.array([{}], dtype=object), "only arrays of plain numbers"),
        (np.zeros(2, dtype=[("a", "u1")]), "only arrays of plain numbers"),
        (np.dtype("u1"), "holds a _Dtype"),
        (np.ndarray, "holds a type"),
        (1j, "asks for"),
        ({1, 2}, "holds a set"),
    ],
)
def test_other_things_are_refused(held: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_pickle(pickle.dumps(held), "here")


def test_a_forged_array_cannot_reach_beyond_its_bytes() -> None:
    raw = pickle.dumps(np.zeros(10, dtype=np.uint8), protocol=3)
    forged = raw.replace(b"K\n\x85", b"K\xff\x85")  # ten bytes announced as 255
    assert forged != raw
    with pytest.raises(DataError, match="not a readable pickle"):
        read_pickle(forged, "here")


def test_damaged_pickles_are_refused() -> None:
    raw = pickle.dumps({"data": np.arange(50, dtype=np.uint8), "labels": list(range(50))}, protocol=2)
    ends = [position for _, _, position in pickletools.genops(raw)][1:]
    for end in [0, 1, *ends[::7]]:
        with pytest.raises(DataError, match=r"here is not a readable pickle .*again"):
            read_pickle(raw[:end], "here")
    looped = b"\x80\x02]q\x00h\x00a."  # a list that holds itself
    with pytest.raises(DataError, match="not a readable pickle"):
        read_pickle(looped, "here")

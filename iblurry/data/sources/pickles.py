"""Reads pickles of arrays, lists, dicts, strings and numbers, and can build nothing else."""

from __future__ import annotations

import io
import pickle
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import DataError


def read_pickle(raw: bytes, where: str) -> Any:
    """What the pickle holds; `where` names it in errors.

    A pickle is a program. This one may call four names, and each leads to a stand-in written here instead of to NumPy:
    even `dtype.__setstate__`, which NumPy trusts, is never reached. Strings of Python 2 come back as bytes.
    """
    try:
        return _plain(_Unpickler(raw, where).load())
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise anything at all
        raise DataError(f"{where} is not a readable pickle ({error}); download or copy it again.") from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, raw: bytes, where: str) -> None:
        super().__init__(io.BytesIO(raw), encoding="bytes")
        self.where = where

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(
                f"{self.where} asks for {module}.{name}, which a file of plain arrays never needs; "
                "it is not the original or not safe, so do not use it and download it again from its web site."
            )
        return _ALLOWED[module, name]


class _Array:
    """An array that is empty until `__setstate__` fills it, as `numpy.core.multiarray._reconstruct` makes them."""

    def __init__(self, *_: Any) -> None:
        self.value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, shape, dtype, column_major, raw = state
        flat = np.frombuffer(raw, dtype=dtype.order + dtype.code)
        self.value = flat.reshape(shape, order="F" if column_major else "C")


class _Dtype:
    """The type of plain numbers: a letter, a width and a byte order."""

    order = "="

    def __init__(self, code: str | bytes, *_: Any) -> None:
        self.code = _text(code)
        if not re.fullmatch("[biuf][1248]", self.code):
            raise DataError(f"The pickle holds an array of {self.code!r}; only arrays of plain numbers are read.")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _text(state[1])
        self.order = order if order in ("<", ">") else "="


def _encoded(text: str, encoding: str | bytes = "latin1") -> bytes:
    """Bytes, which Python 3 writes into old pickles as latin-1 text to be encoded again."""
    if _text(encoding) != "latin1":
        raise DataError(f"The pickle encodes text as {encoding!r}; only latin1 is read.")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encoded,
}


def _text(given: str | bytes) -> str:
    return given.decode("ascii") if isinstance(given, bytes) else given


def _plain(held: Any) -> Any:
    if isinstance(held, _Array) and held.value is not None:
        return held.value
    if isinstance(held, dict):
        return {_plain(key): _plain(value) for key, value in held.items()}
    if isinstance(held, list | tuple):
        return type(held)(map(_plain, held))
    if held is None or isinstance(held, str | bytes | int | float):
        return held
    raise DataError(
        f"The pickle holds a {type(held).__name__}; only arrays, lists, dicts, strings and numbers are read."
    )

"""What others wrote: JSON and numbers, read within limits of size, nesting and length."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from iblurry.errors import DataError, IblurryError, InputError

MOST_BYTES = 2**26  # of a JSON file: a list of ImageNet's files takes 2**24
MOST_LEVELS = 100  # of lists and objects in each other: later code walks them by recursion
MOST_DIGITS = 64  # of one number; a whole number of 128 bits has 39
ZEROS = bytes(ord("0") if byte in b"0123456789" else 0 for byte in range(256))  # every digit as a zero
LONG_EXPONENT = re.compile(r"[eE][-+]?[\d_]{4,}")  # 1e999999999 as a fraction would take 400 MB and hours
# What code raises where data have another form than it writes; InputError is a ValueError.
MALFORMED = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError)
WORDS: dict[type[Any], str] = {dict: "an object", list: "a list"}


def parse_json(data: bytes, kind: type[Any] = dict) -> Any:
    """The value of a JSON text in UTF-8; InputError says why it is refused, as the end of a sentence.

    Refused are keys given twice, NaN and Infinity, numbers with too many digits, and lists nested too deep.

    Parameters
    ----------
    data : bytes
        The whole text.
    kind : type
        dict or list: what the outermost value must be.
    """
    try:
        has_long_number = b"0" * (MOST_DIGITS + 1) in data.translate(ZEROS)  # or a long text of digits
        value = (_SLOW_DECODER if has_long_number else _DECODER).decode(data.decode("utf-8-sig"))
        level, levels = [value], 0
        while level := [each for each in level if type(each) in WORDS]:
            levels += 1
            if levels > MOST_LEVELS:
                raise RecursionError
            level = [inner for each in level for inner in (each.values() if type(each) is dict else each)]
    except RecursionError:
        raise InputError(f"it is nested deeper than {MOST_LEVELS} levels") from None
    except ValueError as error:
        raise InputError(f"it is not valid JSON: {error}") from error
    if type(value) is not kind:
        raise InputError(f"it is not {WORDS[kind]}")
    return value


def read_json(path: Path, kind: type[Any] = dict, *, remedy: str = "Put back a good copy.") -> Any:
    """The value in a JSON file; DataError, with the file's name, where it cannot be read or `parse_json` refuses it.

    Parameters
    ----------
    path : Path
        The file.
    kind : type
        dict or list: what the outermost value must be.
    remedy : str
        A sentence: what the user can do.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError(f"it has more than {MOST_BYTES:,} bytes")
        return parse_json(data, kind)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). {remedy}") from error
    except ValueError as error:  # also of a name that no file can have
        raise DataError(f"{path} is damaged: {error}. {remedy}") from error


@contextmanager
def named(path: str | os.PathLike[str], remedy: str = "Put back a good copy.") -> Iterator[None]:
    """Errors get the file's name; what malformed data lead to becomes DataError.

    Parameters
    ----------
    path : path
        What is being read.
    remedy : str
        A sentence: what the user can do.
    """
    try:
        yield
    except IblurryError as error:
        if str(path) not in str(error):
            error.args = (f"{path}: {error}",)
        raise
    except MALFORMED as error:
        raise DataError(f"{path} cannot be used ({reason(error)}). {remedy}") from error


def reason(error: Exception) -> str:
    """One line for a sentence about a file."""
    known = str(error) if isinstance(error, IblurryError) else f"{type(error).__name__}: {error}"
    return " ".join(known.split()).removesuffix(".")[:300]


def exact(value: Fraction | int | float | str) -> Fraction:
    """The fraction a person means: 0.1 is 1/10, not the nearest binary number.

    Parameters
    ----------
    value : number or str
        "3", 0.25 or "1/16"; InputError for more than 64 characters or an exponent of four digits.
    """
    text = ""
    try:
        text = str(value)  # ValueError for an int of 5,000 digits
        if len(text) > MOST_DIGITS or LONG_EXPONENT.search(text):
            raise ValueError("it is too long")
        return Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"{text!r:.80} is not a number or fraction; write 3, 0.25 or 1/16.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.80} is given twice")
    return found


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits, and at most {MOST_DIGITS} are allowed")
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text:.20} is not a finite number")
    return value


_DECODER, _SLOW_DECODER = (  # a function called for every whole number takes twice the time of all the rest
    json.JSONDecoder(object_pairs_hook=_object, parse_int=whole, parse_float=_finite, parse_constant=_finite)
    for whole in (int, _whole)
)

"""Every error iblurry raises on purpose, and the helper that suggests the name you meant.

IblurryError
├── InputError (ValueError)      a value from the user: what was given, what is allowed, what to do
│   ├── UnknownNameError         a name that is not on the list, with the closest one that is
│   ├── UnknownLabelError        a label that was never announced, or one more than the head has rows
│   ├── DataError                a data file that is missing, truncated or corrupt
│   └── FolderError              a run folder of another experiment or version
│       └── BusyError            one in which another process is running
├── CheckpointError              a checkpoint that cannot be trusted
├── ServiceError                 a live service that says no, or does not answer
└── StoppedError                 a run that had to stop and kept its last good checkpoint
    ├── DivergedError            the loss is no longer a number
    ├── DiskFullError            the disk took no more
    └── RunFailedError           an exception of another kind, such as one that a part of the user's own raised
"""

from __future__ import annotations

import difflib
import functools
import math
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any


class IblurryError(Exception):
    """The root: `except IblurryError` catches everything below and nothing else."""


class InputError(IblurryError, ValueError):
    """A value from the user cannot be used."""


class UnknownNameError(InputError):
    """A name is not on the list of names."""

    def __init__(self, kind: str, name: str, allowed: Iterable[str]) -> None:
        names = sorted(allowed)
        close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
        meant = next((n for n in names if close and n.lower() == close[0]), None)
        hint = f" Did you mean {meant!r}?" if meant else ""
        super().__init__(f"There is no {kind} called {name!r}.{hint} Known: {', '.join(names) or 'none'}.")
        self.kind = kind
        self._given = (kind, name, names)

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, list[str]]]:
        return UnknownNameError, self._given  # it may have to travel from one process to another


class UnknownLabelError(InputError):
    """A label was never announced, or the head has no row left for it."""


class DataError(InputError):
    """A data file is missing, truncated or corrupt."""


class FolderError(InputError):
    """A run folder belongs to something else."""


class BusyError(FolderError):
    """Another process is running in that folder."""


class CheckpointError(IblurryError):
    """A checkpoint cannot be trusted."""


class ServiceError(IblurryError):
    """A live service says no, with a sentence, or does not answer.

    `status` is that of HTTP, None where nothing came back; `code` is a word for programs; `retry_after` is in seconds.
    `index` and `field` say which entry of the request is at fault, and what of it, such as "image" or "label".
    """

    def __init__(
        self,
        sentence: str,
        *,
        status: int | None = None,
        code: str = "unreachable",
        retry_after: float | None = None,
        index: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status, self.code, self.retry_after, self.index, self.field = status, code, retry_after, index, field

    def with_message(self, message: str) -> ServiceError:
        """The same error in other words."""
        return ServiceError(message, **vars(self))


class StoppedError(IblurryError):
    """A run had to stop; its last good checkpoint is kept."""


class DivergedError(StoppedError):
    """The loss is no longer a finite number."""


class DiskFullError(StoppedError):
    """The disk took no more bytes."""


class RunFailedError(StoppedError):
    """An exception that is not one of these, such as a ZeroDivisionError in a part of the user's own, ended a run.

    `is_system` where it is an error of the system (OSError, MemoryError) rather than of code.
    """

    def __init__(self, sentence: str, *, is_system: bool = False) -> None:
        super().__init__(sentence)
        self.is_system = is_system


def counted(number: int, noun: str) -> str:
    """A number of things, for a sentence.

    >>> counted(1, "sample"), counted(2000, "sample"), counted(2, "class")
    ('1 sample', '2,000 samples', '2 classes')
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def check_type(name: str, value: Any, kind: Any) -> None:
    """InputError where the value of an argument is not of this class, or of one of these: `str | None`."""
    if not isinstance(value, kind):
        words = getattr(kind, "__name__", str(kind)).replace(" | ", " or ")
        raise InputError(f"{name}={value!r:.80} is not valid; give {words}.")


def whole_number(name: str, value: Any, least: int) -> int:
    """A plain int of a whole number, also of NumPy's; InputError for anything else, True and False among it."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"{name}={value!r} is not a whole number; give one from {least}.")
    if value < least:
        raise InputError(f"{name}={value} is too small; the minimum is {least}.")
    return int(value)


def check_fields(owner: Any, ranges: Mapping[str, str]) -> None:
    """Checks a dataclass: fields hold what their annotations say, as plain Python numbers, in their intervals.

    Annotations of numbers, strings, booleans, Literals, tuples of these and None are checked; others are not.

    Parameters
    ----------
    owner : dataclass instance
        What is checked; InputError names the field, its value and what is allowed.
    ranges : mapping
        Intervals by field name, such as "(0, 1]" or "[1, inf)"; None is allowed where the annotation has it.
    """
    for field in fields(owner):
        cls: Any = type(owner)
        written: Any = field.type
        hint = _hint(cls, field.name, written) if field.init else None
        if hint is None:
            continue
        value = getattr(owner, field.name)
        plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 else value
        is_endless = type(plain) is float and plain == math.inf and ranges.get(field.name, "").endswith("inf]")
        if not _fits(plain, hint) and not is_endless:
            allowed = _words(hint)
            raise InputError(f"{type(owner).__name__}({field.name}={value!r:.80}): {field.name} must be {allowed}.")
        if plain is not value:
            object.__setattr__(owner, field.name, plain)
    for name, interval in ranges.items():
        value = getattr(owner, name)
        low, high = interval[1:-1].split(", ")
        is_above = value is None or value > float(low) or (interval[0] == "[" and value == float(low))
        is_below = value is None or value < float(high) or (interval[-1] == "]" and value == float(high))
        if not (is_above and is_below):
            raise InputError(f"{type(owner).__name__}({name}={value}): {name} must lie in {interval}.")


WORDS = {int: "a whole number", float: "a finite number", bool: "True or False", str: "a string", type(None): "None"}


@functools.cache
def _hint(cls: type, name: str, written: Any) -> Any:
    """The annotation of a field as types; None where it cannot be checked."""
    try:
        written = field_type(cls, name, written)
    except Exception:  # names that exist for type checkers only
        return None
    return written if _is_checkable(written) else None


def field_type(cls: type, name: str, written: Any) -> Any:
    """The annotation of one field of a dataclass as types, `written` as a text or not; the others need no meaning."""
    if not isinstance(written, str):
        return written
    owner = next((base for base in cls.__mro__ if name in vars(base).get("__annotations__", {})), cls)
    return eval(written, dict(vars(sys.modules[owner.__module__])))


def _is_checkable(hint: Any) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType, tuple):
        return all(inner is ... or _is_checkable(inner) for inner in typing.get_args(hint))
    return hint is None or hint in WORDS or typing.get_origin(hint) is typing.Literal


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)  # arrays compare to arrays
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = inner[:1] * len(value) if len(inner) == 2 and inner[1] is ... else inner
        return len(kinds) == len(value) and all(map(_fits, value, kinds))
    if inner:  # a union
        return any(_fits(value, kind) for kind in inner)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return value is None if hint in (None, type(None)) else isinstance(value, hint)


def _words(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple:
        return f"a tuple, each {_words(inner[0])}" if inner else "a tuple"
    return " or ".join(map(_words, inner)) if inner else WORDS[type(None) if hint is None else hint]

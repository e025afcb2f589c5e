"""Changes fields of experiments and methods by their paths, as `--set admission.step=0.2` does; parts by name."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable
from fractions import Fraction
from itertools import chain
from typing import Any, Literal, TypeVar

from iblurry.components.component import Component
from iblurry.errors import InputError, UnknownNameError, field_type
from iblurry.storage.untrusted import exact

UNIONS = (typing.Union, types.UnionType)

C = TypeVar("C", bound=Component)
E = TypeVar("E")  # an Experiment, which is made of all that is here


def edit(experiment: E, *changes: str) -> E:
    """Each `path=value`: a field of the experiment, its method or stream, or of a part; a slot takes a part's name.

    They are made one after the other; one that does not fit yet waits for those of other slots.

    >>> from iblurry import Experiment
    >>> edit(Experiment.of("clib"), "admission.step=0.2").method.admission.step
    0.2
    >>> edit(Experiment.of("er"), "admission=Discard", "rehearsal=Nothing").method.rehearsal  # Uniform needs a memory
    Nothing()
    """
    waiting = list(changes)
    while waiting:
        refused: dict[str, InputError] = {}
        for change in waiting:
            slot = re.split(r"[.=]", change)[0]
            if slot in refused:
                continue  # a field of what was to be put there first
            try:
                experiment = _edit_one(experiment, change)
            except InputError as error:
                refused[slot] = error
            else:
                waiting.remove(change)
                break
        else:
            raise next(iter(refused.values()))
    return experiment


def _edit_one(experiment: Any, change: str) -> Any:
    path, sign, text = change.partition("=")
    if not sign or not path:
        raise InputError(f"{change!r} is not a change; write path=value, such as memory=200 or admission=Balanced.")
    owners = {"": _fields(experiment), "method": _fields(experiment.method), "stream": _fields(experiment.stream)}
    names = path.split(".")
    owner = next((owner for owner, known in owners.items() if names[0] in known), None)
    if owner is None:
        raise UnknownNameError("field of an experiment, its method or its stream", names[0], [*chain(*owners.values())])
    return _changed(experiment, [owner, *names] if owner else names, text, path)


def read_slot(method: Any, slot: str, given: Any) -> Any:
    """What is meant by a text where a method has parts, such as "Balanced"; anything else as it is."""
    return _read(method, [slot], given, slot) if isinstance(given, str) and slot != "name" else given


def component(kind: type[C], text: str) -> C:
    """`Name` or `Name:field=value,field=value`, of the components of a kind.

    >>> from iblurry.streams.stream import Stream
    >>> component(Stream, "IBlurry:tasks=4,blur=30").blur
    30.0
    """
    name, _, fields = text.strip().partition(":")
    made: Any = kind.named(name.strip())
    values = {}
    for field in re.split(r",(?=\w+=)", fields) if fields else []:
        key, sign, value = field.partition("=")
        if not sign:
            raise InputError(f"{text!r}: {field!r} is not a field; write {name}:field=value,field=value.")
        known = {f.name: f for f in dataclasses.fields(made) if f.init}
        if key not in known:
            raise UnknownNameError(f"field of {name}", key, known)
        values[key] = _value(field_type(made, key, known[key].type), value, key)
    try:
        built: C = made(**values)
        return built
    except TypeError as error:  # a field without a default
        raise InputError(f"{text!r} leaves out a field of {name}: {error}.") from error


def _changed(owner: Any, names: list[str], text: str, path: str) -> Any:
    """The owner with what `names` leads to replaced."""
    return dataclasses.replace(owner, **{names[0]: _read(owner, names, text, path)})


def _read(owner: Any, names: list[str], text: str, path: str) -> Any:
    """What the first of `names` is to be."""
    name, *rest = names
    if name not in _fields(owner):
        raise UnknownNameError(f"field of {type(owner).__name__}", name, _fields(owner))
    old, hint = getattr(owner, name), field_type(type(owner), name, owner.__dataclass_fields__[name].type)
    kind = _kind_of_several(hint)
    if kind is not None and (isinstance(old, tuple) or not rest or rest[0].isdigit()):
        return _components(kind, name, old if isinstance(old, tuple) else (old,), rest, text, path)
    if rest and not dataclasses.is_dataclass(old):
        raise InputError(f"{path}={text}: {name} is {old!r} and has no fields; write {name}=VALUE.")
    if rest:
        return _changed(old, rest, text, path)
    if isinstance(old, Component):
        return component(_kind(type(old)), text)
    if dataclasses.is_dataclass(old):
        inner = ", ".join(f"{path}.{field}" for field in _fields(old))
        raise InputError(f"{path}={text}: {name} has fields of its own; set one of {inner}.")
    return _value(hint, text, path)


def _kind_of_several(hint: Any) -> type[Component] | None:
    """Term for tuple[Term, ...], Transform for Transform | tuple[Transform, ...]; None for other types."""
    for one in typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,):
        inner = typing.get_args(one)[0] if typing.get_origin(one) is tuple else None
        if isinstance(inner, type) and issubclass(inner, Component):
            return inner
    return None


def _components(
    kind: type[Component], slot: str, old: tuple[Component, ...], rest: list[str], text: str, path: str
) -> tuple[Component, ...]:
    """Several in a slot: all of them by their names, one by its position, or a field of one.

    Those that are named and there already keep their fields.
    """
    if not rest:
        names = [name.strip() for name in re.split(r",(?!\w+=)", text)] if text.lower() not in ("", "none") else []
        there = {type(one).__name__: one for one in reversed(old)}
        return tuple(there.get(name) or component(kind, name) for name in names)
    place, *inner = rest
    if place not in map(str, range(len(old))):
        raise UnknownNameError(f"position in {slot}", place, map(str, range(len(old))))
    at = int(place)
    new = _changed(old[at], inner, text, path) if inner else component(kind, text)
    return (*old[:at], new, *old[at + 1 :])


def _kind(cls: type[Component]) -> type[Component]:
    """The base class of a component's kind."""
    return next(base for base in cls.__mro__ if "kind" in vars(base))


def _value(kind: Any, text: str, path: str) -> Any:
    """What the text means where a value of this type stands; "none" where there may be none."""
    kinds = typing.get_args(kind) if typing.get_origin(kind) in UNIONS else (kind,)
    if types.NoneType in kinds and text.lower() == "none":
        return None
    kind = next(one for one in kinds if one is not types.NoneType)
    if typing.get_origin(kind) is Literal:
        if text not in typing.get_args(kind):
            raise UnknownNameError(f"choice for {path}", text, typing.get_args(kind))
        return text
    if kind not in READERS:
        raise InputError(f"{path}={text}: {path} cannot be written in one line; build the method in Python.")
    read, words = READERS[kind]
    try:
        return read(text)
    except (ValueError, KeyError) as error:
        others = " or none" if types.NoneType in kinds else ""
        raise InputError(f"{path}={text}: {text!r} is not valid; give {words}{others}.") from error


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    str: (str, "a text"),
    bool: (lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
    int: (int, "a whole number"),
    float: (_finite, "a number"),
    tuple[int, ...]: (lambda text: tuple(map(int, text.split(","))), "whole numbers such as 30,60,80"),
    tuple[float, ...]: (lambda text: tuple(map(_finite, text.split(","))), "numbers such as 0.9,0.999"),
    Fraction: (exact, "a fraction such as 3, 0.25 or 1/16"),
}


def _fields(owner: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(owner) if f.init]

"""Changes one field of an experiment by its path, as `--set admission.step=0.2` does."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.method import KINDS
from iblurry.parts.part import Part, part_class


def edit(experiment: Experiment, change: str) -> Experiment:
    """`path=value`: a field of the experiment, of its method, or of a part of it; a slot takes a part's name.

    >>> edit(Experiment.of("clib"), "admission.step=0.2").method.admission.step
    0.2
    """
    path, sign, text = change.partition("=")
    if not sign or not path:
        raise InputError(f"{change!r} is no change; write path=value, such as memory=200 or admission=Balanced.")
    names = path.split(".")
    if names[0] not in _fields(experiment) and names[0] in _fields(experiment.method):
        names.insert(0, "method")
    changed: Experiment = _changed(experiment, names, text, path)
    return changed


def _changed(owner: Any, names: list[str], text: str, path: str) -> Any:
    name, *rest = names
    if isinstance(owner, tuple):
        if not (name.isdigit() and int(name) < len(owner)):
            raise UnknownNameError(f"position in {path}", name, map(str, range(len(owner))))
        at = int(name)
        return (*owner[:at], _changed(owner[at], rest, text, path), *owner[at + 1 :])
    allowed = _fields(owner)
    if name not in allowed:
        what = type(owner).__name__ if isinstance(owner, Part) else type(owner).__name__.lower()
        raise UnknownNameError(f"field of {what}", name, allowed)
    old = getattr(owner, name)
    if rest:
        if not (dataclasses.is_dataclass(old) or isinstance(old, tuple)):
            raise InputError(f"{path}: {name} is {old!r} and has no fields.")
        return dataclasses.replace(owner, **{name: _changed(old, rest, text, path)})
    return dataclasses.replace(owner, **{name: _value(name, old, text, path)})


def _value(name: str, old: Any, text: str, path: str) -> Any:
    """What the text means where `old` stood."""
    if name in KINDS:
        kind = KINDS[name].kind
        parts = [part_class(kind, part)() for part in text.split(",") if part]
        return tuple(parts) if isinstance(old, tuple) else parts[0]
    try:
        if isinstance(old, str) or (old is None and name == "published"):
            return text
        if isinstance(old, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(old, int) or old is None:
            return int(text)
        if isinstance(old, float):
            return float(text)
        return type(old)(text)  # a Fraction
    except (ValueError, KeyError, ZeroDivisionError, TypeError) as error:
        kind = "true or false" if isinstance(old, bool) else f"a value like {json.dumps(old, default=str)}"
        raise InputError(f"{path}={text}: {text!r} does not fit; {name} takes {kind}.") from error


def _fields(owner: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(owner) if f.init]

"""Reads experiments as format 1 wrote them, so that results collected before the fields were renamed stay readable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iblurry.component import Component

PACE = {"gather": "stream_batch", "store": "store_when", "counts": "count_waiting"}
STREAM = ("tasks", "disjoint", "blur", "mode")
UNKNOWN = "unknown"  # format 1 recorded neither what was in published files nor users' code
PARTS = {
    "schedule": {"rate": "initial_lr"},
    "readout": {"rate": "lr"},
}


def upgraded(experiment: dict[str, Any]) -> dict[str, Any]:
    """The same experiment with the field names of today.

    Parameters
    ----------
    experiment : dict
        The value of `experiment` in a format 1 `experiment.json`.

    >>> upgraded({"method": {"pace": {"gather": 8}}, "tasks": 5, "augment": {"pad": 2}})
    {'method': {'pace': {'stream_batch': 8}}, 'augment': {'Augment': {'pad': 2}}, 'stream': {'IBlurry': {'tasks': 5}}}
    """
    changed = {name: value for name, value in experiment.items() if name not in (*STREAM, "published")}
    if isinstance(changed.get("method"), dict):
        changed["method"] = _training(changed["method"])
    if "augment" in changed:
        changed["augment"] = {"Augment": changed["augment"]}
    fields = {name: experiment[name] for name in STREAM if name in experiment}
    if experiment.get("published") is not None:
        fields.pop("mode", None)
        changed["stream"] = {"Published": {"folder": experiment["published"], **fields, "content": UNKNOWN}}
    elif fields:
        changed["stream"] = {"IBlurry": fields}
    return changed


def with_placeholders(training: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a method, with `@unknown` behind parts that are not known here: format 1 wrote no hashes of code."""
    from iblurry.method import Method

    def marked(kind: type[Component], part: Any) -> Any:
        known = kind.known()
        return {name if name in known or "@" in name else f"{name}@{UNKNOWN}": fields for name, fields in part.items()}

    changed = dict(training)
    for slot, kind in Method.slots.items():
        if isinstance(changed.get(slot), list):
            changed[slot] = [marked(kind, part) for part in changed[slot]]
        elif slot in changed:
            changed[slot] = marked(kind, changed[slot])
    if isinstance(changed.get("refit"), dict):
        changed["refit"] = with_placeholders(changed["refit"])
    return changed


def _training(training: dict[str, Any]) -> dict[str, Any]:
    changed = dict(training)
    if "pace" in changed:
        changed["pace"] = _renamed(changed["pace"], PACE)
    for slot, names in PARTS.items():
        if slot in changed:
            changed[slot] = {part: _renamed(fields, names) for part, fields in changed[slot].items()}
    if isinstance(changed.get("refit"), dict):
        changed["refit"] = _training(changed["refit"])
    return changed


def _renamed(fields: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in fields.items()}

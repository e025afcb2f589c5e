"""The fields of an experiment's JSON by the paths that --set takes; needs no torch."""

from __future__ import annotations

from typing import Any

Value = str | int | float  # also bool, which is an int


def flatten_fields(fields: dict[str, Any], prefix: str = "") -> dict[str, Value]:
    """Every field by its path: `memory`, `augment.pad`, `admission` (the part's name), `admission.step`.

    Several parts in a slot have places: `terms` is "CrossEntropy,Elastic", and the second has `terms.1.strength`.

    >>> flatten_fields({"memory": 20, "schedule": {"Constant": {"initial_lr": 0.1}}})
    {'memory': 20, 'schedule': 'Constant', 'schedule.initial_lr': 0.1}
    """
    flat: dict[str, Value] = {}
    for name, value in fields.items():
        path, inner = f"{prefix}{name}", {}
        if isinstance(value, list):
            parts = [_split_part(item) for item in value]
            flat[path] = ",".join(str(part) for part, _ in parts) or "none"
            inner = {str(place): own for place, (_, own) in enumerate(parts)}
        elif isinstance(value, dict):
            part, inner = _split_part(value)
            if part is value:
                inner = value
            else:
                flat[path] = part
        else:
            flat[path] = "none" if value is None else value
        flat |= flatten_fields(inner, f"{path}.")
    return flat


def flatten_experiment(experiment: dict[str, Any]) -> dict[str, Value]:
    """The method's name, then every field of the experiment and of its method, from experiment.json.

    >>> method = {"name": "mine", "schedule": {"Constant": {"initial_lr": 0.1}}}
    >>> flatten_experiment({"memory": 20, "method": method})
    {'method': 'mine', 'memory': 20, 'schedule': 'Constant', 'schedule.initial_lr': 0.1}
    """
    method = dict(experiment["method"])
    settings = {name: value for name, value in experiment.items() if name != "method"}
    return {"method": method.pop("name")} | flatten_fields(settings) | flatten_fields(method)


def _split_part(value: Any) -> tuple[Any, dict[str, Any]]:
    """A part's name and its fields, of {"Uniform": {"count": 16}}; anything else is itself."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, fields),) = value.items()
        if isinstance(fields, dict):
            return name, fields
    return value, {}

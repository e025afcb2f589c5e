"""Which runs make one row of the table, and what the row is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.experiment.experiment import Experiment
    from iblurry.experiment.result import Result
    from iblurry.training import Training

Facts = dict[str, Any]  # by the paths that --set takes


def grouped(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Runs that differ only in their seed are a row: the method's name and whatever else tells it from the others."""
    _refuse_twins(results)
    alike: dict[str, list[Result]] = {}
    for result in results:
        alike.setdefault(replace(result.experiment, seed=0).digest, []).append(result)
    kinds = [group[0].experiment for group in alike.values()]
    return dict(zip(names(kinds), alike.values(), strict=True))


def names(kinds: Sequence[Experiment]) -> list[str]:
    """A name for each of several experiments: the method's, how it departs from the usual, and what sets it apart.

    `clib`, or `clib admission=Balanced`, or, beside another memory, `clib memory=200`.
    """
    apart = _differing([_settings(kind) for kind in kinds])  # in the settings, one method's from another's too
    called = []
    for kind, facts in zip(kinds, apart, strict=True):
        same = [other for other in kinds if other.method.name == kind.method.name]
        within = _differing([_parts(other) for other in same])[same.index(kind)]
        if (usual := _usual(kind)) is not None:
            unsaid = _settings(usual) | _parts(usual) | {"dataset": None}
            facts = _without(facts, unsaid) | _differing([_parts(kind), _parts(usual)])[0] | _without(within, unsaid)
        else:
            facts = facts | within
        words = [f"{path}={_short(value)}" for path, value in facts.items()]
        called.append(" ".join([kind.method.name, *words]))
    assert len(set(called)) == len(kinds), "two rows of one name would become one"
    return called


def settings(kinds: Sequence[Experiment]) -> str:
    """What all of them have in common, for a title."""
    common = {
        path: value for path, value in _settings(kinds[0]).items() if all(_settings(k)[path] == value for k in kinds)
    }
    words = [str(common["dataset"])] if "dataset" in common else []
    words += [f"{100 * common['share']:g} % of the images"] if common.get("share", 1) != 1 else []
    if {"disjoint", "blur"} <= set(common):
        words.append(f"i-Blurry-{common['disjoint']:g}-{common['blur']:g}")
    words += [f"{common['tasks']} tasks"] if "tasks" in common else []
    words += [f"memory {common['memory']:,}"] if "memory" in common else []
    return ", ".join(words)


def departures(experiment: Experiment, usual: Experiment) -> Facts:
    """What an experiment has otherwise than another, by the paths that --set takes; the seed aside."""
    return _differing([facts(one) for one in (experiment, usual)])[0]


def facts(experiment: Experiment) -> Facts:
    """Every field but the seed, by the paths that --set takes."""
    return _settings(experiment) | _parts(experiment)


def _without(facts: Facts, unsaid: Facts) -> Facts:
    return {path: value for path, value in facts.items() if path not in unsaid or unsaid[path] != value}


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _refuse_twins(results: Sequence[Result]) -> None:
    """One run counted as two seeds would make the spread too small."""
    first: dict[str, Result] = {}
    for result in results:
        twin = first.setdefault(result.experiment.digest, result)
        if twin is not result:
            raise InputError(f"{twin.folder} and {result.folder} are the same experiment with the same seed; name one.")


def _usual(experiment: Experiment) -> Experiment | None:
    """The same method as it comes on the same data set; None for a method of one's own."""
    from iblurry.experiment.experiment import Experiment
    from iblurry.methods import METHODS

    known = experiment.method.name.removesuffix("-released") in METHODS
    return Experiment.of(experiment.method.name, experiment.dataset) if known else None


def _settings(experiment: Experiment) -> Facts:
    """Everything but the method and the seed."""
    facts = {name: value for name, value in experiment.to_json().items() if name not in ("method", "seed", "augment")}
    facts["share"] = experiment.share  # also where the JSON leaves it unsaid
    return facts | {f"augment.{name}": value for name, value in asdict(experiment.augment).items()}


def _parts(experiment: Experiment) -> Facts:
    """The method, field by field; a slot is the names of its parts, and their fields come after it."""
    method = experiment.method
    facts = _training_facts(method, "")
    for group in ("pace", "head"):
        facts |= {f"{group}.{field}": value for field, value in asdict(getattr(method, group)).items()}
    return facts | (_training_facts(method.refit, "refit.") if method.refit else {})


def _training_facts(training: Training, prefix: str) -> Facts:
    facts: Facts = {f"{prefix}{slot}": "" for slot in training.slots}
    for place, part in training.parts():
        slot = prefix + place.partition(".")[0]
        ((name, fields),) = part.to_json().items()
        facts[slot] = f"{facts[slot]},{name}".strip(",")
        facts |= {f"{prefix}{place}.{field}": value for field, value in fields.items()}
    ((name, fields),) = training.to_json()["optimizer"].items()
    return facts | {f"{prefix}optimizer": name} | {f"{prefix}optimizer.{field}": fields[field] for field in fields}


def _differing(table: Sequence[Facts]) -> list[Facts]:
    """Of each, what is not the same in all; fields of parts only where the parts are the same."""
    paths = list(dict.fromkeys(path for facts in table for path in facts))
    odd = [path for path in paths if any(facts.get(path) != table[0].get(path) for facts in table)]
    told = [path for path in odd if not any(path.startswith(f"{other}.") for other in odd)]
    return [{path: facts[path] for path in told if path in facts} for facts in table]

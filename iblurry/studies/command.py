"""The command that runs an experiment, told from the experiment alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from iblurry.errors import InputError
from iblurry.experiment.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.methods import METHODS
from iblurry.studies.run_rows import departures

OPTIONS = ("disjoint", "blur", "tasks", "mode", "samples", "share", "published", "memory", "network", "query_every")


def command(experiments: Sequence[Experiment]) -> str | None:
    """`iblurry run ...` for experiments that differ only in their seed; None for what only Python can build.

    >>> command([Experiment.of("clib", "digits", memory=80, seed=seed) for seed in (1, 2)])
    'iblurry run clib --dataset digits --seeds 1,2 --memory 80'
    """
    wanted = experiments[0]
    name, seeds = wanted.method.name, sorted(experiment.seed for experiment in experiments)
    if name.removesuffix("-released") not in METHODS:
        return None
    words = ["iblurry", "run", name, "--dataset", wanted.dataset, "--seeds", ",".join(map(str, seeds))]
    usual = Experiment.of(name, wanted.dataset)
    given = {option: value for option, value in departures(wanted, usual).items() if option in OPTIONS}
    made = Experiment.of(name, wanted.dataset, seed=wanted.seed, **given)
    for option, value in given.items():
        words += [f"--{option.replace('_', '-')}", _text(value)]
    for _ in ("parts", "and then their fields"):
        for path, value in departures(wanted, made).items():
            change = f"{path}={_text(value)}"
            try:
                made = edit(made, change)
            except InputError:  # a step on the way that is no method by itself
                return None
            words += ["--set", change]
    return shlex.join(words) if made.digest == wanted.digest else None


def _text(value: Any) -> str:
    """As --set reads it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

"""Search spaces: what `--space` says of a field, as a range of numbers or as choices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from iblurry.components.edit import edit
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.studies.search.point import apply_changes, check_paths, check_selectable, split_assignment, split_values

DIGITS = 4  # of a number, behind the first digit that tells it from the others of its range


@dataclass(frozen=True)
class Space:
    """The values that a search may give to a field.

    Parameters
    ----------
    path : str
        The field, as --set names it.
    choices : tuple of str
        Its values, as --set writes them; the ends of a range.
    low, high : float, optional
        The ends of a range of numbers, which belong to it; None: the choices are all there is.
    log : bool
        Whether orders of magnitude are equally likely, instead of numbers.
    """

    path: str
    choices: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    log: bool = False

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.path}={','.join(f'({one})' if ',' in one else one for one in self.choices)}"
        return f"{self.path}={'..'.join(self.choices)}{':log' if self.log else ''}"

    def suggest(self, trial: Any, *, whole: bool) -> str:
        """The value that Optuna proposes to a trial, as --set writes it; `whole` asks for whole numbers."""
        if self.low is None or self.high is None:
            return str(trial.suggest_categorical(self.path, self.choices))
        if whole:
            return str(trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log))
        return format_float(trial.suggest_float(self.path, self.low, self.high, log=self.log), self.low, self.high)


def parse_spaces(texts: Sequence[str], taken: Iterable[str] = ()) -> list[Space]:
    """What --space says; `taken` are paths that other options set.

    >>> [space] = parse_spaces(["schedule.initial_lr=1e-4..1e-2:log"])
    >>> space.low, space.high, space.log
    (0.0001, 0.01, True)
    """
    spaces = [_parse_space(*split_assignment(text, "--space")) for text in texts]
    check_paths([space.path for space in spaces], taken, "--space")
    return spaces


def check_spaces(experiment: Experiment, spaces: Sequence[Space]) -> list[Experiment]:
    """The experiments at both ends of every range and at every choice, one field at a time.

    Raises what is wrong with a path or a value before anything runs.
    """
    check_selectable([experiment])
    first = {space.path: space.choices[0] for space in spaces}
    found = [apply_changes(experiment, first)]
    for space in spaces:
        alone = [edit(experiment, f"{space.path}={choice}") for choice in space.choices]
        if len({one.digest for one in alone}) < len(alone):
            raise InputError(f"--space {space} has a value twice; give each once.")
        found += [apply_changes(experiment, first | {space.path: choice}) for choice in space.choices[1:]]
    return list({one.digest: one for one in found}.values())


def is_whole(experiment: Experiment, space: Space) -> bool:
    """Whether a range is one of whole numbers: its ends are, and the field takes no others."""
    if space.low is None or not all(re.fullmatch(r"[+-]?\d+", end) for end in space.choices):
        return False
    try:
        edit(experiment, f"{space.path}={int(space.low)}.5")
    except InputError:
        return True
    return False


def format_float(value: float, low: float, high: float) -> str:
    """A number with as many digits as tell it from its neighbours in a range, and inside the range.

    >>> format_float(0.00031622776601683794, 1e-4, 1e-2), format_float(0.99953123456, 0.999, 0.9999)
    ('0.00031623', '0.99953123')
    """
    scale = min(high - low, abs(value) or high - low)
    rounded = round(value, DIGITS - math.floor(math.log10(scale)))
    return repr(min(max(rounded, low), high))


def _parse_space(path: str, text: str) -> Space:
    ends, log = text.removesuffix(":log"), text.endswith(":log")
    low, dots, high = (word.strip() for word in ends.partition(".."))
    numbers = list(_numbers([low, high])) if dots else []
    if len(numbers) == 2:
        if not numbers[0] < numbers[1]:
            raise InputError(f"--space {path}={text} is not a range; write the smaller number first: {path}=LOW..HIGH.")
        if log and numbers[0] <= 0:
            raise InputError(f"--space {path}={text}: a range on a log scale starts above 0.")
        return Space(path, (low, high), numbers[0], numbers[1], log)
    choices = split_values(text, f"--space {path}")
    if len(choices) == 1:
        raise InputError(
            f"--space {path}={text} has only one value; write a range LOW..HIGH or LOW..HIGH:log, or several values "
            "between commas."
        )
    return Space(path, choices)


def _numbers(words: Iterable[str]) -> Iterator[float]:
    for word in words:
        try:
            number = float(word)
        except ValueError:
            return
        if math.isfinite(number):
            yield number

"""The desk of a parent: which runs wait, who works at which, and what becomes of one whose worker is lost."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from typing import Any

from iblurry.errors import IblurryError, StoppedError
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.launch.task import Task

Given = tuple[int, Experiment, Hardware]  # a run and its number at the desk
LATER = "later"  # the answer to who asks for a run while there is none, but one may come back
TRIES = 4  # of a run whose workers are lost, and of workers lost without one
AWAY = 1.0  # seconds until a run that another program has in hand is tried again


class Desk:
    """Workers are known by anything that can be a key; runs by their number.

    `tolerant`: a run that fails or is lost does not stop the others. A lost one is handed out again and goes on from
    its checkpoint; one that another program has in hand is tried again until it is free or finished.
    """

    def __init__(self, tasks: Sequence[Task], *, tolerant: bool = False) -> None:
        self.tasks, self.tolerant = tasks, tolerant
        self.waiting = deque(range(len(tasks)))
        self.away: list[tuple[float, int]] = []  # in another program's hands: when to try again
        self.at_work: dict[Hashable, set[int]] = {}
        self.losses: Counter[int | None] = Counter()
        self.failures: dict[int, IblurryError] = {}  # of a tolerant desk
        self.failed: IblurryError | None = None  # of another: the first
        self.lost: list[str] = []  # sentences

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to hand out, now or later."""
        return not self.waiting and not (self.tolerant and (self.away or any(self.at_work.values())))

    def clear(self) -> None:
        """Nothing more is handed out."""
        self.waiting.clear()
        self.away.clear()

    def take(self, worker: Hashable) -> Given | str | None:
        """The next run for this worker, or LATER, or None when there will be none."""
        now = time.monotonic()
        self.waiting.extend(number for when, number in self.away if when <= now)
        self.away = [one for one in self.away if one[0] > now]
        if not self.waiting:
            return None if self.is_over else LATER
        number = self.waiting.popleft()
        self.at_work.setdefault(worker, set()).add(number)
        return number, self.tasks[number].experiment, self.tasks[number].where

    def hear(self, worker: Hashable, verb: str, number: int, words: Sequence[Any]) -> None:
        """What a worker says of a run: that it is done, fails, or is busy elsewhere; or what a watcher is told."""
        if verb == "done":
            self.at_work[worker].discard(number)
        elif verb == "fail":
            self.at_work[worker].discard(number)
            self._fail(number, words[0])
        elif verb == "busy":
            self.at_work[worker].discard(number)
            if all(number != one for _, one in self.away):
                self.away.append((time.monotonic() + AWAY, number))
        else:
            getattr(self.tasks[number].watcher, verb)(*words)

    def bury(self, worker: Hashable, how: str) -> None:
        """A worker is gone; `how` is empty where it left by itself."""
        numbers: list[int | None] = [*sorted(self.at_work.pop(worker, ()))]
        if how:
            for number in numbers or [None]:
                self._lose(number, how)

    def _lose(self, number: int | None, how: str) -> None:
        what = "A worker" if number is None else f"The worker of {self.tasks[number].experiment.name}"
        self.losses[number] += 1
        if not self.tolerant:
            self.lost.append(f"{what} {how}.")
        elif self.losses[number] < TRIES:
            if number is not None:
                self.tasks[number].watcher.say(f"its worker {how}; another one goes on from its last checkpoint")
                self.waiting.appendleft(number)
        elif number is not None:
            times = f"{what} {how}, the {TRIES}th one. What was saved is kept, and the same command tries again."
            self.failures[number] = StoppedError(times)
        else:
            self.failed = StoppedError(f"{what} {how} before it had begun, the {TRIES}th one. Nothing was lost.")

    def _fail(self, number: int, error: IblurryError) -> None:
        if self.tolerant:
            self.failures[number] = error
            self.tasks[number].watcher.say(f"failed: {error}")
        else:
            self.failed = self.failed or error

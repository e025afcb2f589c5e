"""Who watches a run: told when it begins, how far and how good it is, and what there is to remark."""

from __future__ import annotations

from typing import Protocol


class Callback(Protocol):
    """Whoever wants to know how a run is going; the command line has one that draws bars."""

    def begin(self, name: str, at: int, samples: int) -> None: ...
    def move(self, at: int, accuracy: float | None, rate: float) -> None: ...
    def refit(self, done: int, updates: int) -> None: ...
    def say(self, sentence: str) -> None: ...


class Silent:
    """Shows nothing; keeps what was said and how far the run is."""

    def __init__(self) -> None:
        self.at = 0
        self.refits = (0, 0)  # updates done and to do, of the refit last heard of
        self.said: list[str] = []

    def begin(self, name: str, at: int, samples: int) -> None:
        self.at = at

    def move(self, at: int, accuracy: float | None, rate: float) -> None:
        self.at = at

    def refit(self, done: int, updates: int) -> None:
        self.refits = done, updates

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

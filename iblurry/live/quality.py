"""Quality: how often the learner knew a sample before it learnt it, and how the mix of classes moves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 1000  # samples that count as recent; those before them are compared with
POINTS = 400  # of the curve, at most: then every other one goes
FIRST_EVERY = 10  # samples between two points, at first
UNTESTED, WRONG, RIGHT = -1, 0, 1


class Quality:
    """Test-then-train. A class nobody has met cannot be known, so its first sample is no test."""

    def __init__(self, classes: int, *, window: int = WINDOW) -> None:
        self.window = window
        self.seen, self.tested, self.right = (np.zeros(classes, np.int64) for _ in range(3))  # by head row
        self.at = 0
        self.rows = np.zeros(2 * window, np.int64)  # of the last samples, in a ring
        self.outcomes = np.full(2 * window, UNTESTED, np.int64)
        self.every = FIRST_EVERY
        self.points: list[dict[str, Any]] = []

    def note(self, row: int, outcome: int) -> None:
        """The next sample, before it is learnt."""
        place = self.at % len(self.rows)
        self.rows[place], self.outcomes[place] = row, outcome
        self.at += 1
        self.seen[row] += 1
        if outcome != UNTESTED:
            self.tested[row] += 1
            self.right[row] += outcome

    def mark(self, *, learning_rate: float, classes: int) -> dict[str, Any] | None:
        """A new point of the curve, where one is due."""
        if self.at % self.every:
            return None
        point = {
            "at": self.at,
            "accuracy": self.accuracy,
            "recent_accuracy": self.recent_accuracy,
            "learning_rate": learning_rate,
            "classes": classes,
        }
        self.points.append(point)
        if len(self.points) > POINTS:
            self.every *= 2
            self.points = [kept for kept in self.points if kept["at"] % self.every == 0]
        return point

    @property
    def accuracy(self) -> float | None:
        """Of all tests so far."""
        tested = int(self.tested.sum())
        return int(self.right.sum()) / tested if tested else None

    @property
    def recent_accuracy(self) -> float | None:
        outcomes = self.outcomes[self._last(0)]
        return _share(outcomes)

    @property
    def drift(self) -> float | None:
        """Half the sum over classes of how much their share has changed from one window to the next, 0 to 1."""
        recent, before = self._shares()
        return None if before is None else float(np.abs(recent - before).sum() / 2)

    def classes(self, labels: list[str]) -> list[dict[str, Any]]:
        """A row for each."""
        recent, before = self._shares()
        rows, outcomes = self.rows[self._last(0)], self.outcomes[self._last(0)]
        return [
            {
                "label": label,
                "seen": int(self.seen[row]),
                "tested": int(self.tested[row]),
                "right": int(self.right[row]),
                "accuracy": int(self.right[row]) / int(self.tested[row]) if self.tested[row] else None,
                "recent_accuracy": _share(outcomes[rows == row]),
                "recent_share": float(recent[row]),
                "before_share": None if before is None else float(before[row]),
            }
            for row, label in enumerate(labels)
        ]

    def _shares(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Of the classes, in the recent window and in the one before it; None while that is not full."""
        recent, before = (np.bincount(self.rows[self._last(back)], minlength=len(self.seen)) for back in (0, 1))
        whole = self.at >= 2 * self.window
        return recent / max(1, recent.sum()), before / self.window if whole else None

    def _last(self, back: int) -> NDArray[np.int64]:
        """Where in the ring the samples of a window lie; `back` windows ago."""
        end = self.at - back * self.window
        return np.arange(max(0, end - self.window), max(0, end)) % len(self.rows)

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name) for name in ("seen", "tested", "right", "rows", "outcomes")}
        return arrays | {"at": self.at, "window": self.window, "every": self.every, "points": self.points}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def _share(outcomes: NDArray[np.int64]) -> float | None:
    """Of right answers among those that were tested."""
    tested = int((outcomes != UNTESTED).sum())
    return int((outcomes == RIGHT).sum()) / tested if tested else None

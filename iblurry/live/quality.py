"""What a service measures of its own answers: prequential accuracy, a held-out set, and calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.live.messages import Calibration
from iblurry.network import FLOOR

WINDOW = 1000  # samples that count as recent; drift compares them with as many before them
POINTS = 400  # of the curve, at most: then every other one is dropped
FIRST_EVERY = 10  # samples between two points, at first
UNTESTED, NO_CLASS = -1, -2  # in place of an answer; the second names a class that was deleted, or is not known
DELETED = -1  # the row of a sample whose class was deleted
PER_UPDATE = 4  # questions for each sample learnt, and for each update of rehearsal: less than a tenth of its work
ASKED = 32  # held-out samples that are asked about at once
PAIRS = 300  # answers kept, the newest
LEAST = 20  # of them before a temperature is fitted
RIGHT = 10  # answers added that were right: a model that began by guessing is not held to be one that guesses
SHARE = 10  # it is fitted again after a tenth as many new ones
RANGE, HALVINGS = 14.0, 18  # of the temperature's logarithm, either side of 0: found to a ten-thousandth
NONE = -1  # where there is no answer, or no longer


class Quality:
    """Prequential (test-then-train) accuracy, and how the mix of classes changes.

    The first sample of a class is not tested: the model cannot know it. `window` samples count as recent. `first`
    samples were learnt before the service began.
    """

    def __init__(self, classes: int, *, window: int = WINDOW, first: int = 0) -> None:
        self.window, self.first = window, first
        self.seen, self.tested, self.right = (np.zeros(classes, np.int64) for _ in range(3))  # by head row
        self.met = np.zeros(classes, np.int64)  # by head row: the number of its first sample; 0 where there is none
        self.at = 0
        self.rows = np.zeros(2 * window, np.int64)  # of the last samples, a ring buffer
        self.answers = np.full(2 * window, UNTESTED, np.int64)  # what was answered to them before they were learnt
        self.totals = [0, 0]  # tested and right since the beginning, whatever became of their classes
        self.every = FIRST_EVERY
        self.points: list[dict[str, Any]] = []

    def record(self, row: int, answer: int) -> None:
        """The next sample, before it is learnt: its class and the model's answer, both as rows of the head."""
        place = self.at % len(self.rows)
        self.rows[place], self.answers[place] = row, answer
        self.at += 1
        if not self.seen[row]:
            self.met[row] = self.first + self.at
        self.seen[row] += 1
        if answer != UNTESTED:
            is_right = int(answer == row)
            self.tested[row] += 1
            self.right[row] += is_right
            self.totals = [self.totals[0] + 1, self.totals[1] + is_right]

    def close_class(self, row: int, into: int | None) -> None:
        """A class was merged into another, which takes over its counts, or deleted with them.

        Recent answers that took one of two merged classes for the other are right from now on; those that name a
        deleted class stay wrong.
        """
        for counts in (self.seen, self.tested, self.right):
            if into is not None:
                counts[into] += counts[row]
            counts[row] = 0
        if into is not None:
            self.met[into] = min(filter(None, (self.met[row], self.met[into])), default=0)
        self.met[row] = 0
        recent = self.rows == row
        if into is None:
            self.answers[recent] = UNTESTED
        self.rows[recent] = DELETED if into is None else into
        self.answers[self.answers == row] = NO_CLASS if into is None else into

    def add_point(
        self, *, learning_rate: float, classes: int, time: float | None = None, held_out_accuracy: float | None = None
    ) -> dict[str, Any] | None:
        """A new point of the curve, if one is due."""
        if self.at % self.every:
            return None
        point = {
            "at": self.first + self.at,
            "time": time,
            "accuracy": self.accuracy,
            "recent_accuracy": self.recent_accuracy,
            "tested": self.totals[0],
            "right": self.totals[1],
            "held_out_accuracy": held_out_accuracy,
            "learning_rate": learning_rate,
            "classes": classes,
        }
        self.points.append(point)
        if len(self.points) > POINTS:
            self.every *= 2
            self.points = [kept for kept in self.points if (kept["at"] - self.first) % self.every == 0]
        return point

    @property
    def accuracy(self) -> float | None:
        """Over all tested samples."""
        tested = int(self.tested.sum())
        return int(self.right.sum()) / tested if tested else None

    @property
    def recent_accuracy(self) -> float | None:
        recent = self._window(0)
        return _accuracy(self.rows[recent], self.answers[recent])

    @property
    def drift(self) -> float | None:
        """Total variation between the class shares of the last two windows, 0 to 1; None before there are two."""
        recent, before = self._shares()
        return None if before is None else float(np.abs(recent - before).sum() / 2)

    def classes(self, labels: list[str]) -> list[dict[str, Any]]:
        """The rows of /v1/classes."""
        recent, before = self._shares()
        rows, answers = self.rows[self._window(0)], self.answers[self._window(0)]
        return [
            {
                "label": label,
                "first": int(self.met[row]) or None,
                "seen": int(self.seen[row]),
                "tested": int(self.tested[row]),
                "right": int(self.right[row]),
                "accuracy": int(self.right[row]) / int(self.tested[row]) if self.tested[row] else None,
                "recent_accuracy": _accuracy(rows[rows == row], answers[rows == row]),
                "recent_share": float(recent[row]),
                "before_share": None if before is None else float(before[row]),
            }
            for row, label in enumerate(labels)
        ]

    def confusion(self, labels: list[str]) -> list[dict[str, Any]]:
        """Which classes were taken for which within the recent window: the entries of /v1/confusion.

        Only pairs that occurred, so there are at most `window` of them, however many classes there are.
        """
        recent = self._window(0)
        rows, answers = self.rows[recent], self.answers[recent]
        tested = answers != UNTESTED
        pairs, counts = np.unique(np.stack([rows[tested], answers[tested]]), axis=1, return_counts=True)
        return [
            {"label": labels[row], "answer": None if answer == NO_CLASS else labels[answer], "count": count}
            for (row, answer), count in zip(pairs.T.tolist(), counts.tolist(), strict=True)
        ]

    def _shares(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Class shares in the recent window and in the one before it; None while that is not full."""
        windows = (self.rows[self._window(back)] for back in (0, 1))
        recent, before = (np.bincount(rows[rows != DELETED], minlength=len(self.seen)) for rows in windows)
        whole = self.at >= 2 * self.window
        return recent / max(1, recent.sum()), before / self.window if whole else None

    def _window(self, back: int) -> NDArray[np.int64]:
        """Places in the ring buffer of the window that ended `back` windows ago."""
        end = self.at - back * self.window
        return np.arange(max(0, end - self.window), max(0, end)) % len(self.rows)

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name) for name in ("seen", "tested", "right", "met", "rows", "answers")}
        numbers = {"at": self.at, "first": self.first, "window": self.window, "every": self.every}
        return arrays | numbers | {"totals": self.totals, "points": self.points}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.state_dict():
            setattr(self, name, state[name])


def _accuracy(rows: NDArray[np.int64], answers: NDArray[np.int64]) -> float | None:
    """Share of right answers among the tested samples."""
    tested = answers != UNTESTED
    return int((rows == answers)[tested].sum()) / int(tested.sum()) if tested.any() else None


@dataclass
class HeldOutSample:
    """A sample, and whether the last answer to it was right: None while its class is not known."""

    label: str
    image: torch.Tensor  # as the learner stores it: pixels, or features
    is_right: bool | None = None


class HeldOut:
    """The newest `limit` held-out samples.

    They are asked about in turn, so that the cost does not grow with their number: an answer may be as many samples
    old as a quarter of the set has.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.samples: list[HeldOutSample] = []
        self.turn = 0  # of which sample it is
        self.owed = 0  # questions

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def accuracy(self) -> float | None:
        """Share of right answers, among those of known classes."""
        answered = [one.is_right for one in self.samples if one.is_right is not None]
        return sum(answered) / len(answered) if answered else None

    def add(self, image: torch.Tensor, label: str) -> None:
        """Where there is no room, the oldest leaves. The next question is about this one."""
        self._keep(self.samples[-self.limit + 1 :] if self.limit > 1 else [])
        self.samples.append(HeldOutSample(label, image))
        self.turn = len(self.samples) - 1

    def due(self, updates: int) -> list[HeldOutSample]:
        """Returns the samples to be asked about after so many more updates, often none."""
        self.owed += PER_UPDATE * updates
        return self.next(self.owed) if self.owed >= min(ASKED, len(self.samples)) else []

    def next(self, count: int) -> list[HeldOutSample]:
        """Takes so many samples in turn, none of them twice."""
        size, self.owed = len(self.samples), 0
        found = [self.samples[(self.turn + one) % size] for one in range(min(count, size))]
        self.turn = (self.turn + len(found)) % size if size else 0
        return found

    def rename(self, label: str, to: str) -> None:
        """The class has another name, or is part of another."""
        for sample in self.samples:
            sample.label = to if sample.label == label else sample.label

    def delete(self, label: str) -> None:
        """The class is gone, and its samples with it."""
        self._keep([sample for sample in self.samples if sample.label != label])

    def _keep(self, samples: list[HeldOutSample]) -> None:
        if len(samples) < len(self.samples):
            self.samples, self.turn = samples, 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "labels": [sample.label for sample in self.samples],
            "right": [sample.is_right for sample in self.samples],
            "images": [torch.stack([sample.image for sample in self.samples])] if self.samples else [],
            "turn": self.turn,
            "owed": self.owed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        images = state["images"][0] if state["images"] else []
        found = zip(state["labels"], images, state["right"], strict=True)
        self.samples = [HeldOutSample(*one) for one in found]
        self.turn, self.owed = state["turn"], state["owed"]


class Calibrator:
    """The last answers to samples of known classes, each given before the sample was learnt, and what fits them.

    Temperature scaling: one number divides all logits, that of the least negative log-likelihood of the true classes.
    It changes no answer. Targets are smoothed, 1 - 1 / (n + 2) for the true class of n answers, so that a record
    without a mistake does not make answers certain (Platt, 1999).

    Guo et al., "On calibration of modern neural networks", ICML 2017.
    """

    def __init__(self, rows: int) -> None:
        self.logits = torch.full((PAIRS, rows), FLOOR)  # a ring buffer; FLOOR for a closed row of the head
        self.rows = torch.full((PAIRS,), NONE)  # of the true classes
        self.at = 0  # answers recorded
        self.fitted = Calibration()

    def record(self, logits: Tensor, row: int) -> None:
        """An answer (rows,) to a sample of class `row`; not where that could not have been the answer."""
        if logits[row] <= FLOOR:
            return
        self.logits[self.at % PAIRS], self.rows[self.at % PAIRS] = logits, row
        self.at += 1
        if self.at % max(1, min(self.at, PAIRS) // SHARE) == 0:
            self._fit()

    def close_class(self, row: int, into: int | None) -> None:
        """A class was merged into another, or deleted with its samples: it is never answered again."""
        if into is not None:
            self.logits[:, into] = torch.maximum(self.logits[:, into], self.logits[:, row])
        self.logits[:, row] = FLOOR
        self.rows[self.rows == row] = NONE if into is None else into
        self._fit()

    def _fit(self) -> None:
        kept = self.rows != NONE
        logits, self.fitted = self.logits[kept, : self._width], Calibration()
        if len(logits) >= LEAST:
            temperature = fit_temperature(logits, self.rows[kept])
            confidences = np.sort(to_probabilities(logits, temperature).max(1))
            self.fitted = Calibration(temperature, tuple(confidences.tolist()))

    @property
    def _width(self) -> int:
        """Rows of the head up to the last one that was open in an answer; 1 at least."""
        return int((self.logits > FLOOR).any(0).cumsum(0).argmax()) + 1

    def state_dict(self) -> dict[str, Any]:
        made = {"logits": self.logits[:, : self._width], "rows": self.rows, "at": self.at}
        return made | {"temperature": self.fitted.temperature, "confidences": list(self.fitted.confidences)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.logits[:, : state["logits"].shape[1]] = state["logits"]
        self.rows, self.at = state["rows"], state["at"]
        self.fitted = Calibration(state["temperature"], tuple(state["confidences"]))


def to_probabilities(logits: Tensor, temperature: float) -> NDArray[np.float64]:
    """Softmax of logits (B, classes) over the temperature; a closed class, at FLOOR, stays there."""
    values = logits.double().cpu().numpy()  # numpy takes half of torch's time for so few numbers
    scaled = np.where(values <= FLOOR, FLOOR, (values - values.max(1, keepdims=True)) / temperature)
    weights = np.exp(scaled - scaled.max(1, keepdims=True))
    shares: NDArray[np.float64] = weights / weights.sum(1, keepdims=True)
    return shares


def fit_temperature(logits: Tensor, rows: Tensor) -> float:
    """The temperature of the least smoothed negative log-likelihood, which is convex in its inverse.

    `logits` (n, classes), closed ones at FLOOR, are answers to samples of the classes `rows` (n,). As many as RIGHT are
    added that are like these on average, and right; the best logit of each is 0, so they add nothing to `wanted`.
    """
    is_open = logits > FLOOR
    values = (logits.double() - logits.amax(1, keepdim=True)).masked_fill(~is_open, 0.0)
    smooth = 1 / (len(values) + 2)
    wanted = (1 - smooth) * values.gather(1, rows[:, None]).sum() + smooth * (values.sum(1) / is_open.sum(1)).sum()
    low, high = -RANGE, RANGE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        shares = (values / np.exp(middle)).masked_fill(~is_open, -torch.inf).softmax(1)
        low, high = (low, middle) if (1 + RIGHT / len(values)) * (shares * values).sum() < wanted else (middle, high)
    return float(np.exp((low + high) / 2))

"""Calibration: a temperature and a record of confidences, from what was answered to samples before they were learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.live.messages import Calibration
from iblurry.network import FLOOR

PAIRS = 300  # answers kept, the newest
LEAST = 20  # of them before a temperature is fitted
RIGHT = 10  # answers added that were right: a model that began by guessing is not held to be one that guesses
SHARE = 10  # it is fitted again after a tenth as many new ones
RANGE, HALVINGS = 14.0, 18  # of the temperature's logarithm, either side of 0: found to a ten-thousandth
NONE = -1  # where there is no answer, or no longer


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

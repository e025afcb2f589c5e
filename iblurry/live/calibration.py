"""Calibration: a temperature and a record of confidences, from what was answered to samples before they were learnt."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.live.messages import Calibration
from iblurry.network.network import FLOOR

PAIRS = 500  # answers kept, the newest
LEAST = 20  # of them before a temperature is fitted
SHARE = 10  # it is fitted again after a tenth as many new ones
RANGE = (-14.0, 14.0)  # of the temperature's natural logarithm
HALVINGS = 18  # of this range: to a ten-thousandth of the temperature


class Calibrator:
    """The last answers to samples of known classes, each given before the sample was learnt, and what fits them.

    Temperature scaling: one number divides all logits, that of the least negative log-likelihood of the true classes.
    It changes no answer. Targets are smoothed, 1 - 1 / (n + 2) for the true class of n pairs, so that a record without
    a mistake does not make answers certain (Platt, 1999).

    Guo et al., "On calibration of modern neural networks", ICML 2017.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows  # of the head
        self.pairs: deque[tuple[Tensor, int]] = deque(maxlen=PAIRS)  # logits (rows,), FLOOR where closed; true row
        self.new = 0  # pairs since the last fit
        self.fitted = Calibration()

    def record(self, logits: Tensor, row: int) -> None:
        """An answer (rows,) to a sample of class `row`; not where that could not have been the answer."""
        if logits[row] <= FLOOR:
            return
        self.pairs.append((logits.float().cpu().clone(), row))
        self.new += 1
        if len(self.pairs) >= LEAST and self.new >= max(1, len(self.pairs) // SHARE):
            self._fit()

    def close_class(self, row: int, into: int | None) -> None:
        """A class was merged into another, or deleted with its samples: it is never answered again."""
        pairs = list(self.pairs)
        self.pairs.clear()
        for logits, true in pairs:
            if into is not None:
                logits[into] = torch.maximum(logits[into], logits[row])
            logits[row] = FLOOR
            now = into if true == row else true
            if now is not None:
                self.pairs.append((logits, now))
        self._fit()

    def _fit(self) -> None:
        self.new, self.fitted = 0, Calibration()
        if len(self.pairs) >= LEAST:
            logits = self._logits()
            temperature = fit_temperature(logits, torch.tensor([row for _, row in self.pairs]))
            confidences = np.sort(to_probabilities(logits, temperature).max(1))
            self.fitted = Calibration(temperature, tuple(confidences.tolist()))

    def _logits(self) -> Tensor:
        """(n, classes), without the classes that were not met in any of them."""
        logits = torch.stack([pair[0] for pair in self.pairs])
        return logits[:, : int((logits > FLOOR).any(0).nonzero().max()) + 1]

    def state_dict(self) -> dict[str, Any]:
        return {
            "logits": [self._logits()] if self.pairs else [],
            "rows": [row for _, row in self.pairs],
            "new": self.new,
            "temperature": self.fitted.temperature,
            "confidences": list(self.fitted.confidences),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        logits = torch.full((len(state["rows"]), self.rows), FLOOR)
        for values in state["logits"]:
            logits[:, : values.shape[1]] = values
        self.pairs = deque(zip(logits, state["rows"], strict=True), maxlen=PAIRS)
        self.new, self.fitted = state["new"], Calibration(state["temperature"], tuple(state["confidences"]))


def to_probabilities(logits: Tensor, temperature: float) -> NDArray[np.float64]:
    """Softmax of logits (B, classes) over the temperature; a closed class, at FLOOR, stays there."""
    values = logits.double()
    scaled = (values - values.amax(1, keepdim=True)) / temperature
    shares: NDArray[np.float64] = scaled.masked_fill(values <= FLOOR, FLOOR).softmax(1).cpu().numpy()
    return shares


def fit_temperature(logits: Tensor, rows: Tensor) -> float:
    """The temperature of the least smoothed negative log-likelihood, which is convex in its inverse.

    Parameters
    ----------
    logits : Tensor
        (n, classes); classes at FLOOR are closed.
    rows : Tensor
        The true class of each, (n,).
    """
    values = logits.double()
    is_open = values > FLOOR
    values = (values - values.amax(1, keepdim=True)).masked_fill(~is_open, 0.0)
    smooth = 1 / (len(values) + 2)
    wanted = (1 - smooth) * values.gather(1, rows[:, None]).sum() + smooth * (values.sum(1) / is_open.sum(1)).sum()
    low, high = RANGE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        shares = (values / np.exp(middle)).masked_fill(~is_open, -torch.inf).softmax(1)
        low, high = (low, middle) if (shares * values).sum() < wanted else (middle, high)
    return float(np.exp((low + high) / 2))

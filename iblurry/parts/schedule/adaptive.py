"""Adaptive: tries a higher and a lower rate in turn and follows the one that lowers the memory's loss more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.parts.context import Update
from iblurry.parts.part import column, scratch, state
from iblurry.parts.schedule.schedule import Schedule

if TYPE_CHECKING:
    from iblurry.engine.eager import AsyncRead


class Adaptive(Schedule):
    """CLIB's adaptive learning rate (Algorithm 3): tries a higher and a lower one, keeps what lowers the loss more.

    Parameters
    ----------
    initial_lr : float
        The base learning rate at the start.
    gamma : float
        LR step, in (0, 1).
    history : int
        Trials m of each kind that a test compares.
    alpha : float
        Significance level, in (0, 0.5).
    trial : int
        Rounds in a trial.
    ignore : int
        Rounds at the start whose gains do not count.
    rule : {"paper", "released"}
        "released": the pair is (base, base*gamma), base moves by gamma, an event keeps the phase.
    test : {"student", "welch"}
        The one-sided t-test.
    head_restarts : bool
        Released: a new class puts the head back to `initial_lr` until the next trial.

    Notes
    -----
    Trials of `trial` rounds alternate between base/gamma and base*gamma; each yields the decrease of the memory's mean
    loss. With `history` trials of both kinds at hand, a one-sided t-test decides: base <- base * gamma^2 if the lower
    rate did better (p < alpha), base / gamma^2 if the higher did (p > 1 - alpha); both histories then start again.

    Differs: the paper gives neither the length of a trial nor a warm-up; both are the released program's, and so is
    counting rounds (training calls), not updates: at ER's pace (`clib-stream`), where a round holds 8 samples, a trial
    spans 8 times as many updates as CLIB's. The decrease is taken over rows not rewritten during the trial.

    Koh et al., "Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime
    Inference", ICLR 2022.
    """

    ranges: ClassVar[dict[str, str]] = {
        "gamma": "(0, 1)",
        "alpha": "(0, 0.5)",
        "history": "[2, inf)",
        "trial": "[1, inf)",
        "ignore": "[0, inf)",
    }

    needs_losses: ClassVar[bool] = True
    stores: ClassVar[str] = "each row's loss before the trial of a rate"
    released_fields: ClassVar[dict[str, Any]] = {"rule": "released", "test": "welch", "head_restarts": True}

    gamma: float = 0.95
    history: int = 10
    alpha: float = 0.05
    trial: int = 10
    ignore: int = 20
    rule: Literal["paper", "released"] = "paper"
    test: Literal["student", "welch"] = "student"
    head_restarts: bool = False

    base: float = state(lambda part: part.initial_lr)
    is_high: bool = state(lambda part: True)
    rounds: int = state(lambda part: 0)
    high_gains: list[float] = state(lambda part: [])
    low_gains: list[float] = state(lambda part: [])
    head_is_fresh: bool = state(lambda part: False)
    before: Tensor = column("loss before the trial")  # (capacity + 1,)
    pending: AsyncRead | None = scratch(lambda part: None)  # the gain of the last trial, on its way to the host
    mark: Tensor = state(lambda part: torch.zeros_like(part.context.memory.clock))  # the memory's clock then

    @property
    def lr(self) -> float:
        self._finish_read()
        if not self.is_high:
            return self.base * self.gamma
        return self.base / self.gamma if self.rule == "paper" else self.base

    @property
    def separate_head_lr(self) -> bool:
        return self.head_restarts

    @property
    def head_lr(self) -> float:
        self._finish_read()
        return self.initial_lr if self.head_is_fresh else self.lr

    def on_class(self, label: int) -> None:
        self._finish_read()
        self.head_is_fresh = self.head_restarts

    def on_amended(self) -> None:
        self._finish_read()
        self.mark.fill_(-1)  # no row is the same any more: the gain of this trial does not count

    def step(self, update: Update) -> None:
        if not update.last_of_round or update.losses is None:
            return
        self.rounds += 1
        if self.rounds % self.trial:
            return
        from iblurry.engine.eager import AsyncRead

        self._finish_read()
        counts = self.rounds > max(self.ignore, self.trial)
        gain = AsyncRead(self._gain(update.losses)) if counts else None
        self.before[:-1].copy_(update.losses)
        self.mark.copy_(self.context.memory.clock)
        if gain is None:
            self.judge(None)
        else:
            self.pending = gain
            if gain.ready():
                self._finish_read()

    def state_dict(self) -> dict[str, object]:
        self._finish_read()
        return super().state_dict()

    def _finish_read(self) -> None:
        """The gain of the last trial: read when it is needed, so that the host need not wait for the device."""
        if self.pending is not None:
            (total, count), self.pending = self.pending.tolist(), None
            self.judge(total / count if count else None)

    def judge(self, gain: float | None) -> None:
        """One trial ended with this decrease of the loss (None: not to be counted): test, move, take turns."""
        if gain is not None:
            gains = self.high_gains if self.is_high else self.low_gains
            gains.append(gain)
            del gains[: -self.history]
        was_high, self.is_high = self.is_high, not self.is_high
        self.head_is_fresh = False
        if len(self.high_gains) == len(self.low_gains) == self.history:
            p = p_lower_is_better(self.low_gains, self.high_gains, pooled=self.test == "student")
            if p < self.alpha:
                self._move(self.gamma, phase=was_high if self.rule == "released" else False)
            elif p > 1 - self.alpha:
                self._move(1 / self.gamma, phase=was_high if self.rule == "released" else True)

    def _move(self, factor: float, *, phase: bool) -> None:
        self.base *= factor**2 if self.rule == "paper" else factor
        self.is_high = phase
        self.high_gains, self.low_gains = [], []

    def _gain(self, losses: Tensor) -> Tensor:
        """The decrease summed over the rows not rewritten during the trial, and how many these are, (2,)."""
        memory = self.context.memory
        same = memory.measured_twice(self.before[:-1], losses, self.mark)
        return torch.stack([((self.before[:-1] - losses) * same).sum(), same.sum().double()])


def p_lower_is_better(low: list[float], high: list[float], *, pooled: bool) -> float:
    """One-sided t-test, alternative mean(low) > mean(high); pooled is Student's, otherwise Welch's. NaN for 0/0.

    >>> round(p_lower_is_better([2.0, 3.0, 4.0], [1.0, 2.0, 3.0], pooled=True), 4)
    0.1439
    """
    import numpy as np
    from scipy.special import stdtr  # the whole of scipy.stats would cost half a second at import

    a, b = np.asarray(low), np.asarray(high)
    va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        if pooled:
            df = len(a) + len(b) - 2
            spread = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / df * (1 / len(a) + 1 / len(b))
        else:
            spread = va + vb
            df = spread**2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
        t = (a.mean() - b.mean()) / np.sqrt(spread)
    return float(stdtr(df, -t))

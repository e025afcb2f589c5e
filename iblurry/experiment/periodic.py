"""An action now and then, spaced out so that it takes no more than its share of the time."""

from __future__ import annotations

import time
from collections.abc import Callable

TIME_SHARE = 0.05


class Periodic:
    """An action that is due every so many seconds, or less often where it takes more than its share of the time.

    Parameters
    ----------
    action : callable
        What is done.
    seconds : float
        From the end of one to the next, at least.
    longest : float
        The same at most, even if that is more than its share.
    share : float
        Of the time that the action may take, in (0, 1]; 1: no limit.
    """

    def __init__(
        self,
        action: Callable[[], None],
        seconds: float,
        *,
        longest: float = float("inf"),
        share: float = TIME_SHARE,
    ) -> None:
        self.action, self.seconds, self.longest, self.share = action, seconds, longest, share
        self.due_at = time.monotonic() + seconds

    def run(self) -> None:
        """Do it now."""
        started = time.monotonic()
        self.action()
        now = time.monotonic()
        pause = (now - started) * (1 / self.share - 1)
        self.due_at = now + min(self.longest, max(self.seconds, pause))

    def run_if_due(self) -> None:
        if time.monotonic() >= self.due_at:
            self.run()

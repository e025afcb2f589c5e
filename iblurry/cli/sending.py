"""Samples on their way to a service, with a bar and an account of what is there."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from iblurry.cli.fitting import Fitted
from iblurry.errors import IblurryError, InputError, ServiceError

if TYPE_CHECKING:
    from iblurry.cli.samples import Sample
    from iblurry.cli.watching import Watch
    from iblurry.live.client import Client

BATCH = 64  # samples of a request: short enough to see them go
LOOK = 0.5  # seconds between two looks at the queue


class Sending:
    """What one command sends."""

    def __init__(
        self, client: Client, samples: Sequence[Sample], key: str | None, *, shape: tuple[int, ...], skip_bad: bool
    ) -> None:
        self.client, self.samples, self.key = client, samples, key
        labels = [sample.label for sample in samples]
        self.lesson = client.lesson(Fitted(samples, shape), labels, key, size=BATCH, skip_bad=skip_bad)

    def send(self) -> None:
        """All of them, with a bar."""
        from iblurry.cli.watching import Watch

        with Watch() as watch:
            try:
                self.lesson.send(self._seen(watch))
            except KeyboardInterrupt:
                with contextlib.suppress(IblurryError):  # they stay in doubt, and `so_far` says so
                    self.lesson.settle()
                raise
        if not self.lesson.accepted:
            raise InputError(
                f"None of the {len(self.samples):,} pictures can be read, {self.left_out[0]} for one; give others."
            )

    def wait(self) -> dict[str, Any]:
        """Until they are learnt, with a bar."""
        from iblurry.cli.watching import Watch

        last = self.lesson.receipt.last
        with Watch() as watch:
            bar = watch.bars.add_task("Learning", total=last, about="")

            def look(status: dict[str, Any]) -> None:
                watch.bars.update(bar, completed=status["model"])
                if status["state"] == "stalled":
                    raise ServiceError(status["sentence"], code="stalled")

            return self.client.wait(last, timeout=math.inf, seen=look)

    @property
    def left_out(self) -> list[str]:
        """Names of pictures that cannot be read."""
        return [self.samples[place].name for place in self.lesson.left_out]

    @property
    def is_sent(self) -> bool:
        return self.lesson.accepted + len(self.lesson.left_out) == len(self.samples)

    def so_far(self) -> str:
        """How many are there for certain."""
        doubt = len(self.lesson.doubt)
        perhaps = f", and perhaps some of the next {doubt:,}" if doubt else ""
        return f"{self.lesson.accepted:,} of {len(self.samples):,} samples are accepted{perhaps}"

    def explained(self, error: IblurryError) -> str:
        """What the error says, what to do where that is more than it says, and how far it came."""
        from iblurry.live.client.caller import passes

        sentence, then = str(error), ""
        if isinstance(error, ServiceError) and error.code == "key_reused":
            sentence = (
                f"The --resume-key {self.key} was used for other samples, or these in another order or number; "
                "send the same, or give another NAME."
            )
        elif self.lesson.bad is not None:
            sentence += " Replace it, or give --skip-bad to leave out what cannot be read."
        elif self.is_sent and isinstance(error, ServiceError) and passes(error):
            then = "; they will be learnt when the service runs again"
        return f"{sentence} So far, {self.so_far()}{then}."

    def again(self) -> str:
        """What the same command would do now."""
        if self.is_sent:
            return "They will be learnt."
        if self.key is not None:
            return "The same command sends the rest."
        return "The same command sends all of them again; with a --resume-key from the start, it sends the rest."

    def _seen(self, watch: Watch) -> Any:
        """Moves the bar, and says now and then how it stands."""
        from iblurry.cli.watching import PAUSE
        from iblurry.live.client.caller import patiently

        bar = watch.bars.add_task("Sending", total=len(self.samples), about="")
        spoke = looked = time.monotonic()

        def seen() -> None:
            nonlocal spoke, looked
            now = time.monotonic()
            watch.bars.update(bar, completed=self.lesson.accepted + len(self.lesson.left_out))
            if watch.console.is_terminal and now - looked > LOOK:
                looked = now
                queue = patiently(self.client.patience, self.client.status)["queue"]
                watch.bars.update(bar, about=f"{queue:,} wait to be learnt")
            elif not watch.console.is_terminal and now - spoke > PAUSE:
                spoke = now
                watch.say(f"{self.so_far()}.")

        return seen

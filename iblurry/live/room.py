"""Room: how many samples may wait, and how much disk a service takes at most."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from iblurry.live.limits import Limits
from iblurry.live.log import WAL, Log, most_bytes
from iblurry.live.process import SAVE_SAMPLES
from iblurry.live.refusal import Refusal
from iblurry.live.settings import Settings
from iblurry.live.standing import Standing

CHECKPOINTS = 3  # the newest, the one before it, and one that is being written
SOON, LATE = 2.0, 60.0  # seconds until somebody should ask again whether there is room


class Room:
    """Samples stay in the log until two checkpoints have them."""

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self.limits = limits
        self.samples = limits.queue + 3 * SAVE_SAMPLES  # in the log
        self.log_bytes = most_bytes(math.prod(settings.image), kept=self.samples, classes=settings.max_classes)

    def check(self, count: int, *, log: Log, standing: Standing) -> None:
        """Refusal where so many more are too many."""
        if count > self.limits.queue:
            raise Refusal(413, "too_many", f"{count} samples are more than may wait ({self.limits.queue}); send fewer.")
        waiting = log.accepted - standing.learnt
        if waiting + count > self.limits.queue:
            raise Refusal(
                429,
                "queue_full",
                f"{waiting} samples wait to be learnt, and {self.limits.queue} may; send these {count} again later.",
                retry_after=_until(waiting + count - self.limits.queue, standing),
            )
        if log.kept + count > self.samples:
            raise Refusal(
                507,
                "not_saved",
                f"{log.kept} samples are in no checkpoint yet, because none could be written: {standing.sentence}",
                retry_after=30,
            )

    def used(self, folder: Path, standing: Standing) -> dict[str, Any]:
        """Bytes on the disk, and the most there will be."""
        return {
            "disk_bytes": sum(_size(path) for path in folder.iterdir()),
            "disk_most": self.log_bytes + 2 * WAL + CHECKPOINTS * standing.checkpoint_most + 2**20,
        }


def _size(path: Path) -> int:
    """In bytes; checkpoints come and go meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _until(samples: int, standing: Standing) -> float:
    """Seconds until so many will be learnt; a process that has just been started has not said how quickly it learns."""
    if standing.stalled is not None:
        return LATE
    pace = standing.samples_per_second
    return min(LATE, samples / pace) if pace else SOON

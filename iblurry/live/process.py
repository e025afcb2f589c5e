"""The process that learns: takes samples from the log in their order, publishes what answers, and saves."""

from __future__ import annotations

import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from iblurry.errors import DiskFullError, FolderError, IblurryError
from iblurry.files import locked
from iblurry.live.log import Reader
from iblurry.live.settings import Settings

LOCK = "learning.lock"  # one process at a time learns in a folder, also when its server was killed a moment ago
PATIENCE = 60.0  # seconds to wait for that
AT_ONCE = 32  # samples read together
SAVE_SAMPLES, SAVE_SECONDS = 1000, 30.0  # between two checkpoints at most, whichever comes first
SAVE_SOON = 1.0  # seconds at least; what a crash costs is learnt again
PUBLISH_SECONDS = 0.05  # between two snapshots while there is more to learn
SHARE = 0.05  # of the time that may go into each of saving, publishing and reporting
REPORT_SECONDS = 0.25
IDLE_SECONDS = 0.5  # to look for work again without being called


def learn(pipe: Connection, folder: Path, settings: Settings) -> None:
    """The whole life of the process. Nothing it knows is lost with it: the log and the checkpoints have it all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which asks politely through the pipe
    import torch

    torch.set_num_threads(settings.threads)
    try:
        with locked(folder / LOCK, timeout=PATIENCE, remedy="choose another --data-dir"):
            Working(pipe, folder, settings).work()
    except IblurryError as error:  # it would come to the same end again
        pipe.send(("stalled", str(error)))
    except (EOFError, BrokenPipeError):  # the server is gone; the next one goes on from the last checkpoint
        return


class Working:
    """One sample after another, and between two of them whatever the server asks for."""

    def __init__(self, pipe: Connection, folder: Path, settings: Settings) -> None:
        from iblurry.live.learning import Learning

        self.pipe, self.folder = pipe, folder
        self._place = _place(folder)
        self.learning = Learning(folder, settings)
        self.reader = Reader(folder)
        self.stopping = False
        self.pace = Pace()
        self._published = self._reported = -1  # at which sample
        self._points: list[dict[str, Any]] = []  # since the last report

    def work(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._obey("stop"))
        for sentence in self.learning.recover():
            self.pipe.send(("said", sentence))
        self.pace.saved(time.monotonic())
        self.reader.after(self.learning.at, 1)  # a log that does not go on from here is told before anything else
        self._publish()
        self._report()
        while not self.stopping:
            entries = self.reader.after(self.learning.at, AT_ONCE)
            if not entries:
                self._rest()
            for entry in entries:
                if (point := self.learning.learn(entry)) is not None:
                    self._points.append(point)
                self.pace.learnt()
                if self._is_over():
                    break
        self._save()
        self.pipe.send(("stopped", self.learning.at))

    def _is_over(self) -> bool:
        """After every sample, whatever is due; True where somebody asked to stop."""
        now = time.monotonic()
        if self.pace.save_is_due(now, self.learning.at - (self.learning.saved or [0])[-1]):
            self._save()
        if now >= self.pace.publish_at:
            self._publish()
        if now >= self.pace.report_at:
            self._report()
        while self.pipe.poll():
            self._obey(self.pipe.recv())
        return self.stopping

    def _rest(self) -> None:
        """Nothing to learn: everybody knows the latest, and it is saved before long."""
        self.pace.rested()
        self._publish()
        self._report()
        if self.pace.save_is_due(time.monotonic(), 0):
            self._save()
        if self.pipe.poll(IDLE_SECONDS):
            self._obey(self.pipe.recv())

    def _obey(self, order: str) -> None:
        """To "wake" is no more than to look for samples again."""
        if order == "memory":
            self.pipe.send(("memory", self.learning.memory()))
        elif order == "stop":
            self.stopping = True

    def _publish(self) -> None:
        from iblurry.live.snapshot import taken

        if self._published == self.learning.at:
            return
        began = time.monotonic()
        self.learning.check()  # what answers now is better than what holds no numbers
        self.pipe.send(("snapshot", self.learning.at, taken(self.learning.learner, self.learning.at)))
        self._published = self.learning.at
        self.pace.published(began)

    def _report(self) -> None:
        if self._reported == self.learning.at:
            return
        began = time.monotonic()
        report = self.learning.report() | {"samples_per_second": self.pace.rate()}
        points, self._points = self._points, []
        self.pipe.send(("report", report, points))
        self._reported = self.learning.at
        self.pace.reported(began)

    def _save(self) -> None:
        """Where it cannot be written, that is told and tried again later: the log has the samples meanwhile."""
        began = time.monotonic()
        try:
            self._check_place()
            if self.learning.save():
                self.pipe.send(("saved", self.learning.at, self.learning.dispensable))
        except (DiskFullError, OSError) as error:
            why = "its disk is full" if isinstance(error, DiskFullError) else error.strerror or error
            sentence = f"No checkpoint can be written to {self.folder} ({why}): make room, or mend it."
            self.pipe.send(("said", f"{sentence} Samples are kept in the log until one can."))
        self.pace.saved(began)

    def _check_place(self) -> None:
        """Checkpoints beside another log than the one that is open would be worth nothing."""
        if _place(self.folder) != self._place:
            raise FolderError(
                f"{self.folder} was moved or replaced while the service ran. Stop the service, put the folder back or "
                "name its new place as --data-dir, and start it again: it has all that was accepted."
            )


def _place(folder: Path) -> tuple[int, int] | None:
    """Which lock lies there."""
    try:
        found = (folder / LOCK).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class Pace:
    """When what is due: costly things seldom enough to leave the time to learning."""

    def __init__(self) -> None:
        self.publish_at = self.report_at = self.save_at = 0.0
        self._marks: list[tuple[float, int]] = []  # time, samples since the last rest
        self._count = 0

    def learnt(self) -> None:
        self._count += 1

    def rested(self) -> None:
        self._marks.clear()
        self._count = 0

    def rate(self) -> float:
        """Samples a second over the last seconds; 0 at rest."""
        now = time.monotonic()
        self._marks = [*self._marks, (now, self._count)][-20:]
        (then, before), (_, count) = self._marks[0], self._marks[-1]
        return (count - before) / (now - then) if now > then else 0.0

    def save_is_due(self, now: float, samples: int) -> bool:
        return samples >= SAVE_SAMPLES or now >= self.save_at

    def saved(self, began: float) -> None:
        """Often where it is cheap: a service that is lost again and again must get on all the same."""
        self.save_at = min(_next(began, SAVE_SOON), time.monotonic() + SAVE_SECONDS)

    def published(self, began: float) -> None:
        self.publish_at = _next(began, PUBLISH_SECONDS)

    def reported(self, began: float) -> None:
        self.report_at = _next(began, REPORT_SECONDS)


def _next(began: float, least: float) -> float:
    """After so many seconds, or later where it took long."""
    now = time.monotonic()
    return now + max(least, (now - began) / SHARE)

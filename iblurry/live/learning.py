"""The learner of a service with its prequential test and its checkpoints: a function of the samples in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from iblurry.archive import bytes_of
from iblurry.errors import CheckpointError, DivergedError
from iblurry.experiment import checkpoint
from iblurry.live.log import LogEntry
from iblurry.live.messages import LearnerReport, MemorySample
from iblurry.live.settings import Settings
from iblurry.live.status import RIGHT, UNTESTED, WRONG, Quality
from iblurry.parts import Importance

EXTRA_BYTES = 2**20  # of a checkpoint beside the learner's state, an upper bound


class LiveLearner:
    """Deterministic: the same samples leave the same state to the last bit, however often it was interrupted."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.learner = settings.build_learner()
        self.quality = Quality(settings.max_classes)
        self.at = 0  # samples learnt
        self.saved: list[int] = []  # samples learnt by the last two checkpoints, the newest last
        self.saved_at: float | None = None  # when the newest was written, in seconds since 1970
        self.prepared_at = 0, 0  # samples learnt and classes met when the test of samples was prepared last
        self._restored_updates = 0  # those of the checkpoint it came from, which does not have their loss
        weights = sum(values.nbytes for values in self.learner.context.network.parameters())
        moments = 2 * weights  # Adam's, which exist from the first update on
        self.checkpoint_most = bytes_of(self.learner.state_dict()) + moments + EXTRA_BYTES
        self.checkpoint_most += bytes_of(self._slowly_prepared())

    def recover(self) -> list[str]:
        """Load the newest checkpoint that can be trusted; return a sentence for every newer one that cannot."""

        def fits(state: dict[str, Any]) -> str | None:
            same = state["settings"] == self.settings.to_json()
            return None if same else "it was made with other settings"

        remedy = "Put back a good copy of the whole folder; what was accepted since is in the log of this one."
        loaded = checkpoint.load_latest(self.folder, accept=fits, remedy=remedy)
        if loaded is None:
            return []
        self.learner.load_state_dict(loaded.state["learner"])
        self.quality.load_state_dict(loaded.state["quality"])
        test = loaded.state.get("test", {"at": [0, 0], "tensors": {}})  # which the first services did not have
        self.prepared_at = tuple(test["at"])
        for name, values in test["tensors"].items():
            self._slowly_prepared()[name].copy_(values)
        self.at, self.saved, self.saved_at = loaded.at, [loaded.at], loaded.path.stat().st_mtime
        self._restored_updates = self.learner.context.updates
        return loaded.skipped

    def learn(self, entry: LogEntry) -> dict[str, Any] | None:
        """Test, then train; returns a new point of the curve if one is due."""
        if entry.at != self.at + 1:
            raise CheckpointError(f"Sample {entry.at} cannot follow sample {self.at}.")
        pixels = torch.frombuffer(bytearray(entry.pixels), dtype=torch.uint8).view(self.settings.image)
        network, image = self.learner.context.network, self.learner.encode(pixels[None])
        row = network.row_of(entry.label)
        outcome = UNTESTED
        if row is not None:
            self._prepare_test()
            outcome = RIGHT if int(self.learner.logits(image, prepare=False).argmax()) == row else WRONG
        self.quality.record(network.known if row is None else row, outcome)
        self.learner.observe(image, entry.label)
        self.at = entry.at
        return self.quality.add_point(learning_rate=self.learning_rate, classes=network.known)

    def _slowly_prepared(self) -> dict[str, torch.Tensor]:
        """What tests read until they are prepared again; nothing where each is."""
        readout = self.learner.method.readout
        return readout.prepared() if readout.prepare_every > 1 else {}

    def _prepare_test(self) -> None:
        """Prepares the readout where it is due: for each test, or less often where that is slow.

        Then it lacks up to an eighth of the samples, at most `prepare_every` of them, and no class.
        """
        at, known = self.prepared_at
        every = min(self.learner.method.readout.prepare_every, max(1, at // 8))
        if self.at - at >= every or known < self.learner.context.network.known:
            self.learner.prepare()
            self.prepared_at = self.at, self.learner.context.network.known

    def save(self) -> bool:
        """Write a checkpoint; False if this state is saved already, DivergedError if it is not finite."""
        if self.saved[-1:] == [self.at] or not self.at:
            return False
        self.check()
        state = {
            "settings": self.settings.to_json(),
            "learner": self.learner.state_dict(),
            "quality": self.quality.state_dict(),
            "test": {"at": list(self.prepared_at), "tensors": self._slowly_prepared()},
        }
        checkpoint.save(self.folder, state, at=self.at, trusted=self.saved)
        self.saved, self.saved_at = [*self.saved, self.at][-2:], time.time()
        return True

    def check(self) -> None:
        """DivergedError unless loss and network are finite; the loss alone was taken before the last step."""
        self.learner.check()
        for name, values in self.learner.context.network.state_dict().items():
            if not values.isfinite().all():
                raise DivergedError(f"The network ({name}) holds no numbers any more at sample {self.at}.")

    @property
    def learning_rate(self) -> float:
        """Of the next update: unlike that of the last one, it is known after a restart."""
        return self.learner.trainer.training.schedule.lr

    @property
    def droppable(self) -> int:
        """Samples up to this number are in both checkpoints that are kept."""
        return self.saved[0] if len(self.saved) == 2 else 0

    def memory(self) -> list[MemorySample]:
        """All samples of the memory."""
        memory, admission = self.learner.context.memory, self.learner.method.admission
        size, labels = memory.size, self.learner.labels
        images, rows, since = (
            values[:size].cpu().numpy() for values in (memory.images, memory.labels, memory.written_at)
        )
        worth = admission.importance[:size].tolist() if isinstance(admission, Importance) else [None] * size
        pixels = [image.copy() for image in images] if self.learner.context.frozen is None else [None] * size
        return [MemorySample(i, str(labels[rows[i]]), worth[i], int(since[i]), pixels[i]) for i in range(size)]

    def report(self, *, samples_per_second: float = 0.0, new_points: Sequence[dict[str, Any]] = ()) -> LearnerReport:
        """Progress and quality; the parameters are known by the caller alone."""
        context, trainer, quality = self.learner.context, self.learner.trainer, self.quality
        labels = [str(label) for label in self.learner.labels]
        held = torch.bincount(context.memory.labels[: context.memory.size].cpu(), minlength=len(labels)).tolist()
        loss = float(trainer.loss) if context.updates > self._restored_updates else float("nan")
        return LearnerReport(
            learnt=self.at,
            learning_rate=self.learning_rate,
            loss=loss if np.isfinite(loss) else None,
            updates=context.updates,
            held=context.memory.size,
            accuracy=quality.accuracy,
            recent_accuracy=quality.recent_accuracy,
            window=quality.window,
            tested=int(quality.tested.sum()),
            drift=quality.drift,
            classes=[row | {"held": held[i]} for i, row in enumerate(quality.classes(labels))],
            history=quality.points,
            checkpoint=self.saved[-1] if self.saved else 0,
            checkpoint_written=self.saved_at,
            checkpoint_most=self.checkpoint_most,
            samples_per_second=samples_per_second,
            new_points=list(new_points),
        )

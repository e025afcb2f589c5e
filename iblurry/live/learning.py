"""Learning: the learner with its tests and its checkpoints, as a function of the samples in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from iblurry.errors import CheckpointError, DivergedError
from iblurry.experiment import checkpoint
from iblurry.live.exchange import Kept
from iblurry.live.log import Entry
from iblurry.live.quality import RIGHT, UNTESTED, WRONG, Quality
from iblurry.live.settings import Settings
from iblurry.parts import Importance

BESIDE = 2**20  # bytes of a checkpoint beside the learner's, counted generously


class Learning:
    """No clock and no chance: the same samples leave the same state, however often it was interrupted."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.learner = settings.learner()
        self.quality = Quality(settings.max_classes)
        self.at = 0  # samples learnt
        self.saved: list[int] = []  # where the last checkpoints are, the newest last
        weights = sum(values.nbytes for values in self.learner.context.network.parameters())
        moments = 2 * weights  # of Adam, which come with the first update
        self.most_bytes = checkpoint.bytes_of(self.learner.state_dict()) + moments + BESIDE

    def recover(self) -> list[str]:
        """Back to the last checkpoint that can be trusted; a sentence for every newer one."""

        def fits(state: dict[str, Any]) -> str | None:
            same = state["settings"] == self.settings.to_json()
            return None if same else "it was made with other settings"

        remedy = "Put back a good copy of the whole folder; what was accepted since is in the log of this one."
        loaded = checkpoint.load_latest(self.folder, accept=fits, remedy=remedy)
        if loaded is None:
            return []
        self.learner.load_state_dict(loaded.state["learner"])
        self.quality.load_state_dict(loaded.state["quality"])
        self.at, self.saved = loaded.at, [loaded.at]
        return loaded.skipped

    def learn(self, entry: Entry) -> dict[str, Any] | None:
        """Test, then train; a new point of the curve, where one is due."""
        if entry.at != self.at + 1:
            raise CheckpointError(f"Sample {entry.at} cannot follow sample {self.at}.")
        pixels = torch.frombuffer(bytearray(entry.pixels), dtype=torch.uint8).view(self.settings.image)
        network = self.learner.context.network
        row = network.row_of(entry.label)
        outcome = UNTESTED
        if row is not None:
            outcome = RIGHT if int(self.learner.logits(pixels[None]).argmax()) == row else WRONG
        self.quality.note(network.known if row is None else row, outcome)
        self.learner.observe(pixels, entry.label)
        self.at = entry.at
        return self.quality.mark(learning_rate=self.rate, classes=network.known)

    def save(self) -> bool:
        """False where it is saved already; DivergedError where it is not worth keeping."""
        if self.saved[-1:] == [self.at] or not self.at:
            return False
        self.check()
        state = {
            "settings": self.settings.to_json(),
            "learner": self.learner.state_dict(),
            "quality": self.quality.state_dict(),
        }
        checkpoint.save(self.folder, state, at=self.at, trusted=self.saved)
        self.saved = [*self.saved, self.at][-2:]
        return True

    def check(self) -> None:
        """A good loss alone does not mean a good network: it is that of the last update before its step."""
        self.learner.check()
        for name, values in self.learner.context.network.state_dict().items():
            if not values.isfinite().all():
                raise DivergedError(f"The network ({name}) holds no numbers any more at sample {self.at}.")

    @property
    def rate(self) -> float:
        """That of the next update: unlike the last one's, it is known after a restart."""
        return self.learner.trainer.training.schedule.lr

    @property
    def dispensable(self) -> int:
        """Samples up to here are in the newest checkpoint and in the one before it."""
        return self.saved[0] if len(self.saved) == 2 else 0

    def memory(self) -> list[Kept]:
        """Everything that is kept."""
        memory, admission = self.learner.context.memory, self.learner.method.admission
        size, labels = memory.size, self.learner.labels
        images, rows, since = (
            values[:size].cpu().numpy() for values in (memory.images, memory.labels, memory.written_at)
        )
        worth = admission.importance[:size].tolist() if isinstance(admission, Importance) else [None] * size
        return [Kept(i, str(labels[rows[i]]), worth[i], int(since[i]), images[i].copy()) for i in range(size)]

    def report(self) -> dict[str, Any]:
        """How far it is and how well it does."""
        context, trainer, quality = self.learner.context, self.learner.trainer, self.quality
        labels = [str(label) for label in self.learner.labels]
        held = torch.bincount(context.memory.labels[: context.memory.size].cpu(), minlength=len(labels)).tolist()
        loss = float(trainer.loss)
        return {
            "learnt": self.at,
            "learning_rate": self.rate,
            "loss": loss if np.isfinite(loss) else None,
            "updates": context.updates,
            "held": context.memory.size,
            "accuracy": quality.accuracy,
            "recent_accuracy": quality.recent_accuracy,
            "window": quality.window,
            "tested": int(quality.tested.sum()),
            "drift": quality.drift,
            "classes": [row | {"held": held[i]} for i, row in enumerate(quality.classes(labels))],
            "history": quality.points,
            "checkpoint": self.saved[-1] if self.saved else 0,
            "checkpoint_most": self.most_bytes,
        }

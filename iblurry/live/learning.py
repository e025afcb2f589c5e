"""The learner of a service with its prequential test and its checkpoints: a function of the operations in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from iblurry.errors import CheckpointError
from iblurry.learner import amendments
from iblurry.live.log import LogEntry
from iblurry.live.messages import LearnerReport, MemorySample, Operation, Snapshot
from iblurry.live.quality import ASKED, UNTESTED, Calibrator, HeldOut, HeldOutSample, Quality
from iblurry.live.settings import Settings
from iblurry.network import FLOOR
from iblurry.parts import Importance
from iblurry.parts.memory import Encoded
from iblurry.storage import checkpoint
from iblurry.storage.tensor_file import bytes_of

STEP_SECONDS = 0.05  # of rehearsal, about: what a sample may have to wait for
STEP_UPDATES = 64  # of one step, at most
EXTRA_BYTES = 2**20  # of a checkpoint beside the learner's state, an upper bound; so is
LABEL_BYTES = 12 * 200  # what a held-out sample's label takes as JSON


class LiveLearner:
    """Deterministic: the same operations leave the same state to the last bit, however often it was interrupted."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.learner = settings.build_learner()
        self._arguments = self.learner.config.to_json()  # with which Learner.load makes it again
        self.quality = Quality(settings.max_classes)
        self.calibrator = Calibrator(settings.max_classes)
        self.held_out = HeldOut(settings.memory)
        self.at = 0  # operations applied
        self.learnt = 0  # samples among them
        self.saved: list[int] = []  # operations applied by the last two checkpoints, the newest last
        self.saved_samples = 0  # learnt by the newest
        self.saved_at: float | None = None  # when the newest was written, in seconds since 1970
        self.seconds_per_update = STEP_SECONDS  # of rehearsal, as last measured; unknown at first: a short step
        self.new_points: list[dict[str, Any]] = []  # of the curve, until whoever reports them clears the list
        self.prepared_at = 0, 0  # samples learnt and classes met when the test of samples was prepared last
        self._restored_updates = 0  # those of the checkpoint it came from, which does not have their loss
        weights = sum(values.nbytes for values in self.learner.context.network.parameters())
        moments = 2 * weights  # Adam's, which exist from the first update on
        self.checkpoint_most = bytes_of(self.learner.state_dict()) + moments + EXTRA_BYTES
        self.checkpoint_most += bytes_of(self._slowly_prepared())
        self.checkpoint_most += self.calibrator.logits.nbytes
        self.checkpoint_most += settings.memory * (self.learner.context.memory.images[0].nbytes + LABEL_BYTES)

    def recover(self) -> list[str]:
        """Load the newest checkpoint that can be trusted; return a sentence for every newer one that cannot."""

        def use(state: dict[str, Any]) -> str | None:
            if state["settings"] != self.settings.to_json():
                return "it was made with other settings"
            self.learner.load_state_dict(state["learner"])
            self.quality.load_state_dict(state["quality"])
            self.held_out.load_state_dict(state["held_out"])
            if "calibration" in state:  # checkpoints from before it had none
                self.calibrator.load_state_dict(state["calibration"])
            self.learnt = self.saved_samples = state["learnt"]
            test = state["test"]
            self.prepared_at = tuple(test["at"])
            for name, values in test["tensors"].items():
                self._slowly_prepared()[name].copy_(values)
            return None

        remedy = "Put back a good copy of the whole folder; what was accepted since is in the log of this one."
        loaded = checkpoint.load_latest(self.folder, accept=use, remedy=remedy)
        if loaded is None:
            return []
        self.at, self.saved, self.saved_at = loaded.at, [loaded.at], loaded.path.stat().st_mtime
        self._restored_updates = self.learner.context.updates
        return loaded.skipped

    def apply(self, entry: LogEntry) -> None:
        """The next operation of the log."""
        if entry.at != self.at + 1:
            raise CheckpointError(f"Operation {entry.at} cannot follow operation {self.at}.")
        network = self.learner.context.network
        kind, number, label, to, _ = entry.operation
        match kind:
            case "sample":
                self._learn(entry)
            case "hold":
                self.held_out.add(self._encode(entry.operation).values[0].cpu(), label)
                self._ask_held_out(self.held_out.next(1))
            case "rehearse":
                began = time.monotonic()
                amendments.rehearse(self.learner, number)
                self.prepared_at = 0, 0
                self._ask_held_out(self.held_out.due(number))
                self.seconds_per_update = (time.monotonic() - began) / number
            case "remove":
                amendments.remove(self.learner, number)
            case "relabel":
                amendments.relabel(self.learner, number, label)
            case "rename":
                amendments.rename_class(self.learner, label, to)
                self.held_out.rename(label, to)
            case "merge" | "delete":
                row, into = network.row_of(label), network.row_of(to) if kind == "merge" else None
                assert row is not None, "the log has checked it"
                self.quality.close_class(row, into)
                self.calibrator.close_class(row, into)
                if kind == "merge":
                    amendments.merge_class(self.learner, label, to)
                    self.held_out.rename(label, to)
                else:
                    amendments.delete_class(self.learner, label)
                    self.held_out.delete(label)
        if kind not in ("sample", "hold"):
            self.prepared_at = 0, 0  # the next test is prepared anew
        self.at = entry.at

    def _learn(self, entry: LogEntry) -> None:
        """Test, then train."""
        sample = entry.operation
        if sample.number != self.learnt + 1:
            raise CheckpointError(f"Sample {sample.number} cannot follow sample {self.learnt}.")
        network = self.learner.context.network
        image, row = self._encode(sample), network.row_of(sample.label)
        answer = UNTESTED
        if row is not None:
            self._prepare_test()
            logits = self.learner.logits(image, prepare=False)[0]
            answer = int(logits.argmax())
            self.calibrator.record(logits.masked_fill(~network.open, FLOOR), row)
        self.quality.record(network.next_row if row is None else row, answer)
        self.learner.observe(image, sample.label)
        self.learnt = sample.number
        self._ask_held_out(self.held_out.due(1))
        point = self.quality.add_point(
            learning_rate=self.learning_rate,
            classes=network.open_rows,
            time=entry.time or None,
            held_out_accuracy=self.held_out.accuracy,
        )
        self.new_points += [] if point is None else [point]

    def _encode(self, sample: Operation) -> Encoded:
        pixels = torch.frombuffer(bytearray(sample.pixels), dtype=torch.uint8).view(self.settings.image)
        return self.learner.encode(pixels[None])

    def _ask_held_out(self, samples: Sequence[HeldOutSample]) -> None:
        """What the model answers now; nothing of it is learnt."""
        labels = self.learner.labels
        if not samples or not self.learner.context.network.open_rows:
            return
        self._prepare_test()
        for begin in range(0, len(samples), ASKED):
            batch = samples[begin : begin + ASKED]
            images = Encoded(self.learner.engine.to_device(torch.stack([one.image for one in batch])))
            answers = self.learner.logits(images, prepare=False).argmax(1).tolist()
            for sample, row in zip(batch, answers, strict=True):
                sample.is_right = labels[row] == sample.label if sample.label in labels else None

    @property
    def step_updates(self) -> int:
        """Updates of a step of rehearsal that takes some hundredths of a second; 0 where nothing can be rehearsed."""
        if not amendments.can_rehearse(self.learner):
            return 0
        return max(1, min(STEP_UPDATES, round(STEP_SECONDS / max(self.seconds_per_update, 1e-6))))

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
        if self.learnt - at >= every or known < self.learner.context.network.known:
            self.learner.prepare()
            self.prepared_at = self.learnt, self.learner.context.network.known

    def save(self) -> bool:
        """Write a checkpoint; False if this state is saved already, DivergedError if it is not finite."""
        if self.saved[-1:] == [self.at] or not self.at:
            return False
        self.check()
        state = {
            "arguments": self._arguments,
            "settings": self.settings.to_json(),
            "learner": self.learner.state_dict(),
            "quality": self.quality.state_dict(),
            "held_out": self.held_out.state_dict(),
            "calibration": self.calibrator.state_dict(),
            "learnt": self.learnt,
            "test": {"at": list(self.prepared_at), "tensors": self._slowly_prepared()},
        }
        checkpoint.save(self.folder, state, at=self.at, trusted=self.saved)
        self.saved, self.saved_samples, self.saved_at = [*self.saved, self.at][-2:], self.learnt, time.time()
        return True

    def check(self) -> None:
        """DivergedError unless loss and network are finite; the loss alone was taken before the last step."""
        self.learner.check()
        self.learner.check_weights()

    @property
    def learning_rate(self) -> float:
        """The rate of the next update: unlike that of the last one, it is known after a restart."""
        return self.learner.trainer.training.schedule.lr

    @property
    def droppable(self) -> int:
        """Operations up to this number are in both checkpoints that are kept."""
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

    def snapshot(self) -> Snapshot:
        """What the learner answers with now; no tensors where there is no class."""
        tensors = (
            [values.numpy() for values in self.learner.snapshot()] if self.learner.context.network.open_rows else []
        )
        return Snapshot(self.learnt, tuple(self._labels()), tensors, self.at, self.calibrator.fitted)

    def _labels(self) -> list[str]:
        """By head row; "" where a class was deleted."""
        return ["" if label is None else str(label) for label in self.learner.labels]

    def report(self) -> LearnerReport:
        """Progress and quality, but for the speed."""
        context, trainer, quality = self.learner.context, self.learner.trainer, self.quality
        labels = self._labels()
        held = torch.bincount(context.memory.labels[: context.memory.size].cpu(), minlength=len(labels)).tolist()
        classes = [row | {"held": held[i]} for i, row in enumerate(quality.classes(labels)) if labels[i]]
        loss = float(trainer.loss) if context.updates > self._restored_updates else float("nan")
        return LearnerReport(
            learnt=self.learnt,
            applied=self.at,
            learning_rate=self.learning_rate,
            loss=loss if np.isfinite(loss) else None,
            updates=context.updates,
            held=context.memory.size,
            accuracy=quality.accuracy,
            recent_accuracy=quality.recent_accuracy,
            window=quality.window,
            tested=int(quality.tested.sum()),
            drift=quality.drift,
            held_out=len(self.held_out),
            held_out_accuracy=self.held_out.accuracy,
            classes=classes,
            history=quality.points,
            confusion=quality.confusion(labels),
            checkpoint=self.saved_samples,
            checkpoint_operation=self.saved[-1] if self.saved else 0,
            checkpoint_written=self.saved_at,
            checkpoint_most=self.checkpoint_most,
            new_points=list(self.new_points),
        )

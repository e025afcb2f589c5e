"""The held-out set: samples that are asked about again and again while the service learns, and never learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

PER_UPDATE = 4  # questions for each sample learnt, and for each update of rehearsal: less than a tenth of its work
BATCH = 32  # questions at once


@dataclass
class HeldOutSample:
    """A sample, and whether the last answer to it was right: None while its class is not known."""

    label: str
    image: torch.Tensor  # as the learner stores it: pixels, or features
    is_right: bool | None = None


class HeldOut:
    """The newest `limit` held-out samples.

    They are asked about in turn, so that the cost does not grow with their number: an answer may be as many samples
    old as a quarter of the set has.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.samples: list[HeldOutSample] = []
        self.turn = 0  # of which sample it is
        self.owed = 0  # questions

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def accuracy(self) -> float | None:
        """Share of right answers, among those of known classes."""
        answered = [one.is_right for one in self.samples if one.is_right is not None]
        return sum(answered) / len(answered) if answered else None

    def add(self, image: torch.Tensor, label: str) -> None:
        """Where there is no room, the oldest leaves. The next question is about this one."""
        self._keep(self.samples[-self.limit + 1 :] if self.limit > 1 else [])
        self.samples.append(HeldOutSample(label, image))
        self.turn = len(self.samples) - 1

    def due(self, updates: int) -> list[HeldOutSample]:
        """Those to be asked about after so many more updates, often none."""
        self.owed += PER_UPDATE * updates
        return self.next(self.owed) if self.owed >= min(BATCH, len(self.samples)) else []

    def next(self, count: int) -> list[HeldOutSample]:
        """So many in turn, none of them twice."""
        size, self.owed = len(self.samples), 0
        found = [self.samples[(self.turn + one) % size] for one in range(min(count, size))]
        self.turn = (self.turn + len(found)) % size if size else 0
        return found

    def rename(self, label: str, to: str) -> None:
        """The class has another name, or is part of another."""
        for sample in self.samples:
            sample.label = to if sample.label == label else sample.label

    def delete(self, label: str) -> None:
        """The class is gone, and its samples with it."""
        self._keep([sample for sample in self.samples if sample.label != label])

    def _keep(self, samples: list[HeldOutSample]) -> None:
        if len(samples) < len(self.samples):
            self.samples, self.turn = samples, 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "labels": [sample.label for sample in self.samples],
            "right": [sample.is_right for sample in self.samples],
            "images": [torch.stack([sample.image for sample in self.samples])] if self.samples else [],
            "turn": self.turn,
            "owed": self.owed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        images = state["images"][0] if state["images"] else []
        found = zip(state["labels"], images, state["right"], strict=True)
        self.samples = [HeldOutSample(*one) for one in found]
        self.turn, self.owed = state["turn"], state["owed"]


def ask(samples: Sequence[HeldOutSample], answer: Callable[[torch.Tensor], list[str | None]], known: set[str]) -> None:
    """Ask about each of them; `answer` names the classes of images."""
    for begin in range(0, len(samples), BATCH):
        batch = samples[begin : begin + BATCH]
        for sample, label in zip(batch, answer(torch.stack([one.image for one in batch])), strict=True):
            sample.is_right = label == sample.label if sample.label in known else None

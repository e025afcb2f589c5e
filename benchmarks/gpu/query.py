"""What a query of all test images costs, and the most memory that was held on the device."""

from __future__ import annotations

import torch

from benchmarks.gpu.timing import timed
from iblurry.data.dataset import Dataset
from iblurry.engine.graph import STEADY
from iblurry.experiment.evaluator import Evaluator
from iblurry.learner import Learner

TIMES = 5


def query(learner: Learner, data: Dataset) -> dict[str, float]:
    """Milliseconds from the question to the counts on the host, all classes met; a fresh network's training apart.

    What a readout makes ready before each query, such as BiC's two numbers, is part of it.
    """
    device = learner.engine.device
    evaluator = Evaluator(data, device)

    def ask() -> int:
        learner._settled = None  # as after any sample
        return sum(evaluator.ask(learner).counts()[1])

    questions = ask()
    for _ in range(STEADY + 1):
        evaluator.ask(learner)
    return {"ms": timed(ask, TIMES, device).whole, "questions": questions}


def peak_gb(device: torch.device) -> float | None:
    """The most that tensors took at once since the peak was last reset, in 10^9 bytes."""
    return torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None

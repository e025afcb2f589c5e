"""The arithmetic floor: how long the device would take for the bare floating-point operations, at its own best rate."""

from __future__ import annotations

import torch

from benchmarks.gpu.setup import BenchmarkSetup
from benchmarks.gpu.timing import timed
from iblurry.compute import Passes
from iblurry.data.dataset import Dataset
from iblurry.engine.eager import Precision
from iblurry.learner.cost import cost
from iblurry.network.flops import BACKWARD, flops

SIDE, SMALL = 8192, 256  # of the matrices multiplied to know the rate, on a GPU and on a CPU
TRIES = 20


def floors(method: str, setup: BenchmarkSetup, data: Dataset, rate: float) -> dict[str, float]:
    """Milliseconds at `rate` operations a second: of a sample with its updates, of the batch, of the memory's losses.

    A batch takes (1 + BACKWARD) forward passes of its images. A sample counts all passes of the method's parts, in the
    steady state; "10,000 images" is a query's.
    """
    experiment = setup.experiment(method)
    made, budget = experiment.method, experiment.budget(data)
    pace, capacity = made.pace, made.capacity(budget)
    training = made if pace.updates_per_sample or made.refit is None else made.refit
    streamed = pace.stream_batch if training is made and pace.train_stream else 0
    images = streamed + training.rehearsal.joins(capacity)
    image = flops(setup.network, data.shape, len(data.classes))
    millisecond = rate / 1000 / image  # forward passes in one
    return {
        "sample": _images(cost(made, budget, classes=len(data.classes)).sample) / millisecond,
        "forward and backward": (1 + BACKWARD) * images / millisecond,
        "memory losses": capacity / millisecond,
        "10,000 images": 10_000 / millisecond,
    }


def best_rate(device: str, precision: Precision) -> float:
    """Operations a second of a large matrix product in this precision: the best of some tries."""
    side = SMALL if torch.device(device).type == "cpu" else SIDE
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    one, other = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    best = min(timed(lambda: torch.mm(one, other), 1, device).whole for _ in range(TRIES))
    return 2 * side**3 / (best / 1000)


def _images(passes: Passes) -> float:
    """In forward passes."""
    return passes.forward + BACKWARD * passes.backward

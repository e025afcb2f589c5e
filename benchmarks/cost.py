"""`make bench`: the cost of a sample late in a long stream, and of an update compared with a bare PyTorch loop.

Two learners of the same experiment, one old and one young, are timed in turns within one run, and so are our update and
the bare loop: a busy machine slows both sides, and their ratio stays.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch.nn import functional as F

from iblurry import Experiment, Hyperparameters, Learner, StreamIterator, load
from iblurry.data.dataset import Dataset
from iblurry.methods import method
from iblurry.network.build import build, open_row
from iblurry.rng import Rng

YOUNG, OLD, BLOCK, BLOCKS = 1_000, 100_000, 64, 60
RARE_UPDATES = Hyperparameters(updates_per_sample="1/8")  # otherwise a long stream takes an hour


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=int, default=OLD, help="length of the long stream")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"threads": 1, "torch": torch.__version__, "young": YOUNG, "old": given.old}
    table = Table("what", "measured", "wanted", "holds", title="Cost")
    for name in ("er", "clib"):
        flat = flatness(name, given.old)
        figures[f"{name} flatness"] = flat
        _row(table, f"{name}: time per sample at {given.old:,} / at {YOUNG:,}", flat["ratio"], 1.05)
        _row(table, f"{name}: resident memory at {given.old:,} / at {YOUNG:,}", flat["memory ratio"], 1.05)
    for name in ("convnet", "mlp"):
        update = update_against_bare(name)
        figures[f"update {name}"] = update
        _row(table, f"er, {name}: update / bare PyTorch update", update["ratio"], 1.15 if name == "convnet" else None)
    Console().print(table)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


def flatness(name: str, old: int) -> dict[str, float]:
    """How the cost of a sample late in the stream compares with its cost at the start."""
    spec = f"shapes:classes=10,train={old // 10 + BLOCK * BLOCKS // 5},size=8,channels=1"
    data = load(spec)
    experiment = Experiment.of(method(name, RARE_UPDATES), spec, network="mlp", tasks=5)
    old_learner, old_samples = start(experiment, data)
    young_memory = 0.0
    with Progress(transient=True) as progress:
        bar = progress.add_task(f"{name}: {old:,} samples", total=old)
        for at in range(1, old + 1):
            observe_next(old_learner, old_samples)
            if at == YOUNG:
                young_memory = _resident()
            if at % 500 == 0:
                progress.update(bar, completed=at)
    memory = _resident() / young_memory
    young_learner, young_samples = start(experiment, data)
    for _ in range(YOUNG):
        observe_next(young_learner, young_samples)
    late, early = in_turns(
        lambda: [observe_next(old_learner, old_samples) for _ in range(BLOCK)],
        lambda: [observe_next(young_learner, young_samples) for _ in range(BLOCK)],
    )
    return {"ratio": ratio(late, early), "memory ratio": memory, "ms": 1e3 * statistics.median(late) / BLOCK}


def update_against_bare(network: str) -> dict[str, float]:
    """Our update (draw, augment, mix, train, store) against forward, backward and step on a batch that is ready."""
    spec = "shapes:classes=10,train=800,size=16,channels=1"
    data = load(spec)
    learner, samples = start(Experiment.of("er", spec, network=network), data)
    for _ in range(4 * BLOCK):
        observe_next(learner, samples)
    bare_net = bare_network(network, data)
    optimizer = torch.optim.Adam(bare_net.parameters(), 3e-4, fused=True)
    images, labels = torch.randn(16, *data.shape), torch.arange(16) % 10

    def bare() -> None:
        for _ in range(BLOCK):
            optimizer.zero_grad()
            F.cross_entropy(bare_net(images), labels).backward()
            optimizer.step()

    bare()
    ours, theirs = in_turns(lambda: [observe_next(learner, samples) for _ in range(BLOCK)], bare)
    return {"ratio": ratio(ours, theirs), "ms": 1e3 * statistics.median(ours) / BLOCK}


def bare_network(network: str, data: Dataset) -> torch.nn.Module:
    """The modules of a network alone: nothing is masked or counted."""
    net = build(network, data.shape, len(data.classes), rng=Rng(1))
    for row in range(len(data.classes)):
        open_row(net, row, Rng(1))
    return torch.nn.Sequential(net.body.layers, net.head).train()


def start(experiment: Experiment, data: Dataset) -> tuple[Learner, Iterator[Any]]:
    return experiment.learner(data), iter(StreamIterator(data, experiment.order(data)))


def observe_next(learner: Learner, samples: Iterator[Any]) -> None:
    sample = next(samples)
    learner.observe(sample.image, sample.label)


def in_turns(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[list[float], list[float]]:
    """Seconds of each call, taking turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(BLOCKS):
        for call, seconds in zip((one, other), times, strict=True):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return times


def ratio(one: list[float], other: list[float]) -> float:
    """The median of the ratios of neighbouring turns, which saw the same load."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def _resident() -> float:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * 4096)


def _row(table: Table, what: str, value: float, most: float | None) -> None:
    wanted = "" if most is None else f"at most {most:.2f}"
    table.add_row(what, f"{value:.3f}", wanted, "" if most is None else "yes" if value <= most else "NO")


if __name__ == "__main__":
    main()

"""Milliseconds of a call and of a query, and the peak of the device's memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from iblurry.data.dataset import Dataset
from iblurry.engine.eager import HIGH
from iblurry.engine.graph import STEADY
from iblurry.experiment.evaluator import Evaluator
from iblurry.learner.learner import Learner

QUERIES = 5  # timed


class CallTime(NamedTuple):
    """Milliseconds of one call."""

    whole: float  # until the device is done, calls following each other
    host: float  # to enqueue it


def timed(call: Callable[[], Any], times: int, device: torch.device | str) -> CallTime:
    """The mean over so many calls in a row."""
    wait_for_device(device)
    start = time.perf_counter()
    for _ in range(times):
        call()
    host = time.perf_counter() - start
    wait_for_device(device)
    whole = time.perf_counter() - start
    return CallTime(1000 * whole / times, 1000 * host / times)


def time_captured(work: Callable[[], Any], repeats: int = 30) -> float:
    """Microseconds of one of many that are captured together, so that the host is not what is timed."""
    stream = torch.cuda.Stream(priority=HIGH)  # as a captured step's
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    wait_for_device("cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeats):
            work()
    graph.replay()
    return timed(graph.replay, 3, "cuda").whole * 1000 / repeats


def wait_for_device(device: torch.device | str) -> None:
    """Waits until the device has finished all work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def time_query(learner: Learner, data: Dataset) -> dict[str, float]:
    """Milliseconds of a query of all test images until the counts are on the host; without a refit's training.

    What a readout prepares before each query, such as BiC's two numbers, is part of it.
    """
    device = learner.engine.device
    evaluator = Evaluator(data, device)

    def ask() -> int:
        learner.prepared_at = None  # as after any sample
        return sum(evaluator.ask(learner).counts()[1])

    questions = ask()
    for _ in range(STEADY + 1):
        evaluator.ask(learner)
    return {"ms": timed(ask, QUERIES, device).whole, "questions": questions}


def peak_memory_gb(device: torch.device) -> float | None:
    """Peak of allocated memory since the last reset, in 10^9 bytes; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None

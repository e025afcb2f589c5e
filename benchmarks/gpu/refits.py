"""What a query of GDumb costs where its networks are trained in stacks, and how long a whole run takes by it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

from benchmarks.gpu.setup import BenchmarkSetup
from benchmarks.gpu.timing import QUERIES, peak_memory_gb, timed, wait_for_device
from iblurry.engine.graph import STEADY
from iblurry.experiment.evaluator import Evaluator, PendingAnswer
from iblurry.learner.learner import Learner
from iblurry.learner.refits import MODELS, MemorySnapshot, RefitStack
from iblurry.parts import Refit
from iblurry.streams.iterator import StreamIterator

WARM = STEADY + 2  # epochs before the updates timed: both sizes of a batch are captured then


class _Done(Exception):  # noqa: N818  no error: enough updates were timed
    """Leaves a refit."""


def measure_refits(method: str, *, setup: BenchmarkSetup, updates: int, models: int = MODELS) -> dict[str, Any]:
    """A row of the report: milliseconds of an update of one network in a stack, and minutes of a whole run."""
    data, engine = setup.load(), setup.engine("compiled")
    experiment = setup.protocol(method)
    with engine.cuda_stream(), closing(StreamIterator(data, experiment.order(data), workers=0)) as stream:
        learner = experiment.learner(data, engine)
        readout, marks = learner.method.readout, dict[int, float]()
        assert isinstance(readout, Refit)
        assert learner.method.refit is not None

        def watch(done: int, total: int) -> None:
            if done in (warm, warm + updates):
                wait_for_device(engine.device)
                marks[done] = time.perf_counter()
            if done == warm + updates:
                raise _Done

        snapshots = list(itertools.islice(_snapshots(stream, learner), models))
        stack = RefitStack(
            learner.method.refit, learner.context, epochs=readout.epochs, on_progress=watch, models=models
        )
        warm = WARM * stack.cost.updates // readout.epochs
        with suppress(_Done):
            stack.train(snapshots)
        evaluator = Evaluator(data, engine.device)
        evaluator.meet(learner.labels)

        def ask() -> PendingAnswer:
            answer = PendingAnswer(at=learner.context.seen, lr=0.0)
            evaluator.count(partial(stack.logits, 0), len(learner.labels), answer)
            return answer

        for _ in range(STEADY + 2):  # the first ones compile and capture, once in a run
            ask().counts()
        query = timed(lambda: ask().counts(), QUERIES, engine.device).whole
    update = 1000 * (marks[warm + updates] - marks[warm]) / updates / stack.models
    queries = len(stream) // experiment.query_every
    return {
        "method": method,
        "models": stack.models,
        "ms an update": update,
        "updates a query": stack.cost.updates,
        "queries": queries,
        "minutes": queries * (stack.cost.updates * update + query) / 60_000,
        "peak GB": peak_memory_gb(engine.device),
    }


def _snapshots(stream: StreamIterator, learner: Learner) -> Iterator[MemorySnapshot]:
    """Of the memory once it is full, sample by sample."""
    for sample in stream:
        learner.observe(sample.image, sample.label)
        if learner.context.memory.full:
            yield MemorySnapshot.take(learner.context)

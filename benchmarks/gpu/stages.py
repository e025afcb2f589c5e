"""Milliseconds of an update by stage, each timed alone as a captured step of its own.

Learning is not kept whole: once its stages were timed, a learner is of no further use.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from benchmarks.gpu.pieces import Given, on_device, trainer_of, typical
from benchmarks.gpu.timing import timed
from benchmarks.gpu.walk import ONES, Walk
from iblurry.engine.graph import STEADY
from iblurry.trainer import Trainer


def stages(walk: Walk, *, times: int) -> dict[str, float]:
    """Milliseconds by stage; of an update of the refit where nothing is learnt online.

    "step" is the whole update, "host" the time to enqueue it, "device" its captured half alone; a mixed batch.
    """
    learner = walk.learner
    device = learner.engine.device
    trainer = trainer_of(learner)
    given = typical(trainer, walk)
    result = trainer._step(*given)

    def update() -> None:
        trainer.update(given.stream, last_of_round=True)

    for _ in range(4 * STEADY):  # mixed or not: both forms must be captured
        update()
    step = timed(update, times, device)
    spent = {"step": step.whole, "host": step.host}
    spent["device"] = timed(lambda: trainer._step(*given), times, device).whole
    spent["insertion"] = _insertion(walk, times)
    spent["drawing"] = _drawing(trainer, given, result, times)
    for stage in on_device(trainer, given):
        run = learner.engine.compile(stage.step)
        for _ in range(STEADY + 2):
            run(*stage.args)
        spent[stage.name] = timed(functools.partial(run, *stage.args), times, device).whole
    return spent


def _insertion(walk: Walk, times: int) -> float:
    """As the learner does it; a memory that keeps everything has only so much room."""
    learner, memory = walk.learner, walk.learner.context.memory
    samples = itertools.islice(walk.samples, ONES)
    turn = itertools.cycle([learner._one(sample.image, sample.label) for sample in samples])
    room = memory.capacity - memory.size if learner.method.admission.keeps_all else times + STEADY
    warm = min(STEADY, room // 2)
    for _ in range(warm):
        learner._store(next(turn))
    return timed(lambda: learner._store(next(turn)), min(times, room - warm), learner.engine.device).whole


def _drawing(trainer: Trainer, given: Given, result: Any, times: int) -> float:
    """The host's half: an update whose device's half is left out."""
    step = trainer._step
    trainer._step = lambda *args: result
    try:
        return timed(lambda: trainer.update(given.stream, last_of_round=False), times, trainer.engine.device).whole
    finally:
        trainer._step = step

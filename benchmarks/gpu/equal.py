"""Whether an engine takes the same course as the eager one: losses, memory, dice, weights and answers."""

from __future__ import annotations

import dataclasses
import functools
import math
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from benchmarks.gpu.subject import Mode, Subject, start_afresh
from benchmarks.gpu.timing import settle
from iblurry.data.dataset import Dataset
from iblurry.engine.eager import Eager, Precision
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.learner import Learner
from iblurry.parts import Diverse, Importance
from iblurry.streams.order import Order
from iblurry.streams.stream import Stream

# A captured step is the same kernels in the same order, so not a bit may differ. Inductor's kernels round bfloat16
# elsewhere (they keep float32 between fused operations), and training carries such a difference on chaotically: single
# losses mean nothing after some dozens of updates. So the first losses must be close, and of all the others the curve:
# by `TOLERANCE`, or, where a method learns so wildly that rounding alone does more, by twice what that does. What it
# does is seen from the eager course in the other precision.
TOLERANCE: dict[Mode, dict[str, float]] = {
    "captured": {"loss differs by": 0.0, "weights differ by": 0.0, "answers differ by": 0.0},
    "compiled": {"first losses differ by": 0.1, "curve differs by": 0.15},
}
TIMES_ROUNDING = 2.0
FIRST = 4  # losses
WINDOW = 25  # losses that a point of the curve is the mean of
MEMORY = 64  # rows: most samples meet a full memory
LOOK_EVERY = 50  # samples between two looks at the memory
PARTS = 3  # the stretch is taken from so many tasks: classes come while steps are captured already
QUESTIONS = 64
OTHER: dict[Precision, Precision] = {"bfloat16": "float32", "float32": "bfloat16"}
DEVICE_DECIDES = (Importance, Diverse)  # whose choice of a row depends on losses or gradients


@dataclass
class Course:
    """What a stretch of the stream left behind; tensors stay on the device until it is compared."""

    losses: list[Tensor] = field(default_factory=list)  # after each sample that was followed by updates, and in refits
    rows: list[Tensor] = field(default_factory=list)  # labels and times of writing, every LOOK_EVERY samples
    rng: list[Any] = field(default_factory=list)  # whole numbers the host handed to the device, update by update
    counters: list[tuple[int, int]] = field(default_factory=list)  # updates and samples
    answers: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)


def all_equal(
    methods: Sequence[str], subject: Subject, data: Dataset, *, steps: int, modes: tuple[Mode, ...], jobs: int
) -> Iterator[dict[str, Any]]:
    """Their rows in order, as they are ready; several processes share the device, each with its own copy of the data.

    Seconds are then those of work among other work.
    """
    if jobs == 1:
        yield from (equal(method, subject, data, steps=steps, modes=modes) for method in methods)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(functools.partial(_equal_alone, subject=subject, steps=steps, modes=modes), methods)


def _equal_alone(method: str, *, subject: Subject, steps: int, modes: tuple[Mode, ...]) -> dict[str, Any]:
    return equal(method, subject, subject.load(), steps=steps, modes=modes)


def equal(method: str, subject: Subject, data: Dataset, *, steps: int, modes: tuple[Mode, ...]) -> dict[str, Any]:
    """A row: "equal", and the figures of each mode beside the eager course."""
    one = subject.experiment(method, memory=MEMORY, samples=steps)
    row: dict[str, Any] = {"method": method, "steps": steps}

    def course(mode: Mode) -> Course:
        start_afresh(subject.device)
        began = time.monotonic()
        taken = take(one, data, subject.engine(mode))
        row[f"{mode} seconds"] = time.monotonic() - began
        return taken

    reference = course("eager")
    others = {mode: course(mode) for mode in modes}
    rounding: dict[str, float] = {}
    if "compiled" in modes:  # last: on a processor without bfloat16 torch then changes its way for float32, too
        start_afresh(subject.device)
        elsewhere = take(one, data, dataclasses.replace(subject, precision=OTHER[subject.precision]).engine("eager"))
        row["rounding"] = rounding = departures(reference, elsewhere)
    for mode, other in others.items():
        row[mode] = compare(reference, other, mode, one, rounding)
    return row | {"equal": all(row[mode]["equal"] for mode in modes)}


def take(one: Experiment, data: Dataset, engine: Eager) -> Course:
    """The course of an experiment's samples in this engine, with a task's end after each third."""
    course = Course()
    _note_dice(engine, course)
    with engine.cuda_stream():
        learner = one.learner(data, engine)
        learner.on_refit = lambda done, updates: _note_refit(learner, course)
        for sample in Stream(data, _thirds(one, data)):
            updates = learner.context.updates
            learner.observe(sample.image, sample.label)
            if learner.context.updates > updates:
                course.losses.append(learner.trainer.loss.clone())
            if learner.context.seen % LOOK_EVERY == 0 or sample.last_of_task:
                memory = learner.context.memory
                course.rows.append(torch.stack([memory.labels, memory.written_at]))
            if sample.last_of_task:
                learner.end_task()
                course.answers.append(learner.logits(data.test.images[:QUESTIONS]).clone())
                course.counters.append((learner.context.updates, learner.context.seen))
        course.weights = [values.detach().clone() for values in learner.context.network.state_dict().values()]
        settle(engine.device)  # whoever compares does not work in this lane
    return course


def compare(
    reference: Course, other: Course, mode: Mode, one: Experiment, rounding: dict[str, float]
) -> dict[str, Any]:
    """The figures, and whether they hold what this mode promises; `rounding`: those that it makes depart alone."""
    figures: dict[str, Any] = {
        "loss differs by": _largest(reference.losses, other.losses),
        **departures(reference, other),
        "weights differ by": _largest(reference.weights, other.weights),
        "answers differ by": _largest(reference.answers, other.answers),
        "same rows": _same(reference.rows, other.rows),
        "same dice": _same(reference.rng, other.rng) and reference.counters == other.counters,
        "finite": all(bool(values.isfinite().all()) for values in [*other.losses, *other.answers]),
    }
    tolerance = {name: _wider(most, rounding.get(name, 0.0)) for name, most in TOLERANCE[mode].items()}
    rows_may_differ = mode == "compiled" and isinstance(one.method.admission, DEVICE_DECIDES)
    holds = (
        figures["finite"]
        and figures["same dice"]
        and (figures["same rows"] or rows_may_differ)
        and all(figures[name] <= most for name, most in tolerance.items())
    )
    return figures | {"tolerance": tolerance, "equal": holds}


def departures(one: Course, other: Course) -> dict[str, float]:
    """How far apart two courses are that cannot be the same: at their first losses, and later in the mean."""
    ours, theirs = (_curve(course.losses) for course in (one, other))
    return {
        "first losses differ by": _largest(one.losses[:FIRST], other.losses[:FIRST]),
        "curve differs by": float((ours - theirs).abs().mean()) if ours.shape == theirs.shape else float("inf"),
    }


def _wider(most: float, rounding: float) -> float:
    return max(most, TIMES_ROUNDING * rounding) if math.isfinite(rounding) else most


def _thirds(one: Experiment, data: Dataset) -> Order:
    """The beginnings of the first tasks, as many samples as the experiment has."""
    assert one.samples is not None
    order = dataclasses.replace(one, samples=None).order(data)
    sizes = [one.samples // PARTS] * (PARTS - 1) + [one.samples - (PARTS - 1) * (one.samples // PARTS)]
    least = min(len(task) for task in order.tasks[:PARTS])
    if max(sizes) > least or min(sizes) < 1:
        raise InputError(f"{one.samples} steps do not fit; give from {PARTS} to {PARTS * least} for {one.dataset!r}.")
    return dataclasses.replace(order, tasks=tuple(t[:n] for t, n in zip(order.tasks, sizes, strict=False)))


def _note_dice(engine: Eager, course: Course) -> None:
    """Has every step of this engine note what it is called with, in refits too, before it runs.

    Whole numbers only: rows, places, permutations, boxes, pixels. A rate may depend on losses.
    """
    usual = engine.compile

    def compile_noting(step: Any, *more: Any) -> Any:
        run = usual(step, *more)

        def noting(*args: Any) -> Any:
            whole = [leaf for leaf in tree_leaves(args) if _is_whole(leaf)]
            course.rng.extend(leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in whole)
            return run(*args)

        return noting

    engine.compile = cast(Any, compile_noting)  # type: ignore[method-assign]


def _note_refit(learner: Learner, course: Course) -> None:
    assert learner.refitter.trainer is not None
    course.losses.append(learner.refitter.trainer.loss.clone())


def _is_whole(leaf: Any) -> bool:
    return not leaf.is_floating_point() if isinstance(leaf, Tensor) else isinstance(leaf, int)


def _curve(losses: list[Tensor]) -> Tensor:
    """Running means over WINDOW losses, or all of them where there are fewer."""
    if not losses:
        return torch.zeros(1)
    values = torch.stack(losses).double().cpu()
    return F.avg_pool1d(values[None, None], min(WINDOW, len(values)), stride=1).flatten()


def _largest(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference of any two numbers; without end where there are not as many."""
    if [values.shape for values in ours] != [values.shape for values in theirs]:
        return float("inf")
    apart = [(a.double() - b.double()).abs().max() for a, b in zip(ours, theirs, strict=True) if a.numel()]
    return float(torch.stack(apart).max()) if apart else 0.0


def _same(ours: list[Any], theirs: list[Any]) -> bool:
    """The same values in the same order, tensors or plain."""
    return len(ours) == len(theirs) and all(
        type(a) is type(b) and (torch.equal(a, b) if isinstance(a, Tensor) else a == b)
        for a, b in zip(ours, theirs, strict=True)
    )

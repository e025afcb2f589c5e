"""Whether an engine computes the same as the eager one: losses, memory, random numbers, weights and answers."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from benchmarks.gpu.setup import BenchmarkSetup, Mode, map_in_processes, reset_device
from benchmarks.gpu.timing import wait_for_device
from iblurry.data.dataset import Dataset
from iblurry.engine.eager import Eager, Precision
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.learner.learner import Learner
from iblurry.parts import Diverse, Importance
from iblurry.streams.iterator import StreamIterator
from iblurry.streams.order import Order

# A captured step is the same kernels in the same order, so not a bit may differ. Inductor's kernels round bfloat16
# elsewhere (they keep float32 between fused operations), and training amplifies such a difference chaotically: single
# losses mean nothing after some dozens of updates. So the first losses must be close, and of all the others the curve:
# by `TOLERANCE`, or, where a method learns so wildly that rounding alone does more, by twice what that does. What it
# does is seen from the eager trajectory in the other precision.
TOLERANCE: dict[Mode, dict[str, float]] = {
    "captured": {"loss differs by": 0.0, "weights differ by": 0.0, "answers differ by": 0.0},
    "compiled": {"first losses differ by": 0.1, "curve differs by": 0.15},
}
TIMES_ROUNDING = 2.0
FIRST = 4  # losses
WINDOW = 25  # losses that a point of the curve is the mean of
MEMORY = 64  # rows: most samples meet a full memory
LOOK_EVERY = 50  # samples between two looks at the memory
PARTS = 3  # tasks that the samples are taken from: classes arrive after steps were captured
QUESTIONS = 64
OTHER: dict[Precision, Precision] = {"bfloat16": "float32", "float32": "bfloat16"}
DEVICE_DECIDES = (Importance, Diverse)  # whose choice of a row depends on losses or gradients


@dataclass
class Trajectory:
    """What a stretch of the stream produced; tensors stay on the device until they are compared."""

    losses: list[Tensor] = field(default_factory=list)  # after each sample that was followed by updates, and in refits
    rows: list[Tensor] = field(default_factory=list)  # labels and times of writing, every LOOK_EVERY samples
    integers: list[Any] = field(default_factory=list)  # that the host sent to the device, update by update
    counters: list[tuple[int, int]] = field(default_factory=list)  # updates and samples
    answers: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)


def all_equal(
    methods: Sequence[str], setup: BenchmarkSetup, data: Dataset, *, steps: int, modes: tuple[Mode, ...], jobs: int
) -> Iterator[dict[str, Any]]:
    """Their rows in order, as they are ready; several processes share the device, each with its own copy of the data.

    Seconds are then those of work among other work.
    """
    if jobs == 1:
        yield from (equal(method, setup, data, steps=steps, modes=modes) for method in methods)
        return
    compare_one = functools.partial(_equal_alone, setup=setup, steps=steps, modes=modes)
    yield from map_in_processes(compare_one, methods, jobs=jobs)


def _equal_alone(method: str, *, setup: BenchmarkSetup, steps: int, modes: tuple[Mode, ...]) -> dict[str, Any]:
    return equal(method, setup, setup.load(), steps=steps, modes=modes)


def equal(method: str, setup: BenchmarkSetup, data: Dataset, *, steps: int, modes: tuple[Mode, ...]) -> dict[str, Any]:
    """A row: "equal", and the figures of each mode compared with the eager trajectory."""
    return equal_experiment(method, setup.experiment(method, memory=MEMORY, samples=steps), setup, data, modes=modes)


def equal_experiment(
    name: str, experiment: Experiment, setup: BenchmarkSetup, data: Dataset, *, modes: tuple[Mode, ...]
) -> dict[str, Any]:
    """The same of any experiment, called by this name."""
    row: dict[str, Any] = {"method": name, "steps": experiment.samples}

    def trajectory(mode: Mode) -> Trajectory:
        reset_device(setup.device)
        began = time.monotonic()
        taken = record(experiment, data, setup.engine(mode))
        row[f"{mode} seconds"] = time.monotonic() - began
        return taken

    reference = trajectory("eager")
    others = {mode: trajectory(mode) for mode in modes}
    rounding: dict[str, float] = {}
    if "compiled" in modes:  # last: on a processor without bfloat16 torch then changes its way for float32, too
        reset_device(setup.device)
        other_precision = dataclasses.replace(setup, precision=OTHER[setup.precision])
        elsewhere = record(experiment, data, other_precision.engine("eager"))
        row["rounding"] = rounding = departures(reference, elsewhere)
    for mode, other in others.items():
        row[mode] = compare(reference, other, mode, experiment, rounding)
    return row | {"equal": all(row[mode]["equal"] for mode in modes)}


def record(experiment: Experiment, data: Dataset, engine: Eager) -> Trajectory:
    """The trajectory of an experiment's samples in this engine, with a task's end after each third."""
    trajectory = Trajectory()
    _record_integers(engine, trajectory)
    with engine.cuda_stream():
        learner = experiment.learner(data, engine)
        learner.on_refit = lambda done, updates: _record_refit(learner, trajectory)
        for sample in StreamIterator(data, _thirds(experiment, data)):
            updates = learner.context.updates
            learner.observe(sample.image, sample.label)
            if learner.context.updates > updates:
                trajectory.losses.append(learner.trainer.loss.clone())
            if learner.context.seen % LOOK_EVERY == 0 or sample.last_of_task:
                memory = learner.context.memory
                trajectory.rows.append(torch.stack([memory.labels, memory.written_at]))
            if sample.last_of_task:
                learner.end_task()
                trajectory.answers.append(learner.logits(data.test.images[:QUESTIONS]).clone())
                trajectory.counters.append((learner.context.updates, learner.context.seen))
        trajectory.weights = [values.detach().clone() for values in learner.context.network.state_dict().values()]
        wait_for_device(engine.device)  # the comparison runs in another CUDA stream
    return trajectory


def compare(
    reference: Trajectory, other: Trajectory, mode: Mode, experiment: Experiment, rounding: dict[str, float]
) -> dict[str, Any]:
    """The figures, and whether they hold what this mode promises; `rounding`: those that it makes depart alone."""
    figures: dict[str, Any] = {
        "loss differs by": _largest(reference.losses, other.losses),
        **departures(reference, other),
        "weights differ by": _largest(reference.weights, other.weights),
        "answers differ by": _largest(reference.answers, other.answers),
        "same rows": _same(reference.rows, other.rows),
        "same integers": _same(reference.integers, other.integers) and reference.counters == other.counters,
        "finite": all(bool(values.isfinite().all()) for values in [*other.losses, *other.answers]),
    }
    tolerance = {name: _wider(most, rounding.get(name, 0.0)) for name, most in TOLERANCE[mode].items()}
    rows_may_differ = mode == "compiled" and isinstance(experiment.method.admission, DEVICE_DECIDES)
    holds = (
        figures["finite"]
        and figures["same integers"]
        and (figures["same rows"] or rows_may_differ)
        and all(figures[name] <= most for name, most in tolerance.items())
    )
    return figures | {"tolerance": tolerance, "equal": holds}


def departures(one: Trajectory, other: Trajectory) -> dict[str, float]:
    """How far apart two trajectories are that cannot be the same: at their first losses, and later in the mean."""
    ours, theirs = _curve(one.losses), _curve(other.losses)
    return {
        "first losses differ by": _largest(one.losses[:FIRST], other.losses[:FIRST]),
        "curve differs by": float((ours - theirs).abs().mean()) if ours.shape == theirs.shape else float("inf"),
    }


def _wider(most: float, rounding: float) -> float:
    return max(most, TIMES_ROUNDING * rounding) if math.isfinite(rounding) else most


def _thirds(experiment: Experiment, data: Dataset) -> Order:
    """The beginnings of the first tasks, as many samples as the experiment has."""
    samples = experiment.samples
    assert samples is not None
    order = dataclasses.replace(experiment, samples=None).order(data)
    sizes = [samples // PARTS] * (PARTS - 1) + [samples - (PARTS - 1) * (samples // PARTS)]
    least = min(len(task) for task in order.tasks[:PARTS])
    if max(sizes) > least or min(sizes) < 1:
        raise InputError(
            f"{samples} steps do not fit; give from {PARTS} to {PARTS * least} for {experiment.dataset!r}."
        )
    return dataclasses.replace(order, tasks=tuple(t[:n] for t, n in zip(order.tasks, sizes, strict=False)))


def _record_integers(engine: Eager, trajectory: Trajectory) -> None:
    """Makes every step of this engine, in refits too, record the integers it is called with.

    Rows, crops, permutations, boxes, pixels; not floats, as a learning rate may depend on losses.
    """
    compile_step = engine.compile

    def compile_recording(step: Any, *more: Any) -> Any:
        run = compile_step(step, *more)

        def recording(*args: Any) -> Any:
            whole = [leaf for leaf in tree_leaves(args) if _is_whole(leaf)]
            trajectory.integers.extend(leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in whole)
            return run(*args)

        return recording

    engine.compile = cast(Any, compile_recording)  # type: ignore[method-assign]


def _record_refit(learner: Learner, trajectory: Trajectory) -> None:
    assert learner.refitter.trainer is not None
    trajectory.losses.append(learner.refitter.trainer.loss.clone())


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

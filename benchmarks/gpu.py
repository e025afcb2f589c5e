"""`make bench-gpu`: that both engines take the same course, and what a sample, its stages and a query cost on a GPU."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from iblurry import Experiment, Learner, Stream, load
from iblurry.engine.eager import Eager
from iblurry.engine.graph import Graph
from iblurry.experiment.edit import edit

ALL = ("er", "ewc", "bic", "mir", "agem", "gss", "clib", "rm", "gdumb", "joint")
SHAPES = "shapes:classes=10,train=400,test=200,size=32,channels=3"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=ALL)
    parser.add_argument("--dataset", default=SHAPES)
    parser.add_argument("--data-home", type=Path)
    parser.add_argument("--steps", type=int, default=500, help="samples over which engines are compared")
    parser.add_argument("--samples", type=int, default=1000, help="samples timed, after the memory is full")
    parser.add_argument("--memory", type=int, default=500)
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--only", choices=("equal", "time"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    data = load(given.dataset, given.data_home)
    rows = []
    for name in given.methods:
        row: dict[str, Any] = {"method": name}
        if given.only != "time":
            row |= equal(name, data, given)
        if given.only != "equal":
            row |= timed(name, data, given)
        print(json.dumps(row), flush=True)
        rows.append(row)
    if given.json:
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "options": str(vars(given))}
        given.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
    return 0


def experiment(name: str, given: argparse.Namespace, **changes: Any) -> Experiment:
    one = Experiment.of(name, "cifar10", seed=1, **changes)
    if one.method.refit:
        one = edit(one, "readout.epochs=4")
    return one


def graph(given: argparse.Namespace) -> Graph:
    return Graph("cuda", given.precision, compiles=not given.no_compile)


def equal(name: str, data: Any, given: argparse.Namespace) -> dict[str, Any]:
    """The largest difference of the loss, and of any weight, over the same samples in both engines."""
    courses = []
    for engine in (Eager("cuda", given.precision), graph(given)):
        one = experiment(name, given, memory=64, samples=given.steps)
        learner = one.learner(data, engine)
        losses = []
        for at, sample in enumerate(Stream(data, one.order(data)), start=1):
            learner.observe(sample.image, sample.label)
            losses.append(learner.trainer.loss.clone())
            if at in (given.steps // 3, 2 * given.steps // 3):
                learner.end_task()
        answers = learner.logits(data.test.images[:64])
        weights = torch.cat([p.detach().flatten() for p in learner.bench.network.parameters()])
        rows = learner.bench.memory.labels.clone()
        courses.append((torch.stack(losses), weights, rows, answers))
    (loss, weights, rows, answers), (loss2, weights2, rows2, answers2) = courses
    return {
        "loss differs by": float((loss - loss2).abs().max()),
        "weights differ by": float((weights - weights2).abs().max()),
        "answers differ by": float((answers - answers2).abs().max()),
        "same memory": bool(torch.equal(rows, rows2)),
        "finite": bool(loss.isfinite().all()),
    }


def timed(name: str, data: Any, given: argparse.Namespace) -> dict[str, Any]:
    one = experiment(name, given, memory=given.memory)
    learner = one.learner(data, graph(given))
    stream = iter(Stream(data, one.order(data)))
    start = time.perf_counter()
    for _ in range(given.memory + 120):
        sample = next(stream)
        learner.observe(sample.image, sample.label)
    torch.cuda.synchronize()
    filling = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(given.samples):
        sample = next(stream)
        learner.observe(sample.image, sample.label)
    host = time.perf_counter() - start
    torch.cuda.synchronize()
    step = time.perf_counter() - start
    if one.method.refit:
        learner.end_task()
    query = asked(learner, data)
    return {
        "ms a sample": round(1000 * step / given.samples, 3),
        "of which the host": round(1000 * host / given.samples, 3),
        "ms a query of 10,000": round(query, 2),
        "filling s": round(filling, 1),
        "peak GB": round(torch.cuda.max_memory_allocated() / 1e9, 2),
    }


def asked(learner: Learner, data: Any) -> float:
    images = torch.from_numpy(data.test.images[:2000]).cuda().repeat(5, 1, 1, 1)
    learner.logits(images)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(5):
        learner.method.readout.logits(images)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 5 * 1000


if __name__ == "__main__":
    raise SystemExit(main())

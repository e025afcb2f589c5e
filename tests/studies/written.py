"""Finished runs that nobody ran: folders as a run leaves them, with right answers of our choice.

TINY is a study of three methods and two memories, and LEVELS are numbers of its runs that can be worked out by hand.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Journal, NewClass, Query, Record, Spent, Start, TaskEnd, read
from iblurry.experiment.metrics import metrics
from iblurry.studies.selection import Selection
from iblurry.studies.study import Study
from iblurry.studies.table import tabulate_study

SAMPLES, EVERY, ENDS = 100, 10, (20, 40, 60, 80, 100)
ASKED = 10_000
FLOPS = 1_000_000  # of an image forwards
ENVIRONMENT = {
    "iblurry": "0.1.0",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "python": "3.11.9",
    "torch": "2.13.0",
    "numpy": "2.4.0",
    "machine": "Linux x86_64, 16 cores",
    "device": "Some GPU",
    "precision": "bfloat16",
    "threads": 1,
    "data": "d",
    "order": "o",
}


def write_run(
    out: Path, experiment: Experiment, level: float, *, seconds: float = 100.0, wobble: int = 200, **changes: object
) -> tuple[Path, float, float]:
    """A run whose accuracy wobbles around `level` percent; its folder and what A_AUC and A_avg (percent) must be.

    `wobble` is by how many of 10,000 answers; `changes` are of its environment; None leaves a line out.
    """
    rng = np.random.default_rng(experiment.seed)
    folder = RunFolder(out / experiment.name)
    folder.path.mkdir(parents=True)
    folder.claim(experiment)
    curve, ends = [], []
    waits = experiment.method.readout.only_at_end
    with Journal(folder.journal) as journal:
        journal.append(Start(experiment.digest, SAMPLES, ENDS, EVERY))
        journal.append(NewClass(1, "ship"))
        for at in range(EVERY, SAMPLES + 1, EVERY):
            right = round(ASKED * level / 100) + (int(rng.integers(-wobble, wobble)) if wobble else 0)
            facts = (at, (at - 1) // 20, (right,), (ASKED,), 0.1, at)
            if not waits:
                journal.append(Query(*facts))
                curve.append(100 * right / ASKED)
            if at in ENDS and (not waits or at == SAMPLES):
                journal.append(TaskEnd(*facts))
                ends.append(100 * right / ASKED)
    folder.write("environment.json", _environment(changes) | {"seconds": seconds})
    folder.write("summary.json", asdict(metrics(read(folder.journal))) | {"seconds": seconds})
    (folder.path / "checkpoint-100.safetensors").write_bytes(b"large")
    (folder.path / "lock").touch()
    return folder.path, sum(curve) / max(1, len(curve)), sum(ends) / len(ends)


def spend(folder: Path, **images: int) -> Spent:
    """Puts down what a written run has spent: images forwards, by purpose, those of training backwards too."""
    backward = dict.fromkeys(images, 0) | {"training": images["training"]}
    flops = {purpose: FLOPS * (count + 2 * backward[purpose]) for purpose, count in images.items()}
    record = Spent(SAMPLES, SAMPLES, images, backward, flops, {"memory": 5_000_000, "parts": 2_000_000, "network": 500})
    with Journal(folder / "journal.jsonl") as journal:
        journal.append(record)
    summary = RunFolder(folder).summary() or {}
    compute = {name: value for name, value in asdict(record).items() if name != "at"}
    RunFolder(folder).write("summary.json", summary | {"compute": compute})
    return record


def stop(folder: Path, lines: int) -> None:
    """As if the run had been killed after so many lines of its journal."""
    (folder / "summary.json").unlink()
    kept = (folder / "journal.jsonl").read_text().splitlines(keepends=True)[:lines]
    (folder / "journal.jsonl").write_text("".join(kept) + '{"kind":"que' * bool(lines))
    if not lines:
        (folder / "journal.jsonl").unlink()


def rewrite(folder: Path, *records: Record) -> None:
    """Another journal for a run."""
    (folder / "journal.jsonl").unlink()
    with Journal(folder / "journal.jsonl") as journal:
        for record in records:
            journal.append(record)


def _environment(changes: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in (ENVIRONMENT | changes).items() if value is not None}


def usual(method: str, seed: int = 1, **changes: object) -> Experiment:
    return Experiment.of(method, "cifar10", seed=seed, **changes)


def tabulated(study, dataset, places, *, methods=None, seeds=(1, 2, 3), **more):
    """The table of some rows and seeds."""
    chosen = Selection(study=study, dataset=dataset, rows=methods and tuple(methods), seeds=tuple(seeds))
    return tabulate_study(chosen, places, **more)


TINY = Study(
    name="tiny",
    title="Memory & 100%",
    shows=("Table 4",),
    question="Does a larger memory help?",
    datasets=("cifar10",),
    rows=("mir", "er", "clib"),
    columns=lambda dataset: {"K=500": {}, "K=1000": {"memory": 1000}},
    metrics=("a_auc", "f_last"),
)
LEVELS = {  # percent by row and memory, for the seeds 1, 2, ...; the paper: 57.28 ± 2.43, 61.18 ± 1.08 (a copy), ...
    ("mir", 1000): (61, 62, 63),
    ("er", 500): (57, 57.5, 61),
    ("clib", 500): (70, 71, 75),
    ("clib", 1000): (73, 74.5),
}


def write_tiny(out: Path) -> None:
    for (method, memory), levels in LEVELS.items():
        for seed, level in enumerate(levels, start=1):
            write_run(out, usual(method, seed, memory=memory), level, wobble=0)

"""`python -m benchmarks.live.load`: what answers cost while a service learns at full speed, and the other way round.

All in one run on one machine: a bare loop of torch, the learner alone, the service learning without questions,
answering at rest, and both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.live.serving import ServeProcess, to_options
from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.live.client import Client

DATA = "shapes:classes=10,train=300,test=50,size=32,channels=3"
QUEUE = 100  # samples that may wait
SETTINGS: dict[str, object] = {"network": "convnet", "image": "3x32x32", "memory": 500, "queue": QUEUE}
SETTINGS["idle_updates"] = 0  # a service at rest leaves the machine to the bare loop
BATCH = 50  # samples of a request
LOOK = 0.2  # seconds between two looks at the queue
MOST_MS, LEAST_SHARE = 50.0, 0.7  # p99 of an answer while learning; of the learner's rate alone
LEAST_OF_BARE = 0.75  # samples learnt a second, of the updates a second of a bare loop
ROUNDS = 5  # of comparing these two


def main(words: Sequence[str] | None = None) -> int:
    """1 where a figure is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=600, help="to warm up with: the memory is full then")
    parser.add_argument("--seconds", type=float, default=15, help="of each part")
    parser.add_argument("--questions", type=float, default=50, help="a second")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        found = measured(Path(temporary), given.samples, given.seconds, given.questions)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 0 if all(figure["reached"] for figure in found["figures"]) else 1


def measured(folder: Path, samples: int, seconds: float, questions: float) -> dict[str, Any]:
    data = load(DATA)
    alone = offline(folder / "offline", data, samples, seconds)
    began = time.monotonic()
    with ServeProcess(folder / "live", *to_options(SETTINGS)) as serving, Client(serving.url) as client:
        started = time.monotonic() - began
        with teaching(serving.url, data):
            while client.status()["learnt"] < samples:
                time.sleep(0.2)
            asking = LoadGenerator(serving.url, data, questions)
            busy = rate(client, seconds)
            learning = asking.stop()
        client.wait(timeout=600)
        asking = LoadGenerator(serving.url, data, questions)
        time.sleep(seconds)
        rest = asking.stop()
        rounds = [side_by_side(serving.url, client, folder, data, seconds / 2) for _ in range(ROUNDS)]
        serving.stop()
    of_bare = median(learnt / bare for bare, learnt in rounds)
    p99, share = learning["p99 ms"], busy / alone
    return {
        "seconds to start": started,
        "samples a second": {
            "bare torch step": median(bare for bare, _ in rounds),
            "learner alone": alone,
            "service, no questions": median(learnt for _, learnt in rounds),
            "service, with questions": busy,
        },
        "answers": {"at rest": rest, "while learning": learning},
        "figures": [
            _figure("p99 of an answer while learning, ms", p99, MOST_MS, p99 <= MOST_MS),
            _figure("learning with questions / alone", share, LEAST_SHARE, share >= LEAST_SHARE),
            _figure("learning / bare torch step", of_bare, LEAST_OF_BARE, of_bare >= LEAST_OF_BARE),
        ],
    }


def side_by_side(url: str, client: Client, folder: Path, data: Dataset, seconds: float) -> tuple[float, float]:
    """Updates a second of the bare loop while the service rests, and then the service's samples a second.

    In turns, because the speed of a shared machine changes from minute to minute.
    """
    bare = bare_rate(folder / "offline", seconds)
    with teaching(url, data):
        time.sleep(1)
        learnt = rate(client, seconds)
    client.wait(timeout=600)
    return bare, learnt


def _figure(name: str, measured: float, to_reach: float, is_reached: bool) -> dict[str, Any]:
    return {"name": name, "measured": measured, "to reach": to_reach, "reached": is_reached}


def bare_rate(folder: Path, seconds: float) -> float:
    """Updates a second of the service's network and batch in a plain loop of torch, on images that are ready.

    The service learns one sample for each such update; it also stores, augments, tests and measures the memory.
    """
    import torch
    from torch.nn import functional as F

    from iblurry.live.settings import Settings
    from iblurry.network.build import build, open_row
    from iblurry.rng import Rng

    settings = Settings.of(folder)
    torch.set_num_threads(settings.threads)
    network = build(settings.network, settings.image, settings.max_classes, rng=Rng(1)).train()
    for row in range(10):
        open_row(network, row, Rng(1))
    optimizer = torch.optim.Adam(network.parameters(), 3e-4, fused=True)
    images, labels = torch.randn(settings.batch, *settings.image), torch.arange(settings.batch) % 10
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        optimizer.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()
        done += 1
    return done / (time.monotonic() - began)


def offline(folder: Path, data: Dataset, samples: int, seconds: float) -> float:
    """Samples a second of the learner by itself, in this process, with the service's threads and a full memory."""
    import torch

    from iblurry.live.settings import Settings

    settings = Settings.of(folder)
    torch.set_num_threads(settings.threads)
    learner = settings.build_learner()
    endless = samples_of(data)
    for _ in range(samples):
        learner.observe(*next(endless))
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        learner.observe(*next(endless))
        done += 1
    return done / (time.monotonic() - began)


def samples_of(data: Dataset) -> Iterator[tuple[Any, str]]:
    chance = np.random.default_rng(1)
    while True:
        which = int(chance.integers(len(data.train)))
        yield data.train.images[which], data.classes[data.train.labels[which]]


@contextmanager
def teaching(url: str, data: Dataset) -> Iterator[None]:
    """Somebody keeps the learner busy meanwhile.

    Batches are sent when there is room: a refused one would come again after seconds, when nothing is left to learn.
    """
    over = threading.Event()

    def teach() -> None:
        endless = samples_of(data)
        with Client(url) as client:
            while not over.wait(LOOK):
                if client.status()["queue"] <= QUEUE - BATCH:
                    batch = [next(endless) for _ in range(BATCH)]
                    client.learn([image for image, _ in batch], [label for _, label in batch])

    thread = threading.Thread(target=teach)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def rate(client: Client, seconds: float) -> float:
    """Samples a second that a service learns."""
    before, began = client.status()["learnt"], time.monotonic()
    time.sleep(seconds)
    learnt, now = client.status()["learnt"], time.monotonic()
    return (learnt - before) / (now - began)


class LoadGenerator:
    """Somebody asks about one image at a time, so many times a second."""

    def __init__(self, url: str, data: Dataset, questions: float) -> None:
        self._url, self._image, self._every = url, data.test.images[0], 1 / questions
        self._over = threading.Event()
        self._spent: list[float] = []  # seconds, by question
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        due = time.perf_counter()
        with Client(self._url) as client:
            while not self._over.is_set():
                began = time.perf_counter()
                client.predict([self._image])
                self._spent.append(time.perf_counter() - began)
                due = max(due + self._every, time.perf_counter())
                time.sleep(max(0.0, due - time.perf_counter()))

    def stop(self) -> dict[str, float]:
        self._over.set()
        self._thread.join()
        p50, p99 = np.percentile(self._spent, [50, 99]) * 1000
        return {
            "questions": len(self._spent),
            "p50 ms": float(p50),
            "p99 ms": float(p99),
            "most ms": 1000 * max(self._spent),
        }


def table(found: dict[str, Any]) -> str:
    lines = [f"{'started in':<34}{found['seconds to start']:>9.2f} s"]
    lines += [f"{name:<34}{value:>9.1f} samples/s" for name, value in found["samples a second"].items()]
    for name, row in found["answers"].items():
        about = f"p50 {row['p50 ms']:.2f}, p99 {row['p99 ms']:.2f}, most {row['most ms']:.2f} ms of {row['questions']}"
        lines.append(f"{'answers ' + name:<34}{about}")
    for row in found["figures"]:
        verdict = "reached" if row["reached"] else "missed"
        lines.append(f"{row['name']:<40}{row['measured']:>8.2f}  to reach {row['to reach']:>6.2f}  {verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m benchmarks.live.kills --times 50`: a service killed again and again under load loses and doubles nothing.

Two writers and a reader work all the time. At the end every acknowledged sample must have a number of its own, without
a gap, and the last checkpoint must be that of a learner that took the samples in this order in peace.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.live.serving import ServeProcess, to_options
from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.errors import ServiceError
from iblurry.live.client import Client, Receipt, http_client

DATA = "shapes:classes=10,train=200,test=20,size=8,channels=1"
SETTINGS: dict[str, object] = {"network": "mlp", "image": "1x8x8", "memory": 60, "batch": 8, "queue": 400}
BATCH = 8  # samples of a request, at most
PATIENCE = 120.0


@dataclass
class Record:
    """What came back to the writers and the reader."""

    order: dict[int, int] = field(default_factory=dict)  # number of a sample -> which one it was
    twice: list[int] = field(default_factory=list)  # numbers given to two samples
    requests: int = 0
    repeated: int = 0  # requests that had been accepted before a kill cut their answer off
    answers: int = 0
    unanswered: int = 0  # questions that met no service
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)


def main(words: Sequence[str] | None = None) -> int:
    """1 where something was lost, doubled or learnt otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=50, help="kills")
    parser.add_argument("--seconds", type=float, default=1.5, help="of load before a kill, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the service's folder; a temporary one unless given")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        row = killed(given.out or Path(temporary) / "live", times=given.times, seconds=given.seconds, seed=given.seed)
    print(json.dumps(row, indent=1))
    return 0 if row["whole"] and row["same"] and not row["wrong"] else 1


def killed(folder: Path, *, times: int, seconds: float, seed: int) -> dict[str, Any]:
    """The story of one service."""
    data, record = load(DATA), Record()
    began = time.monotonic()
    back_at_once = patch.object(http_client, "LONGEST_PAUSE", http_client.FIRST_PAUSE)  # whoever was cut off
    with back_at_once, ServeProcess(folder, *to_options(SETTINGS)) as serving:
        work = [partial(write, serving.url, data, record, seed + i) for i in range(2)]
        work.append(partial(read, serving.url, data, record))
        threads = [threading.Thread(target=to_the_end, args=(one, record)) for one in work]
        for thread in threads:
            thread.start()
        try:
            _kill(serving, record, times=times, seconds=seconds, chance=random.Random(seed))
        finally:
            record.over.set()
            for thread in threads:
                thread.join()
        with Client(serving.url, patience=PATIENCE) as client:
            client.wait(timeout=PATIENCE)
            status = client.status()
        code = serving.stop()
    return {
        "kills": times,
        "seconds": round(time.monotonic() - began, 1),
        "acknowledged": len(record.order),
        "accepted": status["accepted"],
        "requests": record.requests,
        "of them repeated": record.repeated,
        "answers": record.answers,
        "unanswered": record.unanswered,
        "wrong": record.wrong,
        "whole": not record.twice and sorted(record.order) == list(range(1, status["accepted"] + 1)),
        "same": same(folder, data, record.order),
        "exit code": code,
    }


def _kill(serving: ServeProcess, record: Record, *, times: int, seconds: float, chance: random.Random) -> None:
    for number in range(times):
        known = len(record.order)
        while len(record.order) == known:
            if record.wrong:
                return
            time.sleep(0.01)
        time.sleep(chance.uniform(0, seconds))  # under load
        serving.kill(everything=bool(number % 2))
        serving.start()
        print(json.dumps({"kill": number + 1, "acknowledged": len(record.order)}), flush=True)
    time.sleep(seconds)


def to_the_end(work: Callable[[], None], record: Record) -> None:
    """Whoever gives up before has met something wrong."""
    try:
        work()
    except Exception as error:
        record.wrong.append(f"{type(error).__name__}: {error}")
        raise


def write(url: str, data: Dataset, record: Record, seed: int) -> None:
    """Sends one batch after another, each until it is acknowledged, also across kills."""
    chance = random.Random(seed)
    with Client(url, patience=PATIENCE) as client:
        while not record.over.is_set():
            chosen = [chance.randrange(len(data.train)) for _ in range(chance.randint(1, BATCH))]
            labels = [data.classes[data.train.labels[i]] for i in chosen]
            note(client.learn([data.train.images[i] for i in chosen], labels), chosen, record)


def note(receipt: Receipt, chosen: list[int], record: Record) -> None:
    """Which numbers these samples have got."""
    with record.lock:
        record.requests += 1
        record.repeated += bool(receipt.repeated)
        if receipt.last - receipt.first + 1 != len(chosen):
            record.wrong.append(f"{len(chosen)} samples were numbered {receipt.first} to {receipt.last}")
        for number, which in zip(range(receipt.first, receipt.last + 1), chosen, strict=False):
            if number in record.order:
                record.twice.append(number)
            record.order[number] = which


def read(url: str, data: Dataset, record: Record) -> None:
    """Asks all the time; a service that is away is no answer, but whatever answers answers well."""
    with Client(url, patience=0) as client:
        while not record.over.is_set():
            try:
                (answer,) = client.predict([data.test.images[0]], top=10)
            except ServiceError as error:
                record.unanswered += 1
                if error.status is not None and error.status >= 500:
                    record.wrong.append(str(error))
                time.sleep(0.02)
            else:
                record.answers += 1
                if abs(sum(guess.probability for guess in answer.top) - 1) > 1e-3:
                    record.wrong.append(f"{answer} does not add up")


def same(folder: Path, data: Dataset, order: dict[int, int]) -> bool:
    """Whether the last checkpoint is, byte for byte, that of a learner nobody disturbed."""
    import torch

    from iblurry.live.learning import LiveLearner
    from iblurry.live.log import LogEntry
    from iblurry.live.messages import Operation
    from iblurry.live.settings import Settings

    settings = Settings.of(folder)
    torch.set_num_threads(settings.threads)
    peace = folder.parent / "peace"
    peace.mkdir(exist_ok=True)
    learning = LiveLearner(peace, settings)
    for at, which in sorted(order.items()):
        pixels = np.ascontiguousarray(data.train.images[which])
        learning.apply(
            LogEntry(at, Operation("sample", at, data.classes[data.train.labels[which]], pixels=pixels.tobytes()))
        )
    learning.save()
    name = f"checkpoint-{len(order):012d}.safetensors"
    return (folder / name).exists() and (folder / name).read_bytes() == (peace / name).read_bytes()


if __name__ == "__main__":
    raise SystemExit(main())

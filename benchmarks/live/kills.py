"""`python -m benchmarks.live.kills --times 50`: a service killed again and again under load loses and doubles nothing.

Two writers, one who corrects and holds out, and a reader who sends some labels later work all the time, with pauses in
which the service rehearses. The log is read along, since it is cut back with every checkpoint. At the end every
acknowledged sample and correction must be in it once, under its number, without a gap, and the last checkpoint must be
that of a learner that took the operations in this order in peace.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
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
from iblurry.live import client as client_module
from iblurry.live.client import Client, CorrectionReceipt, Receipt
from iblurry.live.log import FILE, LogEntry
from iblurry.live.messages import Operation

DATA = "shapes:classes=10,train=200,test=20,size=8,channels=1"
SETTINGS: dict[str, object] = {"network": "mlp", "image": "1x8x8", "memory": 60, "batch": 8, "queue": 400}
SETTINGS["idle_updates"] = 200
BATCH = 8  # samples of a request, at most
LABELLED = 20  # one answer of so many gets its label later
MOST_PAUSE = 0.4  # seconds between two requests of a writer, at most
NOT_THERE = (404, 409, 410, 422)  # statuses of what cannot be corrected or labelled (any more)
PATIENCE = 120.0


@dataclass
class Record:
    """What came back to the writers and the reader."""

    order: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # number of a sample -> its label and pixels
    corrections: dict[int, Operation] = field(default_factory=dict)  # and held-out samples: acknowledged, by number
    log: dict[int, LogEntry] = field(default_factory=dict)  # all that was read from the log
    twice: list[int] = field(default_factory=list)  # numbers given to two samples, or corrections
    labels: int = 0  # that were sent later
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
    back_at_once = patch.object(client_module, "LONGEST_PAUSE", client_module.FIRST_PAUSE)  # whoever was cut off
    with back_at_once, ServeProcess(folder, *to_options(SETTINGS)) as serving:
        work = [partial(write, serving.url, data, record, seed + i) for i in range(2)]
        work.append(partial(correct, serving.url, data, record, seed + 2))
        work.append(partial(read, serving.url, data, record))
        ended = threading.Event()  # of the service: it checkpoints, and cuts its log back, until then
        reader = threading.Thread(
            target=to_the_end, args=(partial(read_log, folder / FILE, record, ended), record), daemon=True
        )
        reader.start()
        threads = [threading.Thread(target=to_the_end, args=(one, record)) for one in work]
        for thread in threads:
            thread.start()
        try:
            _kill(serving, record, times=times, seconds=seconds, chance=random.Random(seed))
        finally:
            record.over.set()
            for thread in threads:
                thread.join()
        try:
            with Client(serving.url, patience=PATIENCE) as client:
                client.wait(timeout=PATIENCE)
            code = serving.stop()
        finally:
            ended.set()
            reader.join()
    copy_log(folder / FILE, record)
    operations = {at: entry.operation for at, entry in record.log.items()}
    samples = {op.number: (op.label, op.pixels) for op in operations.values() if op.kind == "sample"}
    found = {at: operations.get(at) for at in record.corrections}
    return {
        "kills": times,
        "seconds": round(time.monotonic() - began, 1),
        "acknowledged": len(record.order),
        "accepted": len(samples),
        "corrections": len(record.corrections),
        "labels sent later": record.labels,
        "held out": sum(op.kind == "hold" for op in operations.values()),
        "steps of rehearsal": sum(op.kind == "rehearse" for op in operations.values()),
        "requests": record.requests,
        "of them repeated": record.repeated,
        "answers": record.answers,
        "unanswered": record.unanswered,
        "wrong": record.wrong,
        "whole": not record.twice
        and sorted(record.log) == list(range(1, len(record.log) + 1))
        and samples == record.order
        and found == record.corrections
        and len(found) == sum(op.kind not in ("sample", "rehearse") for op in operations.values()),
        "same": same(folder, record.log),
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
            images = [data.train.images[i] for i in chosen]
            labels = [data.classes[data.train.labels[i]] for i in chosen]
            note(client.learn(images, labels), images, labels, record)
            time.sleep(chance.choice((0, 0, 0, MOST_PAUSE)))


def note(receipt: Receipt, images: Sequence[Any], labels: Sequence[str], record: Record) -> None:
    """Which numbers these samples have got."""
    with record.lock:
        record.requests += 1
        record.repeated += bool(receipt.repeated)
        if receipt.last - receipt.first + 1 != len(labels):
            record.wrong.append(f"{len(labels)} samples were numbered {receipt.first} to {receipt.last}")
        for number, image, label in zip(range(receipt.first, receipt.last + 1), images, labels, strict=False):
            if number in record.order:
                record.twice.append(number)
            record.order[number] = label, np.ascontiguousarray(image).tobytes()


def correct(url: str, data: Dataset, record: Record, seed: int) -> None:
    """Corrects and holds out at random, each until it is acknowledged or cannot be applied."""
    chance = random.Random(seed)
    with Client(url, patience=PATIENCE) as client:
        while not record.over.is_set():
            time.sleep(chance.uniform(0, MOST_PAUSE))
            number, (one, other) = chance.randint(1, len(record.order) + 1), chance.sample(data.classes, 2)
            image = data.test.images[chance.randrange(len(data.test))]
            operation = chance.choice(
                [
                    Operation("hold", label=one, pixels=image.tobytes()),
                    Operation("remove", number),
                    Operation("relabel", number, other),
                    Operation("rename", label=one, to=other),
                    Operation("merge", label=one, to=other),
                    Operation("delete", label=one),
                ]
            )
            kind, sample, label, to, _ = operation
            named = {"sample": sample, "label": label, "to": to}
            try:
                receipt: Receipt | CorrectionReceipt
                if kind == "hold":
                    receipt = client.hold_out(image, one)
                else:
                    given = {name: value for name, value in named.items() if value}
                    receipt = client.correct([{"action": kind} | given])
            except ServiceError as error:
                if error.status not in NOT_THERE:
                    raise
                continue
            if receipt.operation in record.corrections:
                record.twice.append(receipt.operation)
            record.corrections[receipt.operation] = operation


def read(url: str, data: Dataset, record: Record) -> None:
    """Asks all the time; a service that is away is no answer, but whatever answers answers well.

    Now and then it sends the label of an answer.
    """
    chance = random.Random(1)
    with Client(url, patience=0) as client, Client(url, patience=PATIENCE) as patient:
        while not record.over.is_set():
            which = chance.randrange(len(data.test))
            image, label = data.test.images[which], data.classes[data.test.labels[which]]
            try:
                (answer,) = client.predict([image], top=10)
            except ServiceError as error:
                record.unanswered += 1
                if error.status is not None and error.status >= 500:
                    record.wrong.append(str(error))
                time.sleep(0.02)
            else:
                record.answers += 1
                if abs(sum(guess.probability for guess in answer.top) - 1) > 1e-3:
                    record.wrong.append(f"{answer} does not add up")
                if record.answers % LABELLED == 0:
                    try:
                        note(patient.label(answer.id, label), [image], [label], record)
                        record.labels += 1
                    except ServiceError as error:
                        if error.status not in NOT_THERE:  # the image is gone with a kill
                            raise


def read_log(path: Path, record: Record, ended: threading.Event) -> None:
    """Reads along, much more often than the log is cut back."""
    while not ended.is_set():
        copy_log(path, record)
        time.sleep(0.1)


def copy_log(path: Path, record: Record) -> None:
    query = "SELECT at, kind, number, label, other, pixels, time FROM operation WHERE at > ? ORDER BY at"
    database = sqlite3.connect(path, timeout=PATIENCE)
    try:
        for at, *values, when in database.execute(query, (max(record.log, default=0),)):
            record.log[at] = LogEntry(at, Operation(*values), when)
    finally:
        database.close()


def same(folder: Path, entries: dict[int, LogEntry]) -> bool:
    """Whether the last checkpoint is, byte for byte, that of a learner nobody disturbed.

    Steps of rehearsal at the end of the log may have been written when the service was stopped, and not been taken.
    """
    import torch

    from iblurry.live.learning import LiveLearner
    from iblurry.live.settings import Settings

    settings = Settings.of(folder)
    torch.set_num_threads(settings.threads)
    peace = folder.parent / "peace"
    peace.mkdir(exist_ok=True)
    learning = LiveLearner(peace, settings)
    newest = max(folder.glob("checkpoint-*.safetensors"))
    last = int(newest.stem.removeprefix("checkpoint-"))
    for _, entry in sorted(entries.items()):
        if entry.at <= last:
            learning.apply(entry)
    learning.save()
    whole = learning.at == last and all(one.operation.kind == "rehearse" for one in entries.values() if one.at > last)
    return whole and newest.read_bytes() == (peace / newest.name).read_bytes()


if __name__ == "__main__":
    raise SystemExit(main())

"""Split sets as the paper's authors publish them: one JSON list per task, read into an Order and written from one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.components.code_hash import content_hash
from iblurry.data.dataset import Dataset
from iblurry.data.images import PictureFiles
from iblurry.errors import DataError, InputError
from iblurry.rng import Rng
from iblurry.storage.untrusted import exact, read_json
from iblurry.streams.order import Order, is_disjoint

TASK_FILE = re.compile(r"(?P<set>.+_n(?P<n>\d+(\.\d+)?)_m\d+(\.\d+)?_rand(?P<seed>-?\d+))_task(?P<task>\d+)\.json")
UNSHUFFLED = "cifar100_split5_n100_m0_rand1"  # published as a raw listing, class by class
NAMED = "imagenet"  # files go by their names: the numbers in them have gaps
NUMBERED_FROM_ZERO = "tinyimagenet"  # train/<wnid>/<wnid>_<i>.JPEG; all others train/<class>/<nnnn>.png, from 1


def read(
    directory: str | Path, dataset: Dataset, *, tasks: int, n: float, m: float, seed: int, name: str | None = None
) -> Order:
    """The published set of this data set, number of tasks, N, M and seed, from `directory` or its folder `name`."""
    if tasks < 1:
        raise InputError(
            f"tasks={tasks}: a set has at least one task; give the number in its file names (split<tasks>)."
        )
    name = dataset.name if name is None else name
    folder = Path(directory)
    stem = set_name(name, tasks=tasks, n=n, m=m, seed=seed)
    files = [f"{stem}_task{t}.json" for t in range(tasks)]
    if not (folder / files[0]).exists() and (folder / name).is_dir():
        folder = folder / name
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        there = sorted(file.name.removesuffix("_task0.json") for file in folder.glob("*_task0.json"))
        raise DataError(
            f"{folder} has no {missing[0]}; a set of {tasks} tasks is {files[0]} to {files[-1]}. "
            f"Sets that begin there: {', '.join(there) or 'none'}."
        )
    return read_files([folder / file for file in files], dataset)


def hash_sets(directory: str | Path, name: str, *, tasks: int, n: float, m: float) -> str:
    """A hash of the names and bytes of a data set's sets with these numbers, in a folder or its folder `name`."""
    pattern = f"{set_name(name, tasks=tasks, n=n, m=m, seed='*')}_task*.json"
    folder = Path(directory)
    files = sorted([*folder.glob(pattern), *folder.glob(f"{name}/{pattern}")], key=lambda path: path.name)
    if not files:
        raise DataError(f"{folder} has no file {pattern}; give the folder of the published split files.")
    return content_hash(*(piece for path in files for piece in (path.name, path.read_bytes())))


def read_files(paths: Sequence[str | Path], dataset: Dataset) -> Order:
    """The order that these files list, one file per task, mapped by class name and number to the data set's samples."""
    if not paths:
        raise InputError("No task files were given; give those of one set, one per task.")
    names = [TASK_FILE.fullmatch(Path(path).name) for path in paths]
    numbers = [int(name["task"]) for name in names if name]
    if numbers and numbers != list(range(len(paths))):
        raise DataError(f"The task files are of the tasks {numbers}; give all files of one set, from task 0 on.")
    reader = _RecordReader(dataset)
    tasks = [reader.task(Path(path)) for path in paths]
    if names[0] and names[0]["set"] == UNSHUFFLED and all(_is_listing(dataset.train.labels[task]) for task in tasks):
        rng = Rng(int(names[0]["seed"]))
        tasks = [task[rng.permutation(f"published.task.{t}", 0, len(task))] for t, task in enumerate(tasks)]
    classes = reader.classes_by_label(Path(paths[0]).parent)
    spread = (Order(tuple(tasks), classes, 0).counts(dataset.train.labels) > 0).sum(axis=1)
    disjoint = next((label for label, held_by in enumerate(spread) if held_by > 1), len(classes))
    if names[0]:  # a blurry class of few samples may lie in one task by chance, so what N says is the most
        disjoint = min(disjoint, _disjoint_classes(len(classes), names[0]["n"]))
    return Order(tuple(tasks), classes, disjoint)


def read_test(path: str | Path, dataset: Dataset) -> NDArray[np.int64]:
    """The classes of a published test list, record by record, by class name.

    Never by `label`: the published lists carry the labels of one seed's class order, which disagree with all others.
    """
    known = {name: c for c, name in enumerate(dataset.classes)}
    records = _records(Path(path))
    return np.array(
        [_class_of(record, known, f"{path}, record {i}") for i, record in enumerate(records)], dtype=np.int64
    )


def export(order: Order, dataset: Dataset, directory: str | Path, *, seed: int, n: float, m: float) -> list[Path]:
    """Write the order as a published set, one file per task and the test list; `read` gives the same order back."""
    classes = len(order.classes)
    if order.disjoint != (classes if is_disjoint(n, m) else _disjoint_classes(classes, n)):
        raise InputError(
            f"n={n} with m={m} does not name an order in which {order.disjoint} of {classes} classes are disjoint; "
            f"give n={_format_percentage(fitting_n(order))}, or n=100 and m=0 when all are."
        )
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    train, test = dataset.train.labels, dataset.test.labels
    label = {c: at for at, c in enumerate(order.classes)}
    rank = _rank_in_class(train)
    stem = set_name(dataset.name, tasks=len(order.tasks), n=n, m=m, seed=seed)
    written = []
    for t, task in enumerate(order.tasks):
        rows = zip(task.tolist(), train[task].tolist(), rank[task].tolist(), strict=True)
        records = [_record(dataset, "train", row, c, at, label[c]) for row, c, at in rows]
        written.append(_write(folder / f"{stem}_task{t}.json", records))
    # One test list for all seeds, so its labels are the data set's own; readers go by the class name.
    rows = zip(range(len(test)), test.tolist(), _rank_in_class(test).tolist(), strict=True)
    records = [_record(dataset, "test", row, c, at, c) for row, c, at in rows]
    written.append(_write(folder / f"{dataset.name}_val.json", records))
    return written


def set_name(name: str, *, tasks: int, n: float, m: float, seed: int | str) -> str:
    """What the files of a set are called; N = 100 or M = 0 is the disjoint split, n100_m0.

    >>> set_name("cifar10", tasks=5, n=50, m=0, seed=1)
    'cifar10_split5_n100_m0_rand1'
    """
    if is_disjoint(n, m):
        n, m = 100, 0
    return f"{name}_split{tasks}_n{_format_percentage(n)}_m{_format_percentage(m)}_rand{seed}"


def fitting_n(order: Order) -> float:
    """The shortest N, rounded up, of which floor(C*N/100) is the number of disjoint classes of the order.

    Needed where classes were dropped: N = 75 of ten classes over five tasks leaves the split that N = 50 names.
    """
    share = Fraction(100 * order.disjoint, len(order.classes))
    rounded = (Fraction(ceil(share * 10**digits), 10**digits) for digits in count())
    return float(next(n for n in rounded if _disjoint_classes(len(order.classes), n) == order.disjoint))


class _RecordReader:
    """Turns records into training indices and refuses unknown samples, duplicates and labels that disagree."""

    def __init__(self, dataset: Dataset) -> None:
        self.known = {name: c for c, name in enumerate(dataset.classes)}
        self.labels: dict[int, int] = {}  # class id -> label
        self.used = np.zeros(len(dataset.train), dtype=bool)
        counts = np.bincount(dataset.train.labels, minlength=len(dataset.classes))
        self.samples = np.split(np.argsort(dataset.train.labels, kind="stable"), np.cumsum(counts)[:-1])
        self.named: dict[str, int] | None = None  # file -> which sample of its class
        if dataset.name == NAMED:
            rank = _rank_in_class(dataset.train.labels).tolist()
            self.named = dict(zip(_names(dataset, "train"), rank, strict=True))

    def task(self, path: Path) -> NDArray[np.int64]:
        records = _records(path)
        return np.array(
            [self.sample(record, f"{path}, record {i}") for i, record in enumerate(records)], dtype=np.int64
        )

    def sample(self, record: dict[str, Any], where: str) -> int:
        c = _class_of(record, self.known, where)
        file, label = record.get("file_name", record.get("filepath")), record.get("label")
        at = _position(file, record["klass"])
        if self.named is not None and at is not None:
            at = self.named.get(str(file), -1)
        if at is None:
            raise DataError(
                f"{where}: the path is {file!r}; 'file_name' or 'filepath' must hold train/<class>/<number>.png or "
                f"train/<class>/<class>_<number>.JPEG with the class {record['klass']!r}."
            )
        if not 0 <= at < len(self.samples[c]):
            raise DataError(
                f"{where}: {file} is not among the {len(self.samples[c])} training samples of {record['klass']!r}; "
                f"use the data set that the split was made for."
            )
        if type(label) is not int or self.labels.setdefault(c, label) != label:
            raise DataError(
                f"{where}: the label of {record['klass']!r} is {label!r}; it must be the same whole number everywhere "
                f"(elsewhere {self.labels.get(c, 'not yet given')})."
            )
        index = int(self.samples[c][at])
        if self.used[index]:
            raise DataError(f"{where}: {file} was listed before; a set uses each sample once. Download it again.")
        self.used[index] = True
        return index

    def classes_by_label(self, folder: Path) -> tuple[int, ...]:
        by_label = sorted(self.labels, key=self.labels.__getitem__)
        if sorted(self.labels.values()) != list(range(len(by_label))):
            raise DataError(
                f"The files in {folder} give {len(by_label)} classes the labels {sorted(self.labels.values())}; "
                f"each class needs its own label, 0 to {len(by_label) - 1}."
            )
        return tuple(by_label)


def _position(file: object, klass: str) -> int | None:
    """Which sample of its class, from 0, in the data set's order; None where the path is of another form."""
    if not isinstance(file, str) or not file.startswith(f"train/{klass}/"):
        return None
    stem, _, kind = file.removeprefix(f"train/{klass}/").rpartition(".")
    if kind == "png" and stem.isdecimal():
        # The PNG names follow the numbering of the tool cifar2png: a counter per class, from 1, in the order of the
        # original training batches. The archive that was numbered is not published, so this is likely but unproven.
        return int(stem) - 1
    number = stem.removeprefix(f"{klass}_")
    return int(number) if kind == "JPEG" and number.isdecimal() else None  # TinyImageNet: original names, exact


def _record(dataset: Dataset, part: str, row: int, c: int, at: int, label: int) -> dict[str, str | int]:
    klass = dataset.classes[c]
    if dataset.name == NAMED:
        return {"klass": klass, "file_name": _names(dataset, part)[row], "label": label}
    file = f"{klass}_{at}.JPEG" if part == "train" and dataset.name == NUMBERED_FROM_ZERO else f"{at + 1:04d}.png"
    return {"klass": klass, "file_name": f"{part}/{klass}/{file}", "label": label}


def _names(dataset: Dataset, part: str) -> tuple[str, ...]:
    images = (dataset.train if part == "train" else dataset.test).images
    if not isinstance(images, PictureFiles):
        raise InputError(
            f"The published sets of {dataset.name} name files, which images in memory no longer have; "
            f"load it with lazy=true, as in {dataset.name}:PATH,lazy=true."
        )
    return images.names


def _class_of(record: dict[str, Any], known: dict[str, int], where: str) -> int:
    klass = record.get("klass")
    if not isinstance(klass, str) or klass not in known:
        raise DataError(
            f"{where}: the class {klass!r} ('klass') is not among the {len(known)} classes of the data set "
            f"({', '.join(list(known)[:5])}, ...); use the data set that the split was made for."
        )
    return known[klass]


def _records(path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = read_json(path, list, remedy="Give the path of a published list, downloaded again.")
    if not records:
        raise DataError(f"{path} must hold a JSON list of at least one record; download the file again.")
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            raise DataError(f"{path}, record {i}: {record!r} is not a record with 'klass', 'file_name' and 'label'.")
    return records


def _write(path: Path, records: list[dict[str, str | int]]) -> Path:
    path.write_text(json.dumps(records), encoding="utf-8")
    return path


def _disjoint_classes(classes: int, n: float | str | Fraction) -> int:
    return int(classes * exact(n) / 100)


def _format_percentage(percentage: float) -> str:
    return f"{Decimal(str(float(percentage))):f}".removesuffix(".0")  # never 1e-05


def _rank_in_class(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of samples of the same class before each sample."""
    by_class = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    rank = np.empty(len(labels), dtype=np.int64)
    rank[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank


def _is_listing(labels: NDArray[np.int64]) -> bool:
    """Whether the samples come class by class."""
    return int((np.diff(labels) != 0).sum()) == len(np.unique(labels)) - 1

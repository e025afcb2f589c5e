"""Split sets as the paper's authors publish them: one JSON list per task, read into an Order and written from one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
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
from iblurry.streams.order import Order, by_class, is_disjoint

_TASK_FILE = re.compile(r"(?P<set>.+_n(?P<n>\d+(\.\d+)?)_m\d+(\.\d+)?_rand(?P<seed>-?\d+))_task(?P<task>\d+)\.json")
_UNSHUFFLED = "cifar100_split5_n100_m0_rand1"  # published as a raw listing, class by class
_NAMED = "imagenet"  # files go by their names: the numbers in them have gaps
_NUMBERED_FROM_ZERO = "tinyimagenet"  # train/<wnid>/<wnid>_<i>.JPEG; all others train/<class>/<nnnn>.png, from 1


def read(directory: str | Path, dataset: Dataset, *, tasks: int, n: float, m: float, seed: int) -> Order:
    """The published set of this data set, number of tasks, N, M and seed, from a folder or its folder of that name."""
    if tasks < 1:
        raise InputError(
            f"tasks={tasks}: a set has at least one task; give the number in its file names (split<tasks>)."
        )
    folder, name = Path(directory), dataset.name
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
    """The order that these files list, one file per task, mapped by class name and number to the data set's samples.

    Refused are unknown samples, duplicates, and labels that disagree.
    """
    if not paths:
        raise InputError("No task files were given; give those of one set, one per task.")
    names = [_TASK_FILE.fullmatch(Path(path).name) for path in paths]
    numbers = [int(name["task"]) for name in names if name]
    if numbers and numbers != list(range(len(paths))):
        raise DataError(f"The task files are of the tasks {numbers}; give all files of one set, from task 0 on.")
    find = _sample_finder(dataset)
    tasks, used = [], np.zeros(len(dataset.train), dtype=bool)
    label_of: dict[int, int] = {}  # of each class
    for path in paths:
        records = read_json(Path(path), list, remedy="Give the path of a published list, downloaded again.")
        if not records:
            raise DataError(f"{path} must hold a JSON list of at least one record; download the file again.")
        task = []
        for i, record in enumerate(records):
            try:
                c, index = find(record)
                label = record.get("label")
                if type(label) is not int or label_of.setdefault(c, label) != label:
                    raise DataError(
                        f"the label of {record['klass']!r} is {label!r}; it must be the same whole number everywhere "
                        f"(elsewhere {label_of.get(c, 'not yet given')})."
                    )
                if used[index]:
                    raise DataError(
                        f"{record!r:.200} was listed before; a set uses each sample once. Download it again."
                    )
            except DataError as error:
                raise DataError(f"{path}, record {i}: {error}") from None
            used[index] = True
            task.append(index)
        tasks.append(np.array(task, dtype=np.int64))
    if sorted(label_of.values()) != list(range(len(label_of))):
        raise DataError(
            f"The files in {Path(paths[0]).parent} give {len(label_of)} classes the labels "
            f"{sorted(label_of.values())}; each class needs its own label, 0 to {len(label_of) - 1}."
        )
    classes = tuple(sorted(label_of, key=label_of.__getitem__))
    if names[0] and names[0]["set"] == _UNSHUFFLED and all(_is_listing(dataset.train.labels[task]) for task in tasks):
        rng = Rng(int(names[0]["seed"]))
        tasks = [task[rng.permutation(f"published.task.{t}", 0, len(task))] for t, task in enumerate(tasks)]
    spread = (Order(tuple(tasks), classes, 0).counts(dataset.train.labels) > 0).sum(axis=1)
    disjoint = next((label for label, held_by in enumerate(spread) if held_by > 1), len(classes))
    if names[0]:  # a blurry class of few samples may lie in one task by chance, so what N says is the most
        disjoint = min(disjoint, _disjoint_classes(len(classes), names[0]["n"]))
    return Order(tuple(tasks), classes, disjoint)


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
        written.append(folder / f"{stem}_task{t}.json")
        written[-1].write_text(json.dumps(records), encoding="utf-8")
    # One test list for all seeds, so its labels are the data set's own; readers go by the class name.
    rows = zip(range(len(test)), test.tolist(), _rank_in_class(test).tolist(), strict=True)
    records = [_record(dataset, "test", row, c, at, c) for row, c, at in rows]
    written.append(folder / f"{dataset.name}_val.json")
    written[-1].write_text(json.dumps(records), encoding="utf-8")
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


def _sample_finder(dataset: Dataset) -> Callable[[Any], tuple[int, int]]:
    """Returns a function from a record to its class and training sample; DataError where there is none such."""
    labels = dataset.train.labels
    known = {name: c for c, name in enumerate(dataset.classes)}
    samples = by_class(labels, np.bincount(labels, minlength=len(known)))
    named = None  # file -> which sample of its class
    if dataset.name == _NAMED:
        named = dict(zip(_names(dataset, "train"), _rank_in_class(labels).tolist(), strict=True))

    def find(record: Any) -> tuple[int, int]:
        if not isinstance(record, dict):
            raise DataError("it is not a record with 'klass', 'file_name' and 'label'.")
        klass, file = record.get("klass"), record.get("file_name", record.get("filepath"))
        if not isinstance(klass, str) or klass not in known:
            raise DataError(
                f"the class {klass!r} ('klass') is not among the {len(known)} classes of the data set "
                f"({', '.join(list(known)[:5])}, ...); use the data set that the split was made for."
            )
        own, at = samples[known[klass]], _position(file, klass)
        if at is None:
            raise DataError(
                f"the path is {file!r}; 'file_name' or 'filepath' must hold train/<class>/<number>.png or "
                f"train/<class>/<class>_<number>.JPEG with the class {klass!r}."
            )
        if named is not None:
            at = named.get(str(file), -1)
        if not 0 <= at < len(own):
            raise DataError(
                f"{file} is not among the {len(own)} training samples of {klass!r}; use the data set that the split "
                "was made for."
            )
        return known[klass], int(own[at])

    return find


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
    if dataset.name == _NAMED:
        return {"klass": klass, "file_name": _names(dataset, part)[row], "label": label}
    file = f"{klass}_{at}.JPEG" if part == "train" and dataset.name == _NUMBERED_FROM_ZERO else f"{at + 1:04d}.png"
    return {"klass": klass, "file_name": f"{part}/{klass}/{file}", "label": label}


def _names(dataset: Dataset, part: str) -> tuple[str, ...]:
    images = (dataset.train if part == "train" else dataset.test).images
    if not isinstance(images, PictureFiles):
        raise InputError(
            f"The published sets of {dataset.name} name files, which images in memory no longer have; "
            f"load it with lazy=true, as in {dataset.name}:PATH,lazy=true."
        )
    return images.names


def _disjoint_classes(classes: int, n: float | str | Fraction) -> int:
    return int(classes * exact(n) / 100)


def _format_percentage(percentage: float) -> str:
    return f"{Decimal(str(float(percentage))):f}".removesuffix(".0")  # never 1e-05


def _rank_in_class(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of samples of the same class before each sample."""
    rank = np.empty(len(labels), dtype=np.int64)
    for own in by_class(labels, np.bincount(labels)):
        rank[own] = np.arange(len(own))
    return rank


def _is_listing(labels: NDArray[np.int64]) -> bool:
    """Whether the samples come class by class."""
    return int((np.diff(labels) != 0).sum()) == len(np.unique(labels)) - 1

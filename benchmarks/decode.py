"""Images per second that a stream yields from JPEG files: decoded when due, or ahead by worker processes.

    python -m benchmarks.decode --workers 0 1 2

Each count of workers is tried in turns with the others, several times, so a busy machine slows all of them. `--busy` is
the time a consumer spends with each sample; a stream that never waits takes no longer than the consumer alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.data.images import PictureFiles
from iblurry.streams.iterator import StreamIterator
from iblurry.streams.order import Order


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--side", type=int, default=256, help="pixels of a side of the files")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side of the images")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--busy", type=float, default=0.0, help="milliseconds a consumer sleeps with each sample")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = make_pictures(Path(folder), given.pictures, given.side, given.size)
        rates: dict[int, list[float]] = {workers: [] for workers in given.workers}
        for _ in range(given.rounds):
            for workers in given.workers:
                rates[workers].append(images_per_second(data, workers, given.busy / 1000))
    medians = {workers: statistics.median(measured) for workers, measured in rates.items()}
    cores = len(os.sched_getaffinity(0))
    table = Table("workers", "images per second", "min to max", "ratio", title=f"Decoding on {cores} cores")
    for workers, measured in rates.items():
        ratio = medians[workers] / medians[given.workers[0]]
        table.add_row(
            str(workers), f"{medians[workers]:.0f}", f"{min(measured):.0f} to {max(measured):.0f}", f"{ratio:.2f}"
        )
    Console().print(table)
    if given.json:
        figures: dict[str, Any] = {k: v for k, v in vars(given).items() if k != "json"}
        given.json.write_text(json.dumps(figures | {"cores": cores, "images per second": rates}, indent=2) + "\n")


def make_pictures(folder: Path, count: int, side: int, size: int) -> Dataset:
    """Pictures with the detail of photographs, about 20 kB each: noise at all scales."""
    from PIL import Image

    rng = np.random.default_rng(0)
    names = [f"{number:05}.jpg" for number in range(count)]
    for name in names:
        layers = [
            np.asarray(Image.fromarray(rng.integers(0, 256, (n, n, 3), dtype=np.uint8)).resize((side, side)), float) * w
            for n, w in ((4, 0.5), (16, 0.25), (64, 0.25))
        ]
        Image.fromarray(np.sum(layers, axis=0).astype(np.uint8)).save(folder / name, quality=90)
    part = LabelledImages(PictureFiles(folder, names, (3, size, size)), np.zeros(count, dtype=np.int64))
    return Dataset("jpegs", ("one",), part, part, (0.5,) * 3, (0.5,) * 3)


def images_per_second(data: Dataset, workers: int, busy: float) -> float:
    """Images per second after the first, which waits for the workers to start."""
    order = Order((np.random.default_rng(1).permutation(len(data.train)),), (0,), 0)
    stream = StreamIterator(data, order, workers=workers)
    samples = iter(stream)
    next(samples)
    start = time.perf_counter()
    for _ in samples:
        if busy:
            time.sleep(busy)
    seconds = time.perf_counter() - start
    stream.close()
    return (len(data.train) - 1) / seconds


if __name__ == "__main__":
    main()

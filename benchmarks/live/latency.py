"""`python -m benchmarks.live.latency`: how long one posted sample takes at a service at rest, with a small network.

Acknowledged: on the disk, and answered. Learnt: the status says so, and answers come from what was learnt.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.live.load import samples_of
from benchmarks.live.serving import ServeProcess, to_options
from iblurry.data.load import load
from iblurry.live.client import Client

DATA = "digits"
SETTINGS: dict[str, object] = {"network": "mlp", "image": "1x8x8", "memory": 200, "idle_updates": 0}
WARM = 50  # samples before, so that the memory has some
PAUSE = 0.2  # seconds between two samples
LOOK = 0.002  # between two looks at the status


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        found = measured(Path(temporary) / "live", given.samples)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    for name, row in found.items():
        print(f"{name:<14}half within {row['p50 ms']:6.1f} ms, nine of ten within {row['p90 ms']:6.1f} ms")
    return 0


def measured(folder: Path, samples: int) -> dict[str, dict[str, float]]:
    endless = samples_of(load(DATA))
    spent: dict[str, list[float]] = {"acknowledged": [], "learnt": []}
    with ServeProcess(folder, *to_options(SETTINGS)) as serving, Client(serving.url) as client:
        images, labels = zip(*(next(endless) for _ in range(WARM)), strict=True)
        client.wait(client.learn(images, labels).last)
        for _ in range(samples):
            time.sleep(PAUSE)
            image, label = next(endless)
            began = time.perf_counter()
            number = client.learn([image], [label]).last
            spent["acknowledged"].append(time.perf_counter() - began)
            while min((status := client.status())["learnt"], status["model"]) < number:
                time.sleep(LOOK)
            spent["learnt"].append(time.perf_counter() - began)
        serving.stop()
    found = {}
    for name, seconds in spent.items():
        p50, p90 = np.percentile(seconds, [50, 90]) * 1000
        found[name] = {"p50 ms": float(p50), "p90 ms": float(p90)}
    return found


if __name__ == "__main__":
    raise SystemExit(main())

"""What a run is run on: versions, machine, threads. Not part of the experiment, but it decides the last bits."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from iblurry.engine.eager import Eager, Precision
from iblurry.errors import check_fields
from iblurry.streams.iterator import StreamIterator
from iblurry.version import __version__

LAST_BITS = ("torch", "numpy", "machine", "device", "precision")  # a change of any of these may change the rounding


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What a run is run on; none of it is part of the experiment.

    Parameters
    ----------
    threads : int, optional
        Torch threads; None: 1 for "mlp" and "convnet", as many as torch has for others and where you chose a number
        (torch.set_num_threads, OMP_NUM_THREADS). A run that is continued keeps the number it began with.
    device : str
        "cpu", "cuda", one of several GPUs, as "cuda:1", or "auto": a GPU if there is one, except for small networks.
    precision : {"float32", "bfloat16"}, optional
        Precision of convolutions and matrix products; None: float32 on a CPU, bfloat16 on a GPU.
    """

    threads: int | None = None
    device: str = "auto"
    precision: Precision | None = None

    def __post_init__(self) -> None:
        check_fields(self, {"threads": "[1, inf)"})


def environment(stream: StreamIterator, *, threads: int, engine: Eager, pack: int = 1) -> dict[str, Any]:
    """The content of environment.json, but for the seconds; `pack` runs share the process."""
    order = stream.order
    ends = np.array(order.ends, dtype="<i8").tobytes()
    return {
        "iblurry": __version__,
        "commit": source_commit(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        # What decides how long a run takes:
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": "cpu" if engine.device.type == "cpu" else torch.cuda.get_device_name(engine.device),
        "precision": engine.precision,
        "threads": threads,
        "pack": pack,
        "data": stream.dataset.fingerprint(),
        "order": hashlib.sha256(ends + order.indices.astype("<i8").tobytes()).hexdigest(),
    }


@functools.cache
def source_commit() -> str | None:
    """The commit of the checkout that this code runs from, with a + where a file of it was changed.

    A copy without its .git says it in IBLURRY_COMMIT; None for an installed package.
    """
    root = Path(__file__).parents[2]
    if "IBLURRY_COMMIT" in os.environ or not (root / ".git").exists():
        return os.environ.get("IBLURRY_COMMIT")
    try:
        commit, changed = (
            subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "iblurry"))
        )
    except (OSError, subprocess.CalledProcessError):  # no git here, or it does not trust the folder
        return None
    return commit + "+" * bool(changed)


def describe_changes(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """A sentence on what has changed since the run was begun and may change its last bits, or None."""
    changed = [name for name in LAST_BITS if before.get(name, now[name]) != now[name]]
    if not changed:
        return None
    what = ", ".join(f"{name} {before[name]} (now {now[name]})" for name in changed)
    return f"The run was started with {what}: its last digits may differ from those of an uninterrupted run."

"""Where a run happens: versions, machine, threads. Not part of the experiment, but part of its last bits."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from iblurry.data.stream import Stream
from iblurry.version import __version__

LAST_BITS = ("torch", "numpy", "machine", "device")  # another one of these may round otherwise


def environment(stream: Stream, *, threads: int, device: torch.device) -> dict[str, Any]:
    """What to write beside a run."""
    order = stream.order
    ends = np.array(order.ends, dtype="<i8").tobytes()
    return {
        "iblurry": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "threads": threads,
        "data": stream.dataset.fingerprint(),
        "order": hashlib.sha256(ends + order.indices.astype("<i8").tobytes()).hexdigest(),
    }


def moved(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """A sentence on what changed since the run was begun elsewhere, or None."""
    changed = [name for name in LAST_BITS if before.get(name, now[name]) != now[name]]
    if not changed:
        return None
    what = ", ".join(f"{name} {before[name]} (now {now[name]})" for name in changed)
    return f"The run was begun with {what}: its last bits may differ from those of a run in one place."


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """So many torch threads inside: their number changes the last bits of a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)

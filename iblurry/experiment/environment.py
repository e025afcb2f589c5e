"""Where a run happens: versions, machine, threads. Not part of the experiment, but part of its last bits."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from iblurry.version import __version__


def environment(*, threads: int, device: torch.device, fingerprint: str) -> dict[str, Any]:
    """What to write beside a run."""
    return {
        "iblurry": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "threads": threads,
        "data": fingerprint,
    }


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """So many torch threads inside: their number changes the last bits of a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)

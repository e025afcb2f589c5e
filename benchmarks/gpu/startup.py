"""Seconds from the command to the first query, on a machine that has never compiled: one run, and several in a pack."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.setup import BenchmarkSetup
from iblurry.errors import InputError

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
SAMPLES = 100  # until the first query


def measure_startup(methods: Sequence[str], *, setup: BenchmarkSetup, timeout: float = 600) -> dict[str, Any]:
    """A row of the report: seconds until every run has answered its first query; all caches are empty."""
    with tempfile.TemporaryDirectory() as temporary:
        empty = {name: str(Path(temporary, name.lower())) for name in CACHES}
        words = ["--dataset", setup.dataset, "--network", setup.network, "--memory", str(setup.memory)]
        words += ["--device", setup.device, "--precision", setup.precision, "--samples", str(SAMPLES)]
        words += ["--data-home", str(setup.data_home)] if setup.data_home else []
        words += ["--query-every", str(SAMPLES), "--pack", str(len(methods)), "--out", str(Path(temporary, "runs"))]
        command = [sys.executable, "-m", "iblurry", "run", *methods, "--seeds", "1", *words]
        start, answered, said = time.monotonic(), list[float](), list[str]()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=os.environ | empty, **quiet) as process:
            too_late = threading.Timer(timeout, process.kill)
            too_late.start()
            for line in process.stderr:
                said.append(line)
                if f"after {SAMPLES} samples" in line:  # of each run, when it has answered
                    answered.append(time.monotonic() - start)
            too_late.cancel()
    if process.returncode or len(answered) < len(methods):
        raise InputError(f"{' '.join(command)} failed: {''.join(said)[-500:]}")
    return {"method": ",".join(methods), "seconds": answered[-1]}

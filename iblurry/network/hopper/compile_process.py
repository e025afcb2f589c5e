"""A process that compiles: says with a line that it is ready, reads pickled calls, and answers each with a line."""

from __future__ import annotations

import os
import pickle
import select
import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

IDLE = 60  # seconds without a call, after which it ends


class Device:
    """What a compilation asks of a GPU that this process does not use.

    Parameters
    ----------
    target : GPUTarget
        What it compiles for.
    """

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")


def main() -> None:
    backend, arch, warp_size = sys.argv[1:]
    driver.set_active(Device(GPUTarget(backend, int(arch), int(warp_size))))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what others print is no answer
    calls: Any = sys.stdin.buffer
    answers.write(b"\n")  # ready
    while select.select([calls], [], [], IDLE)[0] and calls.peek(1):
        call = pickle.load(calls)
        try:
            with torch.no_grad():
                call()
        finally:
            answers.write(b"\n")


if __name__ == "__main__":
    main()

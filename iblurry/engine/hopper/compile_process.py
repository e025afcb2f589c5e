"""A process that compiles for a Hopper GPU, without using one."""

from __future__ import annotations

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime import driver

from iblurry.engine.compile_worker import serve


class Device:
    """What a compilation asks of a GPU."""

    launcher_cls = CudaLauncher

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")


if __name__ == "__main__":
    driver.set_active(Device())
    with torch.no_grad():
        serve()

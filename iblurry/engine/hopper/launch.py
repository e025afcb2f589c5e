"""How kernels are launched: on meta tensors they are compiled and not run, which needs no device and may be early."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from triton.runtime import driver


def launch(kernel: Any, blocks: int, *given: Any, **constants: Any) -> None:
    """Runs so many blocks of a kernel, or compiles it where the first argument, a tensor or its descriptor, is meta.

    Then it also compiles what launches the kernel, a few lines of C: Triton would do that when the kernel first runs.
    """
    first: Tensor = getattr(given[0], "base", given[0])
    if first.is_meta:
        compiled = kernel.warmup(*given, grid=(blocks,), **constants)
        driver.active.launcher_cls(compiled.src, compiled.metadata)
    else:
        kernel[(blocks,)](*given, **constants)

"""How kernels are launched: on meta tensors they are compiled and not run, which needs no device and may be early."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def launch(kernel: Any, blocks: int, *given: Any, **constants: Any) -> None:
    """Runs so many blocks of a kernel, or compiles it where the first argument, a tensor or its descriptor, is meta."""
    first: Tensor = getattr(given[0], "base", given[0])
    if first.is_meta:
        kernel.warmup(*given, grid=(blocks,), **constants)
    else:
        kernel[(blocks,)](*given, **constants)

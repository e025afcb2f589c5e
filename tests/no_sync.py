"""A watchman for graph-safe code: refuses what would make a device wait for the host."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class NoSync(TorchDispatchMode):
    """Refuses what would make a device wait for the host, or have a shape that depends on data."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select"), f"{name} is a hidden sync"
        masks = name == "index" and any(i is not None and i.dtype is torch.bool for i in args[1])
        assert not masks, "indexing with a mask is a hidden sync"  # its nonzero is called where a mode cannot see it
        return func(*args, **(kwargs or {}))

"""Numbers on their way from the device to the host, which need not wait for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Reading:
    """A copy of some values as they are now; on a GPU it arrives when the work before it is done.

    >>> Reading(torch.tensor([1, 2])).tolist()
    [1, 2]
    """

    def __init__(self, values: Tensor) -> None:
        if not values.is_cuda:
            self._here, self._arrived = values.clone(), None
            return
        self._here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._here.copy_(values, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def ready(self) -> bool:
        """Whether `tolist` answers at once."""
        return self._arrived is None or self._arrived.query()

    def tolist(self) -> list[Any]:
        """The values, waiting for them where necessary."""
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[Any] = self._here.tolist()
        return values

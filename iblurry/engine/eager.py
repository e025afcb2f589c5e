"""Runs each step as it is written, call by call: the engine of the CPU and the reference for every other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from iblurry.augment.pipeline import Pipeline
from iblurry.errors import InputError
from iblurry.network.convolution import hopper_convolutions
from iblurry.network.network import Network

P = ParamSpec("P")
R = TypeVar("R")
Precision = Literal["float32", "bfloat16"]
FIRST, LATER = -1, 0  # of streams: whose kernels a GPU begins with when it has room for some


class Eager:
    """Hands tensors of the host to the device and leaves a step as it is.

    `precision` is that of convolutions and matrix products; losses, batch norm's statistics and weights stay float32.
    """

    def __init__(self, device: torch.device | str = "cpu", precision: Precision = "float32") -> None:
        self.device = torch.device(device)
        if precision not in ("float32", "bfloat16"):
            raise InputError(f"precision={precision!r} is neither 'float32' nor 'bfloat16'.")
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(f"device={str(device)!r}: no GPU can be used here; use 'cpu'.")
        self.precision = precision
        self._stream: torch.cuda.Stream | None = None
        if self.device.type == "cuda":
            _make_exact()
            self._stream = torch.cuda.Stream(self.device, priority=FIRST)
            self._side_stream = torch.cuda.Stream(self.device, priority=LATER)

    def prepare(self, network: Network) -> Network:
        """The network where steps run, in this engine's precision."""
        if self.precision == "bfloat16":
            network.precision = torch.bfloat16
            if self.device.type == "cuda":
                network.layout = torch.channels_last
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                network.hopper = hopper_convolutions(network.body, self.device)
        return network.to(self.device)

    def cuda_stream(self) -> AbstractContextManager[object]:
        """Work on the device belongs inside: on a GPU it is a stream of its own, beside those of other engines."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def side_stream(self) -> AbstractContextManager[object]:
        """For work that fills the device alone: what other engines do there in small steps need not wait for its end.

        What comes after it in this engine waits for it, as always.
        """
        return nullcontext() if self._stream is None else self._forked()

    @contextmanager
    def _forked(self) -> Iterator[None]:
        here = torch.cuda.current_stream(self.device)
        self._side_stream.wait_stream(here)
        try:
            with torch.cuda.stream(self._side_stream):
                yield
        finally:
            here.wait_stream(self._side_stream)

    def expect(self, network: Network, pipeline: Pipeline, batch: int) -> None:
        """Training batches will mostly be of this size; whatever the engine can do about it."""

    def to_device(self, values: Tensor) -> Tensor:
        """The same numbers where the step runs; the host does not wait for them to arrive there."""
        if self.device.type == "cpu":
            return values
        return values.pin_memory().to(self.device, non_blocking=True) if values.device.type == "cpu" else values

    def compile(self, step: Callable[P, R], graph_key: Callable[[], Hashable] = lambda: None) -> Callable[P, R]:
        """The step itself: nothing to prepare. `phase` is what else than its arguments it depends on.

        What a step returns is good until the engine's next step, which may use the same room; what is to last longer,
        the step writes where it is kept.
        """
        return step

    def fuse(self, function: Callable[P, R]) -> Callable[P, R]:
        """The same function in fewer kernels, where the engine can: tensors in, tensors out, nothing else read."""
        return function


def _make_exact() -> None:
    """The same kernels for the same shapes in every process, and sums in a fixed order: a run that goes on is the same.

    float32 means float32: no convolution or product in TF32.
    """
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False

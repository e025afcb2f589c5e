"""Gradients of weights are computed beside the rest of a backward pass, which does not wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

R = TypeVar("R")


class WeightStream:
    """A CUDA stream for them. Its priority is normal: kernels of the pass itself go first.

    Autograd does not know of it, so it must not touch a gradient before the pass has ended: no weight has one already,
    and where a weight is used twice in a pass, the second gradient waits for the first.

    Parameters
    ----------
    device : torch.device
        Where it is.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self._stream = device, torch.cuda.Stream(device)
        self._is_open = False
        self._begun: set[int] = set()  # weights, by address
        self._read: list[Tensor] = []  # kept until the pass has ended: else what runs beside would get their memory

    def __deepcopy__(self, _: dict[int, Any]) -> WeightStream:
        return WeightStream(self.device)

    @contextmanager
    def open(self) -> Iterator[None]:
        """A backward pass inside uses the stream; what comes after waits for all of it."""
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False
            self._join()
            self._begun.clear()

    def mark(self) -> torch.cuda.Event | None:
        """The pass so far, for `run`; None where no pass is open."""
        return torch.cuda.current_stream(self.device).record_event() if self._is_open else None

    def run(self, after: torch.cuda.Event | None, weight: Tensor, read: list[Tensor], compute: Callable[[], R]) -> R:
        """What `compute` returns, beside the pass where a mark is given.

        Parameters
        ----------
        after : torch.cuda.Event, optional
            A mark, when all that is read was there.
        weight : Tensor
            Whose gradient it is.
        read : list of Tensor
            All of the pass that is read.
        compute : callable
            Returns the gradient, which nothing else may hold: autograd would copy it.
        """
        if after is None:
            return compute()
        if weight.data_ptr() in self._begun:
            self._join()
            return compute()
        self._begun.add(weight.data_ptr())
        self._read += read
        self._stream.wait_event(after)
        with torch.cuda.stream(self._stream):
            return compute()

    def _join(self) -> None:
        if self._begun:  # else a step that is being captured would wait for what is not part of it
            torch.cuda.current_stream(self.device).wait_stream(self._stream)
        self._read.clear()


class LinearFunction(torch.autograd.Function):
    """A linear layer in the precision of its input, whose weight and bias get their gradients on a weight stream."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor, weight_stream: WeightStream) -> Tensor:
        rounded = weight.to(values.dtype)
        ctx.save_for_backward(values, rounded)
        ctx.weight, ctx.weight_stream = weight, weight_stream
        return F.linear(values, rounded, bias.to(values.dtype))

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        (values, rounded), stream = ctx.saved_tensors, ctx.weight_stream

        def gradients() -> tuple[Tensor, Tensor]:
            return (grads.t() @ values).to(ctx.weight.dtype), grads.sum(0).to(ctx.weight.dtype)

        begun = stream.mark()
        before = grads @ rounded if ctx.needs_input_grad[0] else None
        return before, *stream.run(begun, ctx.weight, [grads, values], gradients), None

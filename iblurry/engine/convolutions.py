"""Units whose convolutions train in ways of our own, and the CUDA stream for the gradients of their weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iblurry.network.bodies import ConvUnit

R = TypeVar("R")
ALIGNED = 32  # channels: of the first convolution's three, cuDNN makes 223 us for 500 images; of 32, 59 us on an H200


class OwnConvolutions:
    """The units of a body whose convolutions train in a way of our own.

    Parameters
    ----------
    units : sequence of ConvUnit
        Which.
    convolve : callable
        Their convolution.
    finish : callable, optional
        What follows it; of a `ConvUnit`, like the other.
    weight_stream : WeightStream, optional
        Where their weights' gradients are computed; see `WeightStream`.
    """

    def __init__(
        self,
        units: Sequence[ConvUnit],
        convolve: Callable[[Tensor, ConvUnit], Tensor],
        finish: Callable[[Tensor, ConvUnit, Tensor | None], Tensor] | None = None,
        weight_stream: WeightStream | None = None,
    ) -> None:
        self.units, self.convolve, self.finish, self.weight_stream = units, convolve, finish, weight_stream
        self._rounded: torch.cuda.Event | None = None  # the moment when they were, for passes on other streams
        self._set(convolve, finish)
        for unit in units:
            unit.weight_stream = weight_stream

    def _set(self, convolve: Any, finish: Any) -> None:
        for unit in self.units:
            unit.convolve, unit.finish = convolve, finish

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """A forward pass inside uses torch's own convolutions, which every device has."""
        try:
            self._set(None, None)
            yield
        finally:
            self._set(self.convolve, self.finish)

    def parallel_backward(self) -> AbstractContextManager[None]:
        """A backward pass inside, before which no weight has a gradient, may use a second stream.

        Where there is a stream for it, gradients of weights are computed beside the rest of the pass.
        """
        return nullcontext() if self.weight_stream is None else self.weight_stream.open()

    @contextmanager
    def rounded(self) -> Iterator[None]:
        """Passes inside use weights rounded to bfloat16 once, by one kernel instead of one each.

        They do not change inside. A pass on another stream waits for them when it enters here too.
        """
        if self.units and self.units[0].weight_bf16 is not None:
            if self.weight_stream is not None and self._rounded is not None:
                torch.cuda.current_stream(self.weight_stream.device).wait_event(self._rounded)
            yield
            return
        each: Any = torch
        weights = [unit.convolution.weight.detach() for unit in self.units]
        rounded = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights]
        each._foreach_copy_(rounded, weights)
        if self.weight_stream is not None:
            self._rounded = torch.cuda.current_stream(self.weight_stream.device).record_event()
        try:
            for unit, values in zip(self.units, rounded, strict=True):
                unit.weight_bf16 = values
            yield
        finally:
            self._rounded = None
            for unit in self.units:
                unit.weight_bf16 = None


def fits_patch(conv: nn.Conv2d) -> bool:
    """Whether the patch under a pixel has few enough values to become the channels of a 1x1 convolution."""
    return conv.in_channels * math.prod(conv.kernel_size) <= ALIGNED and conv.stride == (1, 1)


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

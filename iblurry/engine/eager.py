"""Runs each step as it is written, call by call: the engine of the CPU and the reference for every other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.backends import mkldnn

from iblurry.augment.pipeline import Pipeline
from iblurry.compute import ComputeMeter
from iblurry.engine.accelerator import accelerator
from iblurry.engine.arm import arm_convolutions
from iblurry.engine.network import OptimizedNetwork
from iblurry.errors import InputError
from iblurry.network.bodies import ConvNet
from iblurry.network.network import Network

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Precision = Literal["float32", "bfloat16"]
DEVICES = "give 'cpu', 'cuda' or 'cuda:1'"
HIGH, NORMAL = -1, 0  # priorities of CUDA streams: whose kernels a GPU starts first when it has room for some


class Eager:
    """Copies tensors to the device and runs every step as it is.

    Parameters
    ----------
    device : torch.device or str, default "cpu"
        Where steps run.
    precision : {"float32", "bfloat16"}, default "float32"
        Of convolutions and matrix products; losses, batch norm's statistics and weights stay float32.
    """

    compiles = False  # whether bodies and pipelines are compiled at their first use, which takes a while

    def __init__(self, device: torch.device | str = "cpu", precision: Precision = "float32") -> None:
        try:
            self.device = torch.device(device)
        except RuntimeError as error:
            raise InputError(f"device={device!r} is not a device; {DEVICES}.") from error
        if self.device.type not in ("cpu", "cuda"):
            raise InputError(f"device={str(device)!r} cannot be used; {DEVICES}.")
        if precision not in ("float32", "bfloat16"):
            raise InputError(f"precision={precision!r} is neither 'float32' nor 'bfloat16'.")
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(f"device={str(device)!r}: no GPU can be used here; use 'cpu'.")
        if self.device.type == "cuda" and (self.device.index or 0) >= torch.cuda.device_count():
            raise InputError(f"device={str(device)!r}: there are {torch.cuda.device_count()} GPUs, counted from 0.")
        self.precision = precision
        self._stream: torch.cuda.Stream | None = None
        if self.device.type == "cuda":
            _make_deterministic()
            self._stream = torch.cuda.Stream(self.device, priority=HIGH)
            self._side_stream = torch.cuda.Stream(self.device, priority=NORMAL)
            self._parallel_stream = torch.cuda.Stream(self.device, priority=HIGH)

    def setup(self, given: Network) -> OptimizedNetwork:
        """The network on the device, in this engine's precision and memory layout.

        A head on stored features, whose body has no weights, stays float32: its products are small.
        """
        network = OptimizedNetwork(given)
        if self.precision == "bfloat16" and any(True for _ in network.body.parameters()):
            network.precision = torch.bfloat16
            if self.device.type == "cuda":
                _use_channels_last(network)
                if network.is_own and all(p.requires_grad for p in network.parameters()):
                    own = accelerator(self.device)
                    network.convolutions = None if own is None else own.training(network.body)
        elif self.device.type == "cpu" and network.is_own:
            network.convolutions = arm_convolutions(network.body)
            if network.convolutions is None and isinstance(network.body, ConvNet) and mkldnn.is_available():
                _use_channels_last(network)  # a ResNet's wider maps gain nothing by it
        return network.to(self.device)

    def cuda_stream(self) -> AbstractContextManager[object]:
        """Work on the device belongs inside: on a GPU each engine has its own CUDA stream; on the CPU nothing."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """A stream of lower priority, for work that fills the device alone: small steps of other engines go first.

        What this engine runs afterwards waits for it.
        """
        if self._stream is None:
            yield
            return
        main = torch.cuda.current_stream(self.device)
        self._side_stream.wait_stream(main)
        try:
            with torch.cuda.stream(self._side_stream):
                yield
        finally:
            main.wait_stream(self._side_stream)

    def side_by_side(
        self, main: Callable[[], R], others: Sequence[Callable[[], S]], *, overlap: bool = True
    ) -> tuple[R, list[S]]:
        """What all return: on a GPU the others run beside `main`, unless they must not overlap it; else after it.

        What they read must be kept until the end: memory freed before goes to what `main` runs next, which does not
        wait for them. They are launched behind it: autograd would make a backward pass wait for what came earlier.

        Parameters
        ----------
        main : callable
            Runs in the current stream.
        others : sequence of callables
            Small work that leaves room for it.
        overlap : bool
            Whether they may begin before `main` has ended.
        """
        if self._stream is None or not others or not overlap:
            return main(), [other() for other in others]
        current = torch.cuda.current_stream(self.device)
        begun = current.record_event()
        done = main()
        self._parallel_stream.wait_event(begun)
        with torch.cuda.stream(self._parallel_stream):
            found = [other() for other in others]
        current.wait_stream(self._parallel_stream)
        return done, found

    def expect_batch_size(self, network: Network, pipeline: Pipeline, size: int) -> None:
        """Announces that training batches will mostly be of this size; an engine may compile for it."""

    def expect_images(self, pipeline: Pipeline, size: int) -> None:
        """The same of images that are augmented and pass through no network of their own."""

    def to_device(self, values: Tensor) -> Tensor:
        """The same values on the device; the host does not wait for the copy."""
        if self.device.type == "cpu":
            return values
        return values.pin_memory().to(self.device, non_blocking=True) if values.device.type == "cpu" else values

    def compile(
        self, step: Callable[P, R], graph_key: Callable[[], Hashable] = lambda: None, meter: ComputeMeter | None = None
    ) -> Callable[P, R]:
        """The step itself: nothing to prepare. `graph_key` is what else than its arguments it depends on.

        `meter` counts what passes through networks in the step.

        What a step returns is valid until the engine's next step, which may reuse its memory; values that must last
        longer are written by the step to where they are kept.
        """
        return step

    def fuse(self, function: Callable[P, R]) -> Callable[P, R]:
        """The same function in fewer kernels, where the engine can: tensors in, tensors out, nothing else read."""
        return function


class AsyncRead:
    """A copy to the host of some values as they are now; on a GPU it arrives when the work before it is done.

    >>> AsyncRead(torch.tensor([1, 2])).tolist()
    [1, 2]
    """

    def __init__(self, values: Tensor) -> None:
        if not values.is_cuda:
            self._copy, self._arrived = values.clone(), None
            return
        self._copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._copy.copy_(values, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def ready(self) -> bool:
        """Whether `tolist` returns without waiting."""
        return self._arrived is None or self._arrived.query()

    def tolist(self) -> list[Any]:
        """The values; waits for them where necessary."""
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[Any] = self._copy.tolist()
        return values


def _make_deterministic() -> None:
    """The same kernels for the same shapes in every process and sums in a fixed order, so that resumed runs are equal.

    float32 means float32: no convolution or product in TF32.
    """
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def _use_channels_last(network: OptimizedNetwork) -> None:
    """Lays out maps and weights with the channels last."""
    network.layout = torch.channels_last
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

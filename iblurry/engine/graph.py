"""Captures a step as a CUDA graph once its shapes are steady, and replays it: one launch instead of hundreds."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from iblurry.augment import Augment
from iblurry.augment.pipeline import AugmentParams, Pipeline
from iblurry.compute import ComputeMeter, Pass
from iblurry.engine.accelerator import accelerator
from iblurry.engine.eager import HIGH, Eager, Precision
from iblurry.engine.network import OptimizedNetwork
from iblurry.network.network import Network
from iblurry.network.weights import cuda_generator

P = ParamSpec("P")
R = TypeVar("R")
STEADY = 10  # eager calls of one form before it is captured: one that is met a few times is not worth a capture


class Graph(Eager):
    """Eager until a step has run often enough, then captured as a CUDA graph; the same kernels in the same order.

    A step is captured once per form: the shapes and plain values of its arguments, and its graph key.

    Parameters
    ----------
    device : torch.device or str, default "cuda"
        A GPU.
    precision : {"float32", "bfloat16"}, default "bfloat16"
        Of convolutions and matrix products.
    compiles : bool, default True
        Whether bodies and pipelines are compiled by torch.compile; otherwise steps are captured as they are.
    """

    def __init__(
        self, device: torch.device | str = "cuda", precision: Precision = "bfloat16", *, compiles: bool = True
    ) -> None:
        super().__init__(device, precision)
        self.compiles, self.captures = compiles, True
        self.pool = torch.cuda.graph_pool_handle()  # shared by all steps: one runs at a time
        self.capturing = torch.cuda.Stream(self.device, priority=HIGH)  # kernels keep the priority

    def setup(self, given: Network) -> OptimizedNetwork:
        network = super().setup(given)
        if self.compiles:
            network.fuse = self.fuse
        return network

    def expect_batch_size(self, network: Network, pipeline: Pipeline, size: int) -> None:
        """Compiles for batches of this size. Which code runs depends on the size alone, so resumed runs are equal."""
        assert isinstance(network, OptimizedNetwork), "one that `setup` returned, or a twin of it"
        if self.compiles and size not in network.compiled:
            network.compiled[size] = self._compiled_body(network, (size, *pipeline.shape))
            self.expect_images(pipeline, size)

    def expect_images(self, pipeline: Pipeline, size: int) -> None:
        if self.compiles and size not in pipeline.compiled and pipeline.is_capturable:
            pipeline.compiled[size] = pipeline.by_kernel() or self._fused_vary(pipeline)

    def _fused_vary(self, pipeline: Pipeline) -> Callable[[Tensor, AugmentParams], Tensor]:
        vary = self.fuse(pipeline.vary_eagerly)
        is_own = isinstance(pipeline.augment, Augment)
        return vary if is_own else CompiledOrEager(vary, pipeline.vary_eagerly, "augment")

    def _compiled_body(self, network: OptimizedNetwork, images: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        convolutions, own = network.convolutions, accelerator(self.device)
        if own is not None and convolutions is not None and convolutions.finish is not None:
            return own.prepare(network.body, images)  # which leaves little to compile
        body = self.fuse(network.body)
        return body if network.is_own else CompiledOrEager(body, network.body)

    def fuse(self, function: Callable[P, R]) -> Callable[P, R]:
        if not self.compiles:
            return function
        _raise_recompile_limit()
        _start_compile_workers()
        return cast(Callable[P, R], torch.compile(function, dynamic=False, options=_options()))

    def compile(
        self, step: Callable[P, R], graph_key: Callable[[], Hashable] = lambda: None, meter: ComputeMeter | None = None
    ) -> Callable[P, R]:
        return cast(Callable[P, R], CapturedStep(step, graph_key, self, meter or ComputeMeter()))

    def stop_capturing(self, error: Exception) -> None:
        """Steps run one by one from now on, as one of them cannot be captured; said in one sentence."""
        self.captures = False
        generator = cuda_generator(self.device)  # for it, a capture that failed still goes on; and graphs know the old
        generator.graphsafe_set_state(generator.clone_state())
        CapturedStep.generators_replaced += 1
        warnings.warn(f"Steps are not captured as CUDA graphs, which is slower: {_first_line(error)}", stacklevel=4)


class CompiledOrEager(Generic[P, R]):
    """A user's code compiled by torch.compile, or as it is where that cannot compile it; said in one sentence.

    Parameters
    ----------
    compiled, plain : callable
        The same function twice.
    what : str
        What the sentence calls it.
    """

    def __init__(self, compiled: Callable[P, R], plain: Callable[P, R], what: str = "The body") -> None:
        self.what, self.compiled, self.plain = what, compiled, plain

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> R:
        from torch._dynamo.exc import TorchDynamoException

        try:
            return self.compiled(*args, **keywords)
        except TorchDynamoException as error:  # raised before anything was computed
            warnings.warn(f"{self.what} is not compiled, which is slower: {_first_line(error)}", stacklevel=2)
            self.compiled = self.plain
        return self.plain(*args, **keywords)


class CapturedGraph(NamedTuple):
    """One captured form of a step: its argument tensors, to be overwritten before a replay, and its result."""

    graph: torch.cuda.CUDAGraph
    inputs: list[tuple[list[Tensor], list[int]]]  # of each type, and which arguments they are; without empty ones
    result: Any
    passes: list[Pass]  # images through networks, counted at each replay


class CapturedStep:
    """One step: counts the calls of each form and replays those that were captured."""

    generators_replaced = 0  # graphs from before read random numbers of a generator that nobody seeds any more

    def __init__(
        self, step: Callable[..., Any], graph_key: Callable[[], Hashable], engine: Graph, meter: ComputeMeter
    ) -> None:
        self.step, self.graph_key, self.engine, self.meter = step, graph_key, engine, meter
        self.calls: dict[Hashable, int] = {}
        self.captured: dict[Hashable, CapturedGraph] = {}

    def __call__(self, *args: Any) -> Any:
        tensors: list[Tensor] = []
        if not self.engine.captures:
            return self.step(*args)
        form = (self.generators_replaced, self.graph_key(), _form(args, tensors))
        capture = self.captured.get(form)
        if capture is None:
            self.calls[form] = self.calls.get(form, 0) + 1
            if self.calls[form] <= STEADY:
                return self.step(*args)
            capture = self._capture(args, tensors)
            if capture is None:
                return self.step(*args)
            self.captured[form] = capture
        each: Any = torch  # its _foreach functions are one kernel for many tensors of one type
        for buffers, places in capture.inputs:
            each._foreach_copy_(buffers, [tensors[i] for i in places], non_blocking=True)
        capture.graph.replay()
        self.meter.replay(capture.passes)
        return capture.result

    def _capture(self, args: tuple[Any, ...], tensors: list[Tensor]) -> CapturedGraph | None:
        """None where the step cannot be captured: it reads a value, or decides on the host by a random number.

        Nothing was computed then but host-side random numbers, which are taken back.
        """
        inputs = [tensor.clone() for tensor in tensors]
        with_inputs = _filled(args, iter(inputs))
        on_host = torch.get_rng_state()
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                self.meter.recording() as passes,
                torch.cuda.graph(graph, pool=self.engine.pool, stream=self.engine.capturing),
            ):
                result = self.step(*with_inputs)
            if not torch.equal(torch.get_rng_state(), on_host):
                raise RuntimeError("the body draws random numbers on the CPU, which a graph would not draw again")
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            torch.set_rng_state(on_host)
            self.engine.stop_capturing(error)
            return None
        return CapturedGraph(graph, _by_type(inputs), result, passes)


def _first_line(error: BaseException) -> str:
    while error.__context__ is not None:  # the end of a capture fails because of what failed inside
        error = error.__context__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@functools.cache
def _raise_recompile_limit() -> None:
    """Raises Dynamo's limit: after eight compilations of a function it would run it uncompiled without saying so, and
    several runs of one process would then differ from the same runs alone.
    """
    from torch._dynamo import config

    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    for name in (limit, f"accumulated_{limit}"):
        setattr(config, name, 10_000)


@functools.cache
def _start_compile_workers() -> None:
    """Inductor's processes take seconds to start; kernels that are needed before are compiled one after the other."""
    from torch._inductor import async_compile

    if hasattr(async_compile, "maybe_warm_pool"):
        async_compile.maybe_warm_pool()


def _options() -> dict[str, Any]:
    """Of inductor: independent small kernels are combined, and none is chosen by timing, which could change a sum's
    order: every process makes the same kernels.
    """
    from torch._inductor import config

    return {"combo_kernels": True} | ({"deterministic": True} if hasattr(config, "deterministic") else {})


def _form(value: Any, tensors: list[Tensor]) -> Hashable:
    """A hashable description of a value without the contents of its tensors, which are appended to the list."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return value.shape, value.dtype
    if isinstance(value, tuple):
        return tuple([_form(item, tensors) for item in value])
    if isinstance(value, dict):
        return tuple([(name, _form(item, tensors)) for name, item in value.items()])
    return cast(Hashable, value)


def _by_type(tensors: list[Tensor]) -> list[tuple[list[Tensor], list[int]]]:
    """Tensors that are not empty, of each type and device apart, with their places."""
    found: dict[Hashable, tuple[list[Tensor], list[int]]] = {}
    for i, values in enumerate(tensors):
        if values.numel():
            some, places = found.setdefault((values.dtype, values.device), ([], []))
            some.append(values)
            places.append(i)
    return list(found.values())


def _filled(value: Any, tensors: Any) -> Any:
    """The same value with other tensors, in the order in which `_form` lists them."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, tuple):
        made = [_filled(item, tensors) for item in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if isinstance(value, dict):
        return {name: _filled(item, tensors) for name, item in value.items()}
    return value

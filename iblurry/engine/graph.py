"""Captures a step as a CUDA graph once its shapes are steady, and replays it: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from iblurry.augment.pipeline import Pipeline
from iblurry.engine.eager import FIRST, Eager, Precision
from iblurry.network.network import Network

P = ParamSpec("P")
R = TypeVar("R")
STEADY = 10  # times a step ran eagerly in the same form; one that holds for a sample or two is not worth a capture


class Graph(Eager):
    """Eager until a step is steady, captured from then on; the same kernels in the same order either way.

    A step is of one form while its arguments' shapes and plain values, and its phase, stay the same.
    """

    def __init__(
        self, device: torch.device | str = "cuda", precision: Precision = "bfloat16", *, compiles: bool = True
    ) -> None:
        super().__init__(device, precision)
        self.compiles = compiles
        self.pool = torch.cuda.graph_pool_handle()  # shared: one step runs at a time
        self.capturing = torch.cuda.Stream(self.device, priority=FIRST)  # its kernels keep the rank of this stream
        if compiles:
            _compile_always()

    def expect(self, network: Network, pipeline: Pipeline, batch: int) -> None:
        """Which code runs depends on a batch's size alone, so a run that goes on takes the same course."""
        if self.compiles and batch not in network.compiled:
            network.fuse = self.fuse
            network.compiled[batch] = self.fuse(network.body)
            pipeline.compiled[batch] = self.fuse(pipeline.train)

    def fuse(self, function: Callable[P, R]) -> Callable[P, R]:
        if not self.compiles:
            return function
        return cast(Callable[P, R], torch.compile(function, dynamic=False, options=_options()))

    def compile(self, step: Callable[P, R], graph_key: Callable[[], Hashable] = lambda: None) -> Callable[P, R]:
        return cast(Callable[P, R], Replayed(step, graph_key, self))


class Capture(NamedTuple):
    """A captured step: where its arguments are expected and where its results lie."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    result: Any


class Replayed:
    """One step in all the forms it was met in."""

    def __init__(self, step: Callable[..., Any], graph_key: Callable[[], Hashable], engine: Graph) -> None:
        self.step, self.graph_key, self.engine = step, graph_key, engine
        self.met: dict[Hashable, int] = {}
        self.captured: dict[Hashable, Capture] = {}

    def __call__(self, *args: Any) -> Any:
        tensors: list[Tensor] = []
        form = (self.graph_key(), _form(args, tensors))
        capture = self.captured.get(form)
        if capture is None:
            self.met[form] = self.met.get(form, 0) + 1
            if self.met[form] <= STEADY:
                return self.step(*args)
            capture = self.captured[form] = self._capture(args, tensors)
        for there, values in zip(capture.inputs, tensors, strict=True):
            if values.numel():
                there.copy_(values, non_blocking=True)
        capture.graph.replay()
        return capture.result

    def _capture(self, args: tuple[Any, ...], tensors: list[Tensor]) -> Capture:
        inputs = [tensor.clone() for tensor in tensors]
        with_inputs = _filled(args, iter(inputs))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.engine.pool, stream=self.engine.capturing):
            result = self.step(*with_inputs)
        return Capture(graph, inputs, result)


def _compile_always() -> None:
    """Dynamo gives up on a function after eight compilations and runs it as it is, without a word; runs of one process
    would then not be what they are alone.
    """
    from torch._dynamo import config

    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    for name in (limit, f"accumulated_{limit}"):
        setattr(config, name, 10_000)


def _options() -> dict[str, Any]:
    """For inductor: small kernels that do not depend on each other become one, and none is chosen by timing that could
    change a sum, so every process makes the same kernels.
    """
    from torch._inductor import config

    return {"combo_kernels": True} | ({"deterministic": True} if hasattr(config, "deterministic") else {})


def _form(value: Any, tensors: list[Tensor]) -> Hashable:
    """Everything about a value but the numbers in its tensors, which are put into the list."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return value.shape, value.dtype
    if isinstance(value, tuple):
        return tuple([_form(one, tensors) for one in value])
    if isinstance(value, dict):
        return tuple([(name, _form(one, tensors)) for name, one in value.items()])
    return cast(Hashable, value)


def _filled(value: Any, tensors: Any) -> Any:
    """The same with other tensors, in the order `_form` lists them."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, tuple):
        made = [_filled(one, tensors) for one in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if isinstance(value, dict):
        return {name: _filled(one, tensors) for name, one in value.items()}
    return value

"""Each acceleration of a GPU and how to switch it off: by replacing the function or flag that decides about it.

A switch changes the package for the whole process, so it is used in a process that does nothing else afterwards. The
package itself has no such flags. Own kernels are imported inside the functions: without Triton they cannot be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from iblurry.augment.pipeline import Pipeline
from iblurry.engine import accelerator, devices, folding
from iblurry.engine.convolutions import WeightStream
from iblurry.engine.eager import Eager
from iblurry.engine.graph import Graph
from iblurry.engine.network import OptimizedNetwork
from iblurry.learner.refits import RefitStack

ALL = ("er", "clib", "gdumb")
ONLINE = ("er", "clib")
BESIDE = ("agem", "mkd", "mir", "sdp")
LAST = torch.channels_last


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    switch: Callable[[], None]  # replaces what makes the acceleration
    methods: tuple[str, ...]  # that it may change
    about: str  # what runs instead
    window: tuple[int, int] | None = None  # first and last sample timed, where not the usual ones; GDumb has none
    samples: int | None = None  # of the stream, likewise
    is_cold: bool = False  # whether nothing is compiled yet
    compiles: bool = False  # whether inductor compiles something for it, which takes long the first time


def put(owner: Any, name: str, value: Any) -> None:
    """Replaces an attribute, which must be there."""
    if not hasattr(owner, name):
        raise AttributeError(f"{owner!r} has no {name!r} any more: adapt this switch.")
    setattr(owner, name, value)


def keep_all() -> None:
    """Everything on."""


# ---------------------------------------------------------------------------------------- kernels of a training pass


def leave_out_forward() -> None:
    _convolve_by_cudnn(backwards=False)


def leave_out_input_gradient() -> None:
    _convolve_by_cudnn(backwards=True)


def _convolve_by_cudnn(*, backwards: bool) -> None:
    from iblurry.engine.hopper import training

    own, replaced = training.run_convolution, backwards

    def run_convolution(
        maps: Tensor,
        weight: Tensor,
        stride: int,
        backwards: bool,
        models: int,
        plus: Tensor | None = None,
    ) -> Tensor:
        if backwards != replaced:
            done: Tensor = own(maps, weight, stride, backwards, models, plus)
            return done
        one = functools.partial(_input_gradient if backwards else _forward, stride=stride)
        done = _each(one, models, maps.contiguous(memory_format=LAST), weight.contiguous(memory_format=LAST))
        return done if plus is None else done + plus

    put(training, "run_convolution", run_convolution)


def _each(one: Callable[[Tensor, Tensor], Tensor], models: int, *stacks: Tensor) -> Tensor:
    """Of one stacked model after the other: cuDNN has no convolution of several."""
    if models == 1:
        return one(*stacks)
    return torch.cat([one(*parts) for parts in zip(*(stack.chunk(models) for stack in stacks), strict=True)])


def _forward(maps: Tensor, weight: Tensor, *, stride: int) -> Tensor:
    return F.conv2d(maps, weight, None, stride, weight.shape[2] // 2)


def _input_gradient(grads: Tensor, weight: Tensor, *, stride: int) -> Tensor:
    count, _, high, wide = grads.shape
    size = count, weight.shape[1], high * stride, wide * stride
    maps = torch.empty(size, dtype=grads.dtype, device=grads.device, memory_format=LAST)  # of which the shape counts
    return _backward(grads, maps, weight, stride, [True, False, False])[0]


def _backward(grads: Tensor, maps: Tensor, weight: Tensor, stride: int, wanted: list[bool]) -> Any:
    half = [weight.shape[2] // 2] * 2
    given = None, [stride] * 2, half, [1, 1], False, [0, 0], 1
    return torch.ops.aten.convolution_backward(grads, maps, weight, *given, wanted)


def leave_out_weight_gradient() -> None:
    from iblurry.engine.hopper import training

    leave_out_descent()

    def weight_gradient(grads: Tensor, maps: Tensor, side: int, stride: int, models: int = 1) -> Tensor:
        def one(grads: Tensor, maps: Tensor) -> Tensor:
            size = grads.shape[1], maps.shape[1], side, side
            weight = torch.empty(size, dtype=grads.dtype, device=grads.device, memory_format=LAST)
            slope: Tensor = _backward(grads, maps, weight, stride, [False, True, False])[1]
            return slope.float().permute(0, 2, 3, 1).contiguous()

        return _each(one, models, grads, maps)[None]  # one part of the sum

    put(training, "weight_gradient", weight_gradient)


def leave_out_descent() -> None:
    from iblurry.engine.hopper import prepare, weight_gradient

    for module in (weight_gradient, prepare):
        put(module, "can_descend", lambda *_: False)


def leave_out_norm() -> None:
    from iblurry.engine.hopper import training

    def finish(maps: Tensor, unit: Any, plus: Tensor | None, models: int = 1) -> Tensor:
        maps = F.relu(unit[1](maps))
        return maps if plus is None else maps + plus

    put(training, "finish", finish)


def compile_norm() -> None:
    from iblurry.engine.hopper import accelerator as own

    put(own, "ResNet", ())  # as of every other body, inductor fuses what is between own convolutions


def leave_out_patches() -> None:
    from iblurry.engine.hopper import training

    put(training, "has_patches", lambda *_: False)
    put(folding.FirstConvolution, "fits", staticmethod(lambda *_: False))


def leave_out_augmentation() -> None:
    put(Pipeline, "by_kernel", lambda _: None)


# ------------------------------------------------------------------------------------------------------------ answers


def leave_out_folding() -> None:
    def answering(self: OptimizedNetwork, normalise: Callable[[Tensor], Tensor], _: Tensor) -> Callable[[Tensor], Any]:
        self.eval()

        def ask(pixels: Tensor) -> tuple[Tensor, Tensor]:
            with nullcontext() if self.convolutions is None else self.convolutions.left_out():
                return self._precisely(self.body, normalise(pixels).contiguous(memory_format=self.layout))

        return ask

    put(OptimizedNetwork, "answering", answering)
    put(OptimizedNetwork, "_can_fold", property(lambda _: False))


def leave_out_inference() -> None:
    from iblurry.engine.hopper import inference

    put(inference, "convolve", lambda *_, **__: None)


# --------------------------------------------------------------------------------------------- streams, stacks, graphs


def leave_out_weight_stream() -> None:
    put(WeightStream, "mark", lambda _: None)


def leave_out_parallel_stream() -> None:
    put(Eager, "side_by_side", lambda _, main, others, **__: (main(), [other() for other in others]))


def leave_out_stack() -> None:
    put(RefitStack, "fits", staticmethod(lambda *_: False))


def leave_out_capture() -> None:
    put(Graph, "compile", Eager.compile)


def leave_out_inductor() -> None:
    put(Graph, "fuse", lambda _, function: function)


def leave_out_own_kernels() -> None:
    put(accelerator, "HOPPER", (0, 0))  # no GPU's capability
    accelerator.accelerator.cache_clear()


def leave_out_own_kernels_and_inductor() -> None:
    leave_out_own_kernels()
    leave_out_inductor()


def capture_alone() -> None:
    leave_out_own_kernels()
    put(devices, "Graph", functools.partial(Graph, compiles=False))


def run_eagerly() -> None:
    leave_out_own_kernels()
    put(devices, "Graph", Eager)


# ------------------------------------------------------------------------------------------------------- cold starts


def compile_late() -> None:
    from iblurry.engine.hopper import prepare

    put(prepare, "start", lambda *_: [])


FEW = {"window": (300, 400), "samples": 500}  # where each takes long
ROWS = {
    "on": Row(keep_all, (*ALL, *BESIDE, "gss"), "everything as it is"),
    "forward": Row(leave_out_forward, ALL, "convolutions of training passes by cuDNN"),
    "input gradient": Row(leave_out_input_gradient, ALL, "by cuDNN, and what a shortcut adds by a sum of its own"),
    "weight gradient": Row(leave_out_weight_gradient, ALL, "by cuDNN; stacked models take SGD's steps by torch"),
    "norm": Row(leave_out_norm, ALL, "batch norm, ReLU and the sum by torch, one after the other"),
    "norm compiled": Row(compile_norm, ONLINE, "the same by inductor; no weight stream, no patches", compiles=True),
    "patches": Row(leave_out_patches, ALL, "the first convolution by cuDNN"),
    "descent": Row(leave_out_descent, ("gdumb",), "steps of stacked SGD by torch, not in the gradient's kernel"),
    "weight stream": Row(leave_out_weight_stream, ALL, "weight gradients in line with the backward pass"),
    "stack": Row(leave_out_stack, ("gdumb",), "refits one after the other"),
    "folding": Row(leave_out_folding, ONLINE, "answers by the unfolded network with cuDNN"),
    "inference": Row(leave_out_inference, ONLINE, "folded convolutions by cuDNN"),
    "augmentation": Row(leave_out_augmentation, ONLINE, "compiled by inductor", compiles=True),
    "inductor": Row(leave_out_inductor, ("clib",), "nothing is compiled by inductor, the rest as it is"),
    "own kernels": Row(leave_out_own_kernels, ALL, "what every other GPU runs", compiles=True),
    "own kernels, inductor": Row(leave_out_own_kernels_and_inductor, ALL, "the same, nothing compiled by inductor"),
    "parallel stream": Row(leave_out_parallel_stream, BESIDE, "passes beside the training pass in line with it"),
    "graphs": Row(leave_out_capture, ALL, "steps are not captured; the first samples only", **FEW),
    "exact: captured": Row(capture_alone, ALL, "other GPUs, without inductor", samples=300),
    "exact: eager": Row(run_eagerly, ALL, "the same, not captured: the journal must be equal", samples=300),
    "cold": Row(keep_all, ("er",), "with an empty cache", samples=300, is_cold=True),
    "cold: late": Row(compile_late, ("er",), "each kernel compiled when it first runs", samples=300, is_cold=True),
}  # fmt: skip

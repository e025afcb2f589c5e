"""Our own kernels beside cuDNN's, layer by layer: how far they are from float32, and how long they take.

`python -m benchmarks.gpu.kernels` on a Hopper GPU; exit code 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu.timing import timed, wait_for_device
from iblurry.errors import InputError
from iblurry.network.fused import ALIGNED, kernels

MOST = 0.01  # of the largest value: bfloat16 keeps eight bits
REPEATS = 30  # launches captured together, so that the host is not what is timed


class Layer(NamedTuple):
    """A convolution of ResNet-18 on images of 32x32, and how often it is there."""

    channels: int
    outputs: int
    high: int  # before it
    side: int
    stride: int
    times: int


FIRST = Layer(3, 64, 32, 3, 1, 1)
LAYERS = (
    Layer(64, 64, 32, 3, 1, 4),
    Layer(64, 128, 32, 3, 2, 1),
    Layer(64, 128, 32, 1, 2, 1),
    Layer(128, 128, 16, 3, 1, 3),
    Layer(128, 256, 16, 3, 2, 1),
    Layer(128, 256, 16, 1, 2, 1),
    Layer(256, 256, 8, 3, 1, 3),
    Layer(256, 512, 8, 3, 2, 1),
    Layer(256, 512, 8, 1, 2, 1),
    Layer(512, 512, 4, 3, 1, 3),
)


class Pair(NamedTuple):
    """The same work twice."""

    ours: Callable[[], Tensor]
    cudnn: Callable[[], Tensor]
    exact: Callable[[], Tensor]  # in float32


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, nargs="+", default=[500, 2048], help="images of a pass without training")
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    if kernels(torch.device("cuda")) is None:
        raise InputError("These kernels are for a Hopper GPU (H100, H200), and need Triton.")
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
    rows = [measured(f"entry {count}", FIRST, entry(count)) for count in given.answers]
    rows += [
        row
        for count in given.answers
        for layer in LAYERS
        for row in [measured(f"answers {count}", layer, answers(layer, count))]
    ]
    for kind, make in (("forwards", forwards), ("backwards", backwards), ("weights", weights)):
        rows += [measured(kind, layer, pair) for layer in LAYERS for pair in [make(layer, given.batch)]]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]
        total = {
            who: round(sum(row[who] * row["layer"]["times"] for row in mine), 1) for who in ("ours us", "cudnn us")
        }
        print(json.dumps({"kind": kind, "all layers": total}), flush=True)
    return 0 if all(row["right"] for row in rows) else 1


def measured(kind: str, layer: Layer, pair: Pair) -> dict[str, Any]:
    exact = pair.exact().float()
    off = {
        who: float((value.float() - exact).abs().max() / exact.abs().max())
        for who, value in (("ours", pair.ours()), ("cudnn", pair.cudnn()))
    }
    again = bool(torch.equal(pair.ours(), pair.ours()))
    row = {
        "kind": kind,
        "layer": layer._asdict(),
        "ours us": round(_alone(pair.ours), 2),
        "cudnn us": round(_alone(pair.cudnn), 2),
        "ours is off by": off["ours"],
        "cudnn is off by": off["cudnn"],
        "right": again and off["ours"] <= MOST,
    }
    print(json.dumps(row), flush=True)
    return row


def answers(layer: Layer, count: int) -> Pair:
    """With a bias, a ReLU and a sum."""
    own, (maps, weight) = kernels(torch.device("cuda")), _given(layer, count)
    assert own is not None
    bias, half = _random(layer.outputs), (layer.side // 2,) * 2
    up = layer.high // layer.stride
    plus = _random(count, layer.outputs, up, up).contiguous(memory_format=torch.channels_last)

    def cudnn() -> Tensor:
        thin, stride = maps, layer.stride
        if layer.side == 1 and stride > 1:
            thin, stride = maps[:, :, ::stride, ::stride].contiguous(memory_format=torch.channels_last), 1
        done: Tensor = torch.cudnn_convolution_relu(thin, weight, bias, (stride, stride), half, (1, 1), 1)
        return done + plus

    return Pair(
        lambda: own.inference.convolve(maps, weight, bias, plus, stride=layer.stride),
        cudnn,
        lambda: F.relu(F.conv2d(maps.float(), weight.float(), bias.float(), layer.stride, half)) + plus.float(),
    )


def entry(count: int) -> Pair:
    """The first one, with what brings images into its form."""
    own, bias = kernels(torch.device("cuda")), _random(FIRST.outputs)
    assert own is not None
    images = _random(count, FIRST.channels, FIRST.high, FIRST.high).float()
    weight = _random(FIRST.outputs, FIRST.channels, 3, 3) / FIRST.channels
    room = _random(count, ALIGNED, FIRST.high, FIRST.high).mul_(0).contiguous(memory_format=torch.channels_last)
    taps = F.pad(weight.permute(0, 2, 3, 1).flatten(1), (0, ALIGNED - 9 * FIRST.channels))[:, :, None, None]
    wide = F.pad(weight, (0, 0, 0, 0, 0, ALIGNED - FIRST.channels)).contiguous(memory_format=torch.channels_last)

    def ours() -> Tensor:
        own.inference.write_patches(images, room, 3)
        done: Tensor = own.inference.convolve(room, taps, bias, stride=1)
        return done

    def cudnn() -> Tensor:
        room[:, FIRST.channels :].zero_()
        room[:, : FIRST.channels].copy_(images)
        done: Tensor = torch.cudnn_convolution_relu(room, wide, bias, (1, 1), (1, 1), (1, 1), 1)
        return done

    return Pair(ours, cudnn, lambda: F.relu(F.conv2d(images, weight.float(), bias.float(), 1, 1)))


def forwards(layer: Layer, count: int) -> Pair:
    maps, weight = _given(layer, count)
    return Pair(
        lambda: torch.ops.iblurry.convolve(maps, weight, layer.stride, False, 1),
        lambda: F.conv2d(maps, weight, None, layer.stride, layer.side // 2),
        lambda: F.conv2d(maps.float(), weight.float(), None, layer.stride, layer.side // 2),
    )


def backwards(layer: Layer, count: int) -> Pair:
    maps, weight = _given(layer, count)
    up = layer.high // layer.stride
    grads = _random(count, layer.outputs, up, up).contiguous(memory_format=torch.channels_last)
    return Pair(
        lambda: torch.ops.iblurry.convolve(grads, weight, layer.stride, True, 1),
        lambda: _backward(layer, grads, maps, weight, (True, False, False))[0],
        lambda: _backward(layer, grads.float(), maps.float(), weight.float(), (True, False, False))[0],
    )


def weights(layer: Layer, count: int) -> Pair:
    """To float32, as an optimizer wants them."""
    own, (maps, weight) = kernels(torch.device("cuda")), _given(layer, count)
    assert own is not None
    up = layer.high // layer.stride
    grads = _random(count, layer.outputs, up, up).contiguous(memory_format=torch.channels_last)

    def ours() -> Tensor:
        parts: Tensor = torch.ops.iblurry.weight_gradient(grads, maps, layer.side, layer.stride, 1)
        whole: Tensor = own.training.sum_parts(parts)
        return whole

    return Pair(
        ours,
        lambda: _backward(layer, grads, maps, weight, (False, True, False))[1].float(),
        lambda: _backward(layer, grads.float(), maps.float(), weight.float(), (False, True, False))[1],
    )


def _backward(layer: Layer, grads: Tensor, maps: Tensor, weight: Tensor, wanted: tuple[bool, ...]) -> Any:
    half, stride = [layer.side // 2] * 2, [layer.stride] * 2
    return torch.ops.aten.convolution_backward(
        grads, maps, weight, None, stride, half, [1, 1], False, [0, 0], 1, list(wanted)
    )


def _given(layer: Layer, count: int) -> tuple[Tensor, Tensor]:
    maps = _random(count, layer.channels, layer.high, layer.high)
    weight = _random(layer.outputs, layer.channels, layer.side, layer.side) / (layer.channels * layer.side**2) ** 0.5
    return maps.contiguous(memory_format=torch.channels_last), weight.contiguous(memory_format=torch.channels_last)


def _random(*shape: int) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, device="cuda").to(torch.bfloat16)


def _alone(work: Callable[[], Tensor]) -> float:
    """Microseconds of one of many captured together."""
    for _ in range(3):
        work()
    wait_for_device("cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            work()
    graph.replay()
    return timed(graph.replay, 3, torch.device("cuda")).whole * 1000 / REPEATS


if __name__ == "__main__":
    raise SystemExit(main())

"""Our own kernels beside cuDNN's, layer by layer: how far they are from float32, and how long they take.

`python -m benchmarks.gpu.kernels` on a Hopper GPU; exit code 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu.layers import (
    FIRST,
    LAYERS,
    Layer,
    Pair,
    backward_by_torch,
    maps_and_weight,
    own_kernels,
    random_values,
)
from benchmarks.gpu.passes import passes
from benchmarks.gpu.stacked_kernels import stacked, stacked_units, steps
from benchmarks.gpu.timing import time_captured
from iblurry.augment import Augment
from iblurry.augment.pipeline import Pipeline
from iblurry.engine.convolutions import ALIGNED
from iblurry.learner.refits import MODELS
from iblurry.network.bodies import ConvUnit
from iblurry.rng import Rng

MOST = 0.01  # of the largest value: bfloat16 keeps eight bits
OTHER_BATCHES = (50, 240)  # whose last tile is not full; that larger kernels compute


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, nargs="+", default=[500, 2048], help="images of a pass without training")
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    own_kernels()
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
    rows = [measured(f"entry {count}", FIRST, entry(count)) for count in given.answers]
    rows += [
        row
        for count in given.answers
        for layer in LAYERS
        for row in [measured(f"answers {count}", layer, answers(layer, count))]
    ]
    made = (
        ("forwards", forwards),
        ("backwards", backwards),
        ("weights", weights),
        ("units", units),
        ("norms", norms),
        ("slopes", slopes),
    )
    for kind, make in made:
        rows += [measured(kind, layer, pair) for layer in LAYERS for pair in [make(layer, given.batch)]]
    for kind, make in (("units", units), ("backwards", backwards), ("weights", weights), ("slopes", slopes)):
        for count in OTHER_BATCHES:
            rows += [measured(f"{kind} {count}", layer, pair) for layer in LAYERS for pair in [make(layer, count)]]
    rows += [measured("first", FIRST, first(given.batch))]
    for layer in LAYERS:
        if (pair := steps(layer, given.batch)) is not None:
            rows.append(measured(f"steps of {MODELS}", layer, pair))
        for kind, back in (("forwards", False), ("backwards", True)):
            rows.append(measured(f"{kind} of {MODELS}", layer, stacked(layer, given.batch, back)))
        rows.append(measured(f"units of {MODELS}", layer, stacked_units(layer, given.batch)))
    rows += passes((given.batch, *OTHER_BATCHES), MODELS, given.batch)
    rows += [augmentation(shape) for shape in ((3, 32, 32), (3, 64, 64), (1, 32, 32))]
    for kind in dict.fromkeys(row["kind"] for row in rows if "layer" in row):
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
        "ours us": round(time_captured(pair.ours), 2),
        "cudnn us": round(time_captured(pair.cudnn), 2),
        "ours is off by": off["ours"],
        "cudnn is off by": off["cudnn"],
        "right": again and off["ours"] <= MOST,
    }
    print(json.dumps(row), flush=True)
    return row


def answers(layer: Layer, count: int) -> Pair:
    """With a bias, a ReLU and a sum."""
    own, (maps, weight) = own_kernels(), maps_and_weight(layer, count)
    bias, half = random_values(layer.outputs), (layer.side // 2,) * 2
    up = layer.high // layer.stride
    plus = random_values(count, layer.outputs, up, up).contiguous(memory_format=torch.channels_last)

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
    own, bias = own_kernels(), random_values(FIRST.outputs)
    images = random_values(count, FIRST.channels, FIRST.high, FIRST.high).float()
    weight = random_values(FIRST.outputs, FIRST.channels, 3, 3) / FIRST.channels
    room = random_values(count, ALIGNED, FIRST.high, FIRST.high).mul_(0).contiguous(memory_format=torch.channels_last)
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
    maps, weight = maps_and_weight(layer, count)
    return Pair(
        lambda: torch.ops.iblurry.convolve(maps, weight, layer.stride, False, 1),
        lambda: F.conv2d(maps, weight, None, layer.stride, layer.side // 2),
        lambda: F.conv2d(maps.float(), weight.float(), None, layer.stride, layer.side // 2),
    )


def backwards(layer: Layer, count: int) -> Pair:
    """With a sum, as at a block's entry."""
    own, (maps, weight) = own_kernels(), maps_and_weight(layer, count)
    up, plus = layer.high // layer.stride, torch.randn_like(maps)
    grads = random_values(count, layer.outputs, up, up).contiguous(memory_format=torch.channels_last)
    return Pair(
        lambda: own.training.run_convolution(grads, weight, layer.stride, True, 1, plus),
        lambda: backward_by_torch(layer, grads, maps, weight, (True, False, False))[0] + plus,
        lambda: (
            backward_by_torch(layer, grads.float(), maps.float(), weight.float(), (True, False, False))[0]
            + plus.float()
        ),
    )


def first(count: int) -> Pair:
    """The first one in training, by patches: its gradient, and behind it what it puts out."""
    own = own_kernels()
    images = (
        random_values(count, FIRST.channels, FIRST.high, FIRST.high)
        .float()
        .contiguous(memory_format=torch.channels_last)
    )
    grads = random_values(count, FIRST.outputs, FIRST.high, FIRST.high, seed=1).contiguous(
        memory_format=torch.channels_last
    )
    unit = ConvUnit(FIRST.channels, FIRST.outputs).cuda()
    unit.to(memory_format=torch.channels_last)
    conv = unit.convolution

    def both(done: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(done, conv.weight, grads.to(done.dtype))
        return torch.cat([values.float().flatten() / values.float().abs().max() for values in (slope, done.detach())])

    def cudnn() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return both(conv(images))

    return Pair(lambda: both(own.training.convolve_patches(images, unit, 1)), cudnn, lambda: both(conv(images)))


def weights(layer: Layer, count: int) -> Pair:
    """To float32, as an optimizer wants them."""
    own, (maps, weight) = own_kernels(), maps_and_weight(layer, count)
    up = layer.high // layer.stride
    grads = random_values(count, layer.outputs, up, up).contiguous(memory_format=torch.channels_last)

    def ours() -> Tensor:
        parts: Tensor = torch.ops.iblurry.weight_gradient(grads, maps, layer.side, layer.stride, 1)
        whole: Tensor = own.training.sum_parts(parts)
        return whole

    return Pair(
        ours,
        lambda: backward_by_torch(layer, grads, maps, weight, (False, True, False))[1].float(),
        lambda: backward_by_torch(layer, grads.float(), maps.float(), weight.float(), (False, True, False))[1],
    )


def units(layer: Layer, count: int) -> Pair:
    """Convolution, batch norm and ReLU in a training step."""
    own, (maps, weight) = own_kernels(), maps_and_weight(layer, count)
    unit = ConvUnit(layer.channels, layer.outputs, kernel=layer.side, stride=layer.stride).cuda()
    unit.to(memory_format=torch.channels_last)
    unit.convolution.weight.data.copy_(weight)

    def run(convolve: Any, finish: Any, maps: Tensor) -> Tensor:
        unit.convolve, unit.finish = convolve, finish
        with torch.no_grad():
            return unit(maps)

    def cudnn() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return run(None, None, maps)

    own_ways = own.training.convolve, own.training.finish
    return Pair(lambda: run(*own_ways, maps), cudnn, lambda: run(None, None, maps.float()))


def norms(layer: Layer, count: int) -> Pair:
    """Batch norm behind the convolution, with a ReLU and a sum."""
    return _normed(layer, count, lambda done, grads, inputs: done)


def slopes(layer: Layer, count: int) -> Pair:
    """The same with its gradients: for the maps, and behind them those for weight and bias."""

    def differentiate(done: Tensor, grads: Tensor, inputs: list[Tensor]) -> Tensor:
        found = torch.autograd.grad(done, inputs, grads)
        return torch.cat([slope.float().flatten() / slope.float().abs().max() for slope in found])

    return _normed(layer, count, differentiate)


def _normed(layer: Layer, count: int, end: Callable[[Tensor, Tensor, list[Tensor]], Tensor]) -> Pair:
    own, up = own_kernels(), layer.high // layer.stride
    shape = count, layer.outputs, up, up
    maps, plus, grads = (
        random_values(*shape, seed=seed).contiguous(memory_format=torch.channels_last) for seed in range(3)
    )
    weight, bias = (random_values(layer.outputs, seed=seed).float() for seed in range(2))
    state = own.norm.NormState((torch.zeros_like(weight), torch.ones_like(weight)), 1e-6, 0.1)

    def by_torch(maps: Tensor, plus: Tensor) -> Tensor:
        inputs = [maps.detach().requires_grad_(), weight.requires_grad_(), bias.requires_grad_()]
        done = F.relu(F.batch_norm(inputs[0], None, None, inputs[1], inputs[2], True, 0.1, 1e-6)) + plus
        return end(done, grads.to(maps.dtype), inputs).detach()

    def ours() -> Tensor:
        inputs = [maps.detach().requires_grad_(), weight.requires_grad_(), bias.requires_grad_()]
        done: Tensor = own.norm.NormFunction.apply(*inputs, plus, state, 1)
        return end(done, grads, inputs).detach()

    return Pair(ours, lambda: by_torch(maps, plus), lambda: by_torch(maps.float(), plus.float()))


def augmentation(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Every operation of a policy as the first step and as the second, after a crop: the same values?"""
    grey = (0.5,) * shape[0]
    pipeline = Pipeline(Augment(pad=4, policy="cifar10"), shape, grey, grey, "cuda")
    assert pipeline._autoaugment is not None
    count = len(pipeline._autoaugment.image_ops.list)
    images = (random_values(count, *shape).float() * 64 + 128).clamp(0, 255).to(torch.uint8)
    images[::3] //= 40  # few levels
    drawn = pipeline.draw_params(Rng(1), 0, count)
    numbers = torch.arange(count, device="cuda")
    params = drawn._replace(image_ops=torch.stack([numbers, numbers.flip(0)]))
    vary = pipeline.by_kernel()
    assert vary is not None
    row = {
        "kind": "augmentation",
        "shape": shape,
        "ours us": round(time_captured(lambda: vary(images, params)), 2),
        "torch us": round(time_captured(lambda: pipeline.vary_eagerly(images, params)), 2),
        "right": bool(torch.equal(vary(images, params), pipeline.vary_eagerly(images, params))),
    }
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    raise SystemExit(main())

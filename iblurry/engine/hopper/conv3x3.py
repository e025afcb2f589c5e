"""3x3 convolutions of many maps, 64 channels to 64 and 128 to 128, by one kernel each; in training those of 64 only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from iblurry.engine.hopper import conv3x3_64, conv3x3_128
from iblurry.engine.hopper.convolution import PROCESSORS, describe_maps, describe_weights
from iblurry.engine.hopper.launch import launch

PIXELS = 256  # of a tile: whole rows of one image
SLICE = 64  # channels multiplied at a time, and outputs of four warps
MANY = 3 * PROCESSORS  # tiles: the last round is one of four at least


def count_tiles(count: int, high: int, wide: int) -> int:
    """Tiles of 256 pixels in `count` maps."""
    return count * high * wide // PIXELS


def fits(channels: int, outputs: int, high: int, wide: int, side: int, stride: int) -> bool:
    """Whether there is a kernel for a convolution of this size: 64 channels to 64, or 128 to 128."""
    widths = {64: (16, 32, 64), 128: (16, 32)}
    if (side, stride) != (3, 1) or channels != outputs or wide not in widths.get(channels, ()):
        return False
    return high % (PIXELS // wide) == 0


def is_worthwhile(count: int, high: int, wide: int) -> bool:
    """Whether these are enough maps to keep the device busy: one block of the kernel per multiprocessor."""
    return count_tiles(count, high, wide) > MANY


def convolve(maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None = None) -> Tensor:
    """relu(weight * maps + bias) + plus, padded by one pixel; everything is bfloat16 and channels last."""
    if maps.shape[1] == 64:
        return _run(conv3x3_64.convolve_64, maps, weight, bias, plus, ENDS=True, BACK=False)
    return _run(conv3x3_128.convolve_128, maps, weight, bias, plus)


def convolve_64(maps: Tensor, weight: Tensor, plus: Tensor | None, *, backwards: bool, models: int) -> Tensor:
    """weight * maps + plus, or the gradient with respect to the input maps; arguments as of `convolution.convolve`."""
    return _run(conv3x3_64.convolve_64, maps, weight, None, plus, models, ENDS=False, BACK=backwards)


def _share(tiles: int, models: int, device: torch.device) -> int:
    """Blocks of a model with so many tiles; one per multiprocessor."""
    is_meta = device.type == "meta"
    blocks = PROCESSORS if is_meta else torch.cuda.get_device_properties(device).multi_processor_count
    return min(tiles, max(1, blocks // models))


def _run(
    kernel: Any,
    maps: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    plus: Tensor | None,
    models: int = 1,
    **constants: bool,
) -> Tensor:
    """Weights are loaded for all outputs at a time; a block has tiles of one model."""
    count, channels, high, wide = maps.shape
    tiles = count_tiles(count // models, high, wide)
    done = maps.new_empty(count, high, wide, channels).permute(0, 3, 1, 2)
    beside = _share(tiles, models, maps.device)
    launch(
        kernel,
        models * beside,
        describe_maps(maps, 1, 1, PIXELS // wide, SLICE),
        describe_maps(maps, 1, 1, 2, SLICE),
        describe_weights(weight, [channels, SLICE]),
        maps,
        done if bias is None else bias,
        done if plus is None else plus,
        done,
        tiles,
        beside,
        HIGH=high,
        WIDE=wide,
        ROWS=PIXELS // wide,
        ADDS=plus is not None,
        num_warps=4,
        **constants,
    )
    return done

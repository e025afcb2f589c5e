"""What a first convolution meets at each pixel, laid out as channels: its few channels would waste the multipliers."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

PIXELS = 128  # of one block


def patches(images: Tensor, room: Tensor, side: int) -> None:
    """images (B, C, H, W) -> room (B, at least side * side * C, H, W), channels last; those left over become 0.

    Channel tap * C + c of a pixel is channel c of the neighbour that the tap meets, 0 outside the image.
    """
    count, channels, high, wide = images.shape
    total = count * high * wide
    _patches[(triton.cdiv(total, PIXELS),)](
        images.contiguous(),
        room,
        total,
        CHANNELS=channels,
        HIGH=high,
        WIDE=wide,
        SIDE=side,
        ROOM=room.shape[1],
        PIXELS=PIXELS,
    )


@triton.jit
def _patches(
    images, room, total, CHANNELS: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr,
    ROOM: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)[:, None]
    channel = tl.arange(0, ROOM)[None, :]
    tap = channel // CHANNELS
    row = pixel // WIDE % HIGH + tap // SIDE - SIDE // 2
    column = pixel % WIDE + tap % SIDE - SIDE // 2
    is_there = (tap < SIDE * SIDE) & (row >= 0) & (row < HIGH) & (column >= 0) & (column < WIDE) & (pixel < total)
    place = ((pixel // (HIGH * WIDE) * CHANNELS + channel % CHANNELS) * HIGH + row) * WIDE + column
    values = tl.load(images + place, mask=is_there, other=0.0)
    tl.store(room + pixel * ROOM + channel, values.to(tl.bfloat16), mask=pixel < total)

"""Augmentation of a batch by one kernel, a block for each image: the bytes of `Pipeline.vary_eagerly`, sooner compiled.

Triton's, for any GPU it knows. An image is read and written several times by its own block: it stays in the cache.
"""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from iblurry.augment.autoaugment import KINDS, OpTables

MOST = 4096  # pixels of an image: more would not fit in the registers of a block
WARP, TABLE, CONTRAST, AUTOCONTRAST, EQUALIZE, COLOUR, SHARPNESS = (
    tl.constexpr(KINDS.index(kind))
    for kind in ("warp", "table", "contrast", "autocontrast", "equalize", "colour", "sharpness")
)


def fits(shape: tuple[int, int, int]) -> bool:
    """Whether images of this shape (channels, height, width) can be augmented by the kernel."""
    channels, height, width = shape
    pixels = height * width
    return channels in (1, 3) and min(height, width) > 2 and 256 <= pixels <= MOST and pixels & (pixels - 1) == 0


def augment(
    images: Tensor,
    offsets: Tensor,
    paths: Tensor,
    pad: int,
    numbers: Tensor | None,
    tables: OpTables | None,
    scale: Tensor,
    shift: Tensor,
) -> Tensor:
    """(B, C, H, W) uint8 -> the same shape, float32: cropped and mirrored, varied by the policy, and normalised.

    Parameters
    ----------
    images : Tensor
        The stored ones.
    offsets : Tensor
        (2, B) int64: the corner of each crop, and which path.
    paths : Tensor
        (2, 1, H*W) int64: where a crop's pixels are from its corner, mirrored or not.
    pad : int
        Black pixels around the image.
    numbers : Tensor, optional
        (2, B) int64: the operations of both steps; None without a policy.
    tables : OpTables, optional
        Of the policy.
    scale, shift : Tensor
        (C, 1, 1) float32, of the normalisation.
    """
    count, channels, height, width = images.shape
    size = images[:1].numel()
    room = torch.empty(count, 3, size, dtype=torch.uint8, device=images.device)  # the image after each step
    levels = torch.empty(count, channels, 256, dtype=torch.uint8, device=images.device)
    done = torch.empty(images.shape, device=images.device)
    offsets = offsets.contiguous()
    numbers = offsets if numbers is None else numbers.contiguous()
    given = tables or OpTables(offsets, offsets, images, scale, scale)  # not read
    constants = {"CHANNELS": channels, "HIGH": height, "WIDE": width, "VARIES": tables is not None}
    _augment[(count,)](
        images.contiguous(), offsets, paths, numbers, *given, room, levels, scale, shift, done, count, pad,
        **constants, num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip
    return done


@triton.jit(do_not_specialize=["count", "pad"], do_not_specialize_on_alignment=["offsets", "numbers"])  # rows of tables
def _augment(
    images, offsets, paths, numbers, kinds, source_pixels, fixed, contrast, blend, room, levels, scales, shifts, done,
    count, pad, CHANNELS: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, VARIES: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = HIGH * WIDE
    image = tl.program_id(0).to(tl.int64)
    pixel = tl.arange(0, SIZE)
    images += image * CHANNELS * SIZE
    room += image * 3 * CHANNELS * SIZE
    levels += image * CHANNELS * 256
    place = tl.load(paths + tl.load(offsets + count + image) * SIZE + pixel) + tl.load(offsets + image)
    row = place // (WIDE + 2 * pad) - pad
    column = place % (WIDE + 2 * pad) - pad
    is_there = (row >= 0) & (row < HIGH) & (column >= 0) & (column < WIDE)
    for c in range(CHANNELS):
        value = tl.load(images + c * SIZE + row * WIDE + column, mask=is_there, other=0)
        tl.store(room + c * SIZE + pixel, value)
    tl.debug_barrier()
    if VARIES:
        for step in range(2):
            number = tl.load(numbers + step * count + image)
            _vary(
                room, room + CHANNELS * SIZE, levels, number, tl.load(kinds + number), source_pixels, fixed, contrast,
                blend, pixel, CHANNELS, HIGH, WIDE,
            )  # fmt: skip
            room += CHANNELS * SIZE
            tl.debug_barrier()
    for c in range(CHANNELS):
        value = tl.load(room + c * SIZE + pixel).to(tl.float32) * tl.load(scales + c) + tl.load(shifts + c)
        tl.store(done + (image * CHANNELS + c) * SIZE + pixel, value)


@triton.jit
def _vary(
    given, made, levels, number, kind, source_pixels, fixed, contrast, blend, pixel, CHANNELS: tl.constexpr,
    HIGH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One operation of the policy."""
    SIZE: tl.constexpr = HIGH * WIDE
    if kind == WARP:
        source = tl.load(source_pixels + number * SIZE + pixel)
        for c in range(CHANNELS):
            value = tl.load(given + c * SIZE + source, mask=source < SIZE, other=0)
            tl.store(made + c * SIZE + pixel, value)
    elif kind == TABLE:
        for c in range(CHANNELS):
            value = tl.load(fixed + number * 256 + tl.load(given + c * SIZE + pixel).to(tl.int32))
            tl.store(made + c * SIZE + pixel, value)
    elif kind == CONTRAST:
        own = tl.load(contrast + 2 * number)
        rest = tl.load(contrast + 2 * number + 1)
        total = tl.sum(_grey(given, pixel, CHANNELS, SIZE).to(tl.int32), 0)
        other = rest * tl.div_rn(total.to(tl.float32), SIZE * 1.0)
        for c in range(CHANNELS):
            value = tl.load(given + c * SIZE + pixel).to(tl.float32)
            tl.store(made + c * SIZE + pixel, _cut(own * value + other))
    elif kind == AUTOCONTRAST:
        for c in range(CHANNELS):
            value = tl.load(given + c * SIZE + pixel).to(tl.float32)
            low = tl.min(value, 0)
            high = tl.max(value, 0)
            if low < high:
                value = (value - low) * (tl.div_rn(1.0, high - low) * 255.0)
            tl.store(made + c * SIZE + pixel, _cut(value))
    elif kind == EQUALIZE:
        for c in range(CHANNELS):
            tl.store(levels + c * 256 + tl.arange(0, 256), _equalized(tl.load(given + c * SIZE + pixel), SIZE))
        tl.debug_barrier()
        for c in range(CHANNELS):
            value = tl.load(levels + c * 256 + tl.load(given + c * SIZE + pixel).to(tl.int32))
            tl.store(made + c * SIZE + pixel, value)
    elif kind == COLOUR:
        own = tl.load(blend + 2 * number)
        other = tl.load(blend + 2 * number + 1) * _grey(given, pixel, CHANNELS, SIZE).to(tl.float32)
        for c in range(CHANNELS):
            value = tl.load(given + c * SIZE + pixel).to(tl.float32)
            tl.store(made + c * SIZE + pixel, _cut(own * value + other))
    elif kind == SHARPNESS:
        own = tl.load(blend + 2 * number)
        rest = tl.load(blend + 2 * number + 1)
        for c in range(CHANNELS):
            value = tl.load(given + c * SIZE + pixel).to(tl.float32)
            tl.store(made + c * SIZE + pixel, _cut(own * value + rest * _smooth(given + c * SIZE, pixel, HIGH, WIDE)))
    else:
        for c in range(CHANNELS):
            tl.store(made + c * SIZE + pixel, tl.load(given + c * SIZE + pixel))


@triton.jit
def _cut(value):
    return tl.minimum(tl.maximum(value, 0.0), 255.0).to(tl.uint8)


@triton.jit
def _grey(given, pixel, CHANNELS: tl.constexpr, SIZE: tl.constexpr):
    """Luminance of each pixel, uint8."""
    value = tl.load(given + pixel)
    if CHANNELS == 3:
        green = tl.load(given + SIZE + pixel).to(tl.float32)
        blue = tl.load(given + 2 * SIZE + pixel).to(tl.float32)
        value = (0.2989 * value.to(tl.float32) + 0.587 * green + 0.114 * blue).to(tl.uint8)
    return value


@triton.jit
def _smooth(given, pixel, HIGH: tl.constexpr, WIDE: tl.constexpr):
    """Five times a pixel and its neighbours, over 13, rounded; the border as it is."""
    row = pixel // WIDE
    column = pixel % WIDE
    inside = (row > 0) & (row < HIGH - 1) & (column > 0) & (column < WIDE - 1)
    value = tl.load(given + pixel).to(tl.float32)
    total = 4.0 * value
    for down in tl.static_range(-1, 2):
        for across in tl.static_range(-1, 2):
            total += tl.load(given + pixel + down * WIDE + across, mask=inside, other=0).to(tl.float32)
    return tl.where(inside, tl.floor(tl.div_rn(total, 13.0) + 0.5), value)


@triton.jit
def _equalized(values, SIZE: tl.constexpr):
    """(256,) what each level becomes, uint8."""
    level = tl.arange(0, 256)
    counts = tl.histogram(values.to(tl.int32), 256)
    brightest = tl.max(values.to(tl.int32), 0)
    step = (SIZE - tl.sum(tl.where(level == brightest, counts, 0), 0)) // 255
    darker = tl.cumsum(counts, 0) - counts
    spread = tl.minimum((darker + step // 2) // tl.maximum(step, 1), 255)
    return tl.where(step == 0, level, spread).to(tl.uint8)

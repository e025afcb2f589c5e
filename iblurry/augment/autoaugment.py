"""AutoAugment for a batch: the host draws a sub-policy per image, the device applies its two operations.

Cubuk et al., "AutoAugment: learning augmentation strategies from data", CVPR 2019. First the policies as data, then
the operations on whole batches, uint8 in and out, and what draws and applies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.errors import InputError

BINS = 10
SIGNED = frozenset(
    ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness")
)


class PolicyStep(NamedTuple):
    """One of the two operations of a sub-policy."""

    operation: str
    probability: float
    bin: int | None  # index into `magnitudes`; None for operations without a magnitude


Policy = tuple[tuple[PolicyStep, PolicyStep], ...]


def magnitudes(height: int, width: int) -> dict[str, tuple[float, ...]]:
    """What the ten bins mean for images of this size; operations without a choice are not in it.

    Shears are slopes, translations whole pixels (towards zero), rotations degrees, the four enhancements are added to a
    factor of 1, posterize keeps so many bits, solarize inverts from a threshold on; in float32 as in torchvision.
    Solarize starts at 255 as in newer torchvision; older ones have 256, which is no pixel value and is refused by now.

    >>> magnitudes(32, 64)["TranslateY"][:5], magnitudes(32, 64)["TranslateX"][:5]
    ((0, 1, 3, 4, 6), (0, 3, 6, 9, 12))
    """
    shear, turn, enhance = bins(0.3), bins(30.0), bins(0.9)
    return {
        "ShearX": shear,
        "ShearY": shear,
        "TranslateX": tuple(map(int, bins(150 / 331 * width))),
        "TranslateY": tuple(map(int, bins(150 / 331 * height))),
        "Rotate": turn,
        "Brightness": enhance,
        "Color": enhance,
        "Contrast": enhance,
        "Sharpness": enhance,
        "Posterize": tuple(8 - round(4 * step / (BINS - 1)) for step in range(BINS)),
        "Solarize": bins(0.0, start=255.0),
    }


def randaugment(magnitude: int) -> Policy:
    """RandAugment with two operations an image, each any of fourteen with the same probability, all of one magnitude.

    Parameters
    ----------
    magnitude : int
        From 0 to 9, the bin of every operation.

    Cubuk et al., "RandAugment: practical automated data augmentation with a reduced search space", NeurIPS 2020.
    """
    steps = [PolicyStep(operation, 1.0, None) for operation in ("Identity", "AutoContrast", "Equalize")]
    steps += [PolicyStep(operation, 1.0, magnitude) for operation in (*sorted(SIGNED), "Posterize", "Solarize")]
    return tuple((first, second) for first in steps for second in steps)


def bins(end: float, *, start: float = 0.0) -> tuple[float, ...]:
    """Ten even steps."""
    return tuple(torch.linspace(start, end, BINS, dtype=torch.float32).tolist())


def _policy(text: str) -> Policy:
    """One sub-policy a line: operation, probability and bin of two steps."""

    def step(words: str) -> PolicyStep:
        operation, probability, *at = words.split()
        return PolicyStep(operation, float(probability), int(at[0]) if at else None)

    pairs = [line.split(",") for line in text.strip().splitlines()]
    return tuple((step(first), step(second)) for first, second in pairs)


POLICIES: dict[str, Policy] = {
    "cifar10": _policy("""
        Invert 0.1, Contrast 0.2 6
        Rotate 0.7 2, TranslateX 0.3 9
        Sharpness 0.8 1, Sharpness 0.9 3
        ShearY 0.5 8, TranslateY 0.7 9
        AutoContrast 0.5, Equalize 0.9
        ShearY 0.2 7, Posterize 0.3 7
        Color 0.4 3, Brightness 0.6 7
        Sharpness 0.3 9, Brightness 0.7 9
        Equalize 0.6, Equalize 0.5
        Contrast 0.6 7, Sharpness 0.6 5
        Color 0.7 7, TranslateX 0.5 8
        Equalize 0.3, AutoContrast 0.4
        TranslateY 0.4 3, Sharpness 0.2 6
        Brightness 0.9 6, Color 0.2 8
        Solarize 0.5 2, Invert 0.0
        Equalize 0.2, AutoContrast 0.6
        Equalize 0.2, Equalize 0.6
        Color 0.9 9, Equalize 0.6
        AutoContrast 0.8, Solarize 0.2 8
        Brightness 0.1 3, Color 0.7 0
        Solarize 0.4 5, AutoContrast 0.9
        TranslateY 0.9 9, TranslateY 0.7 9
        AutoContrast 0.9, Solarize 0.8 3
        Equalize 0.8, Invert 0.1
        TranslateY 0.7 9, AutoContrast 0.9
    """),
    "imagenet": _policy("""
        Posterize 0.4 8, Rotate 0.6 9
        Solarize 0.6 5, AutoContrast 0.6
        Equalize 0.8, Equalize 0.6
        Posterize 0.6 7, Posterize 0.6 6
        Equalize 0.4, Solarize 0.2 4
        Equalize 0.4, Rotate 0.8 8
        Solarize 0.6 3, Equalize 0.6
        Posterize 0.8 5, Equalize 1.0
        Rotate 0.2 3, Solarize 0.6 8
        Equalize 0.6, Posterize 0.4 6
        Rotate 0.8 8, Color 0.4 0
        Rotate 0.4 9, Equalize 0.6
        Equalize 0.0, Equalize 0.8
        Invert 0.6, Equalize 1.0
        Color 0.6 4, Contrast 1.0 8
        Rotate 0.8 8, Color 1.0 2
        Color 0.8 8, Solarize 0.8 7
        Sharpness 0.4 7, Invert 0.6
        ShearX 0.6 5, Equalize 1.0
        Color 0.4 0, Equalize 0.6
        Equalize 0.4, Solarize 0.2 4
        Solarize 0.6 5, AutoContrast 0.6
        Invert 0.6, Equalize 1.0
        Color 0.6 4, Contrast 1.0 8
        Equalize 0.8, Equalize 0.6
    """),
    "randaugment": randaugment(3),  # a third of the range, as the usual 9 of 30
}

_KIND = {  # operations of one kind are one computation
    "Identity": "nothing",
    **dict.fromkeys(("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"), "warp"),
    **dict.fromkeys(("Invert", "Posterize", "Solarize", "Brightness"), "table"),
    "Contrast": "contrast",
    "AutoContrast": "autocontrast",
    "Equalize": "equalize",
    "Color": "colour",
    "Sharpness": "sharpness",
}
KINDS = tuple(dict.fromkeys(_KIND.values()))  # "nothing" is the first


Matrix = tuple[float, float, float, float, float, float]  # (a, b, c, d, e, f): x from ax + by + c, y from dx + ey + f


def blend(images: Tensor, other: Tensor | float, own: Tensor, rest: Tensor) -> Tensor:
    """own * images + rest * other, cut to 0..255 and rounded down; own is 1 + magnitude, rest is -magnitude.

    Beyond 1 it moves away from `other`: more colour, a sharper image. 1 and 0 leave an image exactly as it is.
    """
    return (own * images + rest * other).clamp_(0, 255).to(torch.uint8)


def grey(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, 1, H, W) uint8: luminance, rounded down; grey images as they are."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    luminance: Tensor = 0.2989 * red + 0.587 * green + 0.114 * blue
    return luminance.to(torch.uint8)


def smooth(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> the same: each pixel five times and its eight neighbours once; the border as it is.

    A sum over 13 is never halfway between two whole numbers, so no order of adding can change the rounding.
    """
    values = images.float()
    rows = values[:, :, :-2] + values[:, :, 1:-1] + values[:, :, 2:]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * values[:, :, 1:-1, 1:-1]
    smoothed = images.clone()
    smoothed[:, :, 1:-1, 1:-1] = sums.div_(13).round_().to(torch.uint8)
    return smoothed


def level_table(operation: str, magnitude: float) -> Tensor:
    """(256,) uint8, the same for every image: Invert, Posterize (bits kept), Solarize (threshold), Brightness.

    >>> level_table("Posterize", 4)[[15, 16, 255]].tolist(), level_table("Solarize", 170.0)[[169, 170, 255]].tolist()
    ([0, 16, 240], [169, 85, 0])
    """
    level = torch.arange(256, dtype=torch.uint8)
    if operation == "Invert":
        return 255 - level
    if operation == "Posterize":
        dropped = 8 - int(magnitude)
        return level >> dropped << dropped
    if operation == "Solarize":
        return torch.where(level >= magnitude, 255 - level, level)
    assert operation == "Brightness", operation
    return blend(level, 0, *blend_weights(magnitude))


def blend_weights(magnitude: float) -> Tensor:
    """(2,) float32: the weights of the image itself and of what it is blended with."""
    own = 1.0 + magnitude
    return torch.tensor((own, 1.0 - own), dtype=torch.float32)


def contrast_table(images: Tensor, own: Tensor, rest: Tensor) -> Tensor:
    """(B, C, H, W) uint8, (B, 1, 1) twice -> (B, 1, 256) uint8: a blend with the mean of the grey image, not rounded.

    The sum is of whole numbers and exact, so the mean is the same however it is added up.
    """
    height, width = images.shape[2:]
    mean = grey(images).sum((2, 3), dtype=torch.int64).float().div_(height * width)  # (B, 1)
    return blend(torch.arange(256, device=images.device), mean.unsqueeze(2), own, rest)


def apply_tables(images: Tensor, tables: Tensor) -> Tensor:
    """(B, C, H, W) uint8 and (B, C or 1, 256) uint8 -> (B, C, H, W) uint8."""
    n, channels, _, _ = images.shape
    return tables.expand(n, channels, 256).gather(2, images.flatten(2).long()).view(images.shape)


def autocontrast_table(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, C, 256) uint8: darkest to 0, brightest to 255; a channel of one level stays."""
    pixels, level = images.flatten(2), torch.arange(256, device=images.device)
    low, high = pixels.amin(2, keepdim=True).float(), pixels.amax(2, keepdim=True).float()  # a third of aminmax's time
    flat = low == high
    scale = torch.where(flat, 1, (high - low).reciprocal() * 255)  # in two roundings, as torchvision's 255 / tensor
    return ((level - torch.where(flat, 0, low)) * scale).clamp_(0, 255).to(torch.uint8)


def equalize_table(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, C, 256) uint8: levels spread so that each is about as frequent as any other.

    step = (pixels but those of the brightest level) // 255; level v becomes (pixels darker than v + step // 2) // step.
    With a step of 0 the channel stays as it is.
    """
    pixels = images.flatten(2).long()
    n, channels, size = pixels.shape
    one = torch.ones((), dtype=torch.int64, device=images.device)
    counts = torch.zeros(n, channels, 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, pixels, one.expand(pixels.shape))
    brightest = pixels.amax(2, keepdim=True)
    step = torch.div(size - counts.gather(2, brightest), 255, rounding_mode="floor")  # (B, C, 1)
    darker = counts.cumsum(2).sub_(counts)
    spread = torch.div(darker + torch.div(step, 2, rounding_mode="floor"), step.clamp(min=1), rounding_mode="floor")
    level = torch.arange(256, device=images.device)
    return torch.where(step == 0, level, spread.clamp_(max=255)).to(torch.uint8)


def affine_matrix(operation: str, magnitude: float, height: int, width: int) -> Matrix:
    """Maps an output point to its source; the origin is the top left corner, the centre of pixel (0, 0) is 0.5, 0.5.

    A shear keeps the top left corner, a rotation (counter-clockwise, in degrees) the middle. A positive shift goes to
    the right or down.

    >>> affine_matrix("TranslateX", 3, 32, 32)
    (1.0, 0.0, -3.0, 0.0, 1.0, 0.0)
    """
    if operation == "ShearX":
        return 1.0, magnitude, 0.0, 0.0, 1.0, 0.0
    if operation == "ShearY":
        return 1.0, 0.0, 0.0, magnitude, 1.0, 0.0
    if operation == "TranslateX":
        return 1.0, 0.0, -float(magnitude), 0.0, 1.0, 0.0
    if operation == "TranslateY":
        return 1.0, 0.0, 0.0, 0.0, 1.0, -float(magnitude)
    assert operation == "Rotate", operation
    cos, sin = math.cos(math.radians(magnitude)), math.sin(math.radians(magnitude))
    x, y = width / 2, height / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y


def source_pixels(matrix: Matrix, height: int, width: int) -> NDArray[np.int64]:
    """(H*W,) the source pixel of each output pixel; H*W means black.

    In double precision on the host, so all devices show the same pixels. A source exactly between two pixels is rounded
    to the even one; torchvision leaves such a tie to the noise of float32. No step of a policy comes near one up to 64.
    """
    a, b, c, d, e, f = matrix
    y, x = np.mgrid[:height, :width].reshape(2, -1) + 0.5
    column = np.rint(a * x + b * y + c - 0.5).astype(np.int64)
    row = np.rint(d * x + e * y + f - 0.5).astype(np.int64)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return np.where(inside, row * width + column, height * width)


def warp(images: Tensor, sources: Tensor) -> Tensor:
    """(B, C, H, W) uint8 and (B, H*W) sources -> (B, C, H, W) uint8."""
    n, channels, height, width = images.shape
    framed = torch.constant_pad_nd(images.flatten(2), (0, 1))  # one black pixel at the end
    return framed.gather(2, sources.unsqueeze(1).expand(n, channels, height * width)).view(images.shape)


_BLENDED = {"colour": grey, "sharpness": smooth}
OPERATIONS = tuple(_KIND)[1:]


class AutoAugment:
    """Draws one of 25 sub-policies per image and applies its two steps, each with its own probability and random sign.

    Parameters
    ----------
    policy : {"cifar10", "imagenet"}
    shape : tuple of int
        (channels, height, width); grey or colour.
    device : torch.device or str, default "cpu"
    """

    def __init__(self, policy: str, shape: tuple[int, int, int], device: torch.device | str = "cpu") -> None:
        channels, height, width = shape
        if channels not in (1, 3):
            raise InputError(
                f"policy is {policy!r}, but AutoAugment varies grey or colour images and these have {channels} "
                "channels; use policy=None."
            )
        strengths = magnitudes(height, width)
        numbers: dict[ImageOp, int] = {ImageOp("Identity"): 0}

        def number(operation: str, at: int | None, sign: int) -> int:
            strength = 0.0 if at is None else strengths[operation][at]
            image_op = ImageOp(operation, -strength if operation in SIGNED and sign == 0 else strength)
            return numbers.setdefault(image_op, len(numbers))

        steps = POLICIES[policy]
        self._probability = np.array([[step.probability for step in pair] for pair in steps])  # (25, 2)
        self._numbers = np.array(
            [[[number(step.operation, step.bin, sign) for sign in (0, 1)] for step in pair] for pair in steps]
        )  # (25, 2, 2): sub-policy, step, sign
        self.image_ops = ImageOps(list(numbers), shape, device)

    def draw(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Uniforms (..., 5, n) -> (..., 2, n) indices of image operations.

        A step is applied if its uniform is at most its probability; a signed magnitude is negative if its own is below
        0.5.
        """
        chosen = (uniforms[..., :1, :] * len(self._probability)).astype(np.int64)
        step = np.arange(2)[:, None]
        applied = uniforms[..., 1:3, :] <= self._probability[chosen, step]
        sign = (uniforms[..., 3:5, :] * 2).astype(np.int64)
        return np.where(applied, self._numbers[chosen, step, sign], 0)

    def __call__(self, images: Tensor, numbers: Tensor, groups: tuple[ImageGroups, ImageGroups] | None) -> Tensor:
        """(B, C, H, W) uint8 and (2, B) numbers -> (B, C, H, W) uint8; the first step first."""
        for step, chosen in enumerate(numbers.unbind()):
            images = (
                self.image_ops.dense(images, chosen)
                if groups is None
                else self.image_ops.grouped(images, chosen, groups[step])
            )
        return images


class ImageOp(NamedTuple):
    """An operation and how strongly it is applied."""

    operation: str
    magnitude: float = 0.0


class ImageGroups(NamedTuple):
    """The images of a batch by kind of operation; known on the host, so an eager step computes only what it needs."""

    order: NDArray[np.int64]  # (n,) on the host: rows of the batch, those of one kind together
    rows: Tensor  # (n,) int64: the same on the device
    spans: tuple[tuple[str, int, int], ...]  # kind, start and stop in `order`

    def first(self, n: int) -> ImageGroups:
        """The groups of the first n images alone."""
        kept = self.order < n
        before = [0, *kept.cumsum().tolist()]
        order = self.order[kept]
        spans = ((kind, before[start], before[stop]) for kind, start, stop in self.spans)
        rows = torch.from_numpy(order).to(self.rows.device)
        return ImageGroups(order, rows, tuple(span for span in spans if span[1] < span[2]))


class OpTables(NamedTuple):
    """What the operations of a list need, a row for each."""

    kinds: Tensor  # (ops,) int64, in the order of KINDS
    source_pixels: Tensor  # (ops, H*W) int64
    levels: Tensor  # (ops, 256) uint8
    contrast: Tensor  # (ops, 2) float32
    blend: Tensor  # (ops, 2) float32


class ImageOps:
    """A list of operations, and two ways to apply them to a batch that give the same bytes.

    `grouped` takes the images of each kind in turn; `dense` computes every kind for all images at fixed shapes and
    selects, so it can run as a captured graph. uint8 in, uint8 out, as torchvision's AutoAugment (from 0.10)
    treats tensors: nearest pixels, black where there are none. A grey image has no colour to change, and one of two
    pixels nothing to sharpen: they stay as they are.
    """

    def __init__(
        self, image_ops: Sequence[ImageOp], shape: tuple[int, int, int], device: torch.device | str = "cpu"
    ) -> None:
        self.list = tuple(image_ops)
        channels, height, width = shape
        kinds = [_KIND[op.operation] for op in image_ops]
        idle = [kind for kind, never in (("colour", channels == 1), ("sharpness", min(height, width) < 3)) if never]
        kinds = ["nothing" if kind in idle else kind for kind in kinds]
        self._kinds = np.array([KINDS.index(kind) for kind in kinds])
        self._is = {kind: torch.tensor([k == kind for k in kinds], device=device) for kind in set(kinds)}

        def rows(make: Callable[..., Tensor], nothing: Tensor, *wanted: str) -> Tensor:
            """One row per operation: what these kinds need, and for all others what changes nothing."""
            made = [make(*op) if kind in wanted else nothing for op, kind in zip(image_ops, kinds, strict=True)]
            return torch.stack(made).to(device)

        def sources(operation: str, magnitude: float) -> Tensor:
            return torch.from_numpy(source_pixels(affine_matrix(operation, magnitude, height, width), height, width))

        def weights(operation: str, magnitude: float) -> Tensor:
            return blend_weights(magnitude)

        self.tables = OpTables(
            kinds=torch.from_numpy(self._kinds).to(device),
            source_pixels=rows(sources, torch.arange(height * width), "warp"),
            levels=rows(level_table, torch.arange(256, dtype=torch.uint8), "table"),
            contrast=rows(weights, blend_weights(0.0), "contrast"),
            blend=rows(weights, blend_weights(0.0), *_BLENDED),
        )

    def groups(self, numbers: NDArray[np.int64]) -> list[ImageGroups]:
        """(batches, n) operations -> the groups of each batch."""
        kinds = self._kinds[numbers]
        order = kinds.argsort(axis=1, kind="stable")
        ends = (kinds[:, :, None] <= np.arange(len(KINDS))).sum(1).tolist()
        spans = [
            tuple(span for span in zip(KINDS[1:], end, end[1:], strict=False) if span[1] < span[2]) for end in ends
        ]
        return [ImageGroups(*group) for group in zip(order, torch.from_numpy(order).unbind(), spans, strict=True)]

    def grouped(self, images: Tensor, numbers: Tensor, groups: ImageGroups) -> Tensor:
        """(B, C, H, W) uint8, (B,) operations -> (B, C, H, W) uint8; groups of a larger batch may be given."""
        if len(images) < len(groups.order):
            groups = groups.first(len(images))
        done, numbers = images.index_select(0, groups.rows), numbers.index_select(0, groups.rows)
        for kind, start, stop in groups.spans:
            done[start:stop] = self._apply(kind, done[start:stop], numbers[start:stop])
        return torch.empty_like(images).index_copy_(0, groups.rows, done)

    def dense(self, images: Tensor, numbers: Tensor) -> Tensor:
        """The same at fixed shapes: one gather of pixels, one of grey levels, one blend."""
        if "warp" in self._is:
            images = self._apply("warp", images, numbers)
        tables = self._table("table", images, numbers)
        for kind in ("contrast", "autocontrast", "equalize"):
            if kind in self._is:
                tables = torch.where(self._chosen(kind, numbers, 2), self._table(kind, images, numbers), tables)
        images, other = apply_tables(images, tables), None
        for kind, make in _BLENDED.items():
            if kind in self._is:
                made = make(images)
                other = made if other is None else torch.where(self._chosen(kind, numbers, 3), made, other)
        return images if other is None else blend(images, other, *_weights(self.tables.blend, numbers, 3))

    def _apply(self, kind: str, images: Tensor, numbers: Tensor) -> Tensor:
        if kind == "warp":
            return warp(images, self.tables.source_pixels.index_select(0, numbers))
        if kind in _BLENDED:
            return blend(images, _BLENDED[kind](images), *_weights(self.tables.blend, numbers, 3))
        return apply_tables(images, self._table(kind, images, numbers))

    def _table(self, kind: str, images: Tensor, numbers: Tensor) -> Tensor:
        """(B, C or 1, 256) uint8."""
        if kind == "contrast":
            return contrast_table(images, *_weights(self.tables.contrast, numbers, 2))
        if kind == "table":
            return self.tables.levels.index_select(0, numbers).unsqueeze(1)
        return {"autocontrast": autocontrast_table, "equalize": equalize_table}[kind](images)

    def _chosen(self, kind: str, numbers: Tensor, trailing: int) -> Tensor:
        return self._is[kind].index_select(0, numbers).view(-1, *(1,) * trailing)


def _weights(pairs: Tensor, numbers: Tensor, trailing: int) -> tuple[Tensor, ...]:
    """The two weights of each image, (B, 1, ...) each."""
    return pairs.index_select(0, numbers).view(-1, 2, *(1,) * trailing).unbind(1)

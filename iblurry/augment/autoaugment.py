"""AutoAugment for a batch: the host draws a sub-policy per image, the device applies its two operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.augment.image_ops import (
    affine_matrix,
    apply_tables,
    autocontrast_table,
    blend,
    blend_weights,
    contrast_table,
    equalize_table,
    grey,
    level_table,
    smooth,
    source_pixels,
    warp,
)
from iblurry.augment.policies import POLICIES, SIGNED, magnitudes
from iblurry.errors import InputError

KIND = {  # operations of one kind are one computation
    "Identity": "nothing",
    **dict.fromkeys(("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"), "warp"),
    **dict.fromkeys(("Invert", "Posterize", "Solarize", "Brightness"), "table"),
    "Contrast": "contrast",
    "AutoContrast": "autocontrast",
    "Equalize": "equalize",
    "Color": "colour",
    "Sharpness": "sharpness",
}
KINDS = tuple(dict.fromkeys(KIND.values()))  # "nothing" is the first
BLENDED = {"colour": grey, "sharpness": smooth}
OPERATIONS = tuple(KIND)[1:]


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
        kinds = [KIND[op.operation] for op in image_ops]
        idle = [kind for kind, never in (("colour", channels == 1), ("sharpness", min(height, width) < 3)) if never]
        kinds = ["nothing" if kind in idle else kind for kind in kinds]
        self._kinds = np.array([KINDS.index(kind) for kind in kinds])
        self._is = {kind: torch.tensor([k == kind for k in kinds], device=device) for kind in set(kinds)}

        def rows(make: Callable[..., Tensor], nothing: Tensor, *wanted: str) -> Tensor:
            """One row per operation: what these kinds need, and for all others what changes nothing."""
            made = [make(*op) if kind in wanted else nothing for op, kind in zip(image_ops, kinds, strict=True)]
            return torch.stack(made).to(device)

        # (ops, H*W) int64
        self._source_pixels = rows(partial(_source_pixels, height, width), torch.arange(height * width), "warp")
        self._tables = rows(level_table, torch.arange(256, dtype=torch.uint8), "table")  # (ops, 256) uint8
        self._contrast = rows(_weights_of, blend_weights(0.0), "contrast")  # (ops, 2) float32
        self._blend = rows(_weights_of, blend_weights(0.0), *BLENDED)

    @property
    def tables(self) -> OpTables:
        """Returns the operations on the device, for a kernel that applies them."""
        kinds = torch.from_numpy(self._kinds).to(self._tables.device)
        return OpTables(kinds, self._source_pixels, self._tables, self._contrast, self._blend)

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
            groups = _first(groups, len(images))
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
        for kind, make in BLENDED.items():
            if kind in self._is:
                made = make(images)
                other = made if other is None else torch.where(self._chosen(kind, numbers, 3), made, other)
        return images if other is None else blend(images, other, *_weights(self._blend, numbers, 3))

    def _apply(self, kind: str, images: Tensor, numbers: Tensor) -> Tensor:
        if kind == "warp":
            return warp(images, self._source_pixels.index_select(0, numbers))
        if kind in BLENDED:
            return blend(images, BLENDED[kind](images), *_weights(self._blend, numbers, 3))
        return apply_tables(images, self._table(kind, images, numbers))

    def _table(self, kind: str, images: Tensor, numbers: Tensor) -> Tensor:
        """(B, C or 1, 256) uint8."""
        if kind == "contrast":
            return contrast_table(images, *_weights(self._contrast, numbers, 2))
        if kind == "table":
            return self._tables.index_select(0, numbers).unsqueeze(1)
        return {"autocontrast": autocontrast_table, "equalize": equalize_table}[kind](images)

    def _chosen(self, kind: str, numbers: Tensor, trailing: int) -> Tensor:
        return self._is[kind].index_select(0, numbers).view(-1, *(1,) * trailing)


def _first(groups: ImageGroups, n: int) -> ImageGroups:
    """The groups of the first n images alone."""
    kept = groups.order < n
    before = [0, *kept.cumsum().tolist()]
    order = groups.order[kept]
    spans = tuple((kind, before[start], before[stop]) for kind, start, stop in groups.spans)
    return ImageGroups(order, torch.from_numpy(order).to(groups.rows.device), tuple(s for s in spans if s[1] < s[2]))


def _source_pixels(height: int, width: int, operation: str, magnitude: float) -> Tensor:
    return torch.from_numpy(source_pixels(affine_matrix(operation, magnitude, height, width), height, width))


def _weights_of(operation: str, magnitude: float) -> Tensor:
    return blend_weights(magnitude)


def _weights(pairs: Tensor, numbers: Tensor, trailing: int) -> tuple[Tensor, ...]:
    """The two weights of each image, (B, 1, ...) each."""
    return pairs.index_select(0, numbers).view(-1, 2, *(1,) * trailing).unbind(1)

"""A batch in which every image has something else done to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.augment.colour import blend, grey, smooth
from iblurry.augment.histogram import autocontrast, equalize
from iblurry.augment.tables import contrast, factors, fixed, look_up
from iblurry.augment.warp import matrix, sources, warp

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


class ImageOp(NamedTuple):
    """An operation and how strongly it is applied."""

    operation: str
    magnitude: float = 0.0


class Groups(NamedTuple):
    """Which images share a kind; the host knows, so an eager step computes nothing it does not need."""

    order: NDArray[np.int64]  # (n,) on the host: the images, those of one kind together
    rows: Tensor  # (n,) int64: the same where the step runs
    spans: tuple[tuple[str, int, int], ...]  # kinds, and where they begin and end in it


class ImageOps:
    """A list of deeds, and two ways to do them to a batch that give the same bytes.

    `grouped` takes the images of each kind in turn; `dense` does every kind to all images at fixed shapes and keeps
    what is wanted, so it can run as a captured graph. uint8 in, uint8 out, as torchvision's AutoAugment (from 0.10)
    treats tensors: nearest pixels, black where there are none. A grey image has no colour to change, and one of two
    pixels nothing to sharpen: they stay as they are.
    """

    def __init__(
        self, image_ops: Sequence[ImageOp], shape: tuple[int, int, int], device: torch.device | str = "cpu"
    ) -> None:
        self.list = tuple(image_ops)
        channels, height, width = shape
        kinds = [KIND[deed.operation] for deed in image_ops]
        idle = [kind for kind, never in (("colour", channels == 1), ("sharpness", min(height, width) < 3)) if never]
        kinds = ["nothing" if kind in idle else kind for kind in kinds]
        self._kinds = np.array([KINDS.index(kind) for kind in kinds])
        self._is = {kind: torch.tensor([k == kind for k in kinds], device=device) for kind in set(kinds)}

        def rows(make: Callable[..., Tensor], nothing: Tensor, *wanted: str) -> Tensor:
            """One row per deed: what these kinds need, and for all others what changes nothing."""
            made = [make(*deed) if kind in wanted else nothing for deed, kind in zip(image_ops, kinds, strict=True)]
            return torch.stack(made).to(device)

        self._sources = rows(partial(_sources, height, width), torch.arange(height * width), "warp")  # (deeds, H*W)
        self._tables = rows(fixed, torch.arange(256, dtype=torch.uint8), "table")  # (deeds, 256) uint8
        self._contrast = rows(_factors, factors(0.0), "contrast")  # (deeds, 2) float32
        self._blend = rows(_factors, factors(0.0), *BLENDED)

    def groups(self, numbers: NDArray[np.int64]) -> list[Groups]:
        """(batches, n) -> for each batch, which of its images share a kind."""
        kinds = self._kinds[numbers]
        order = kinds.argsort(axis=1, kind="stable")
        ends = (kinds[:, :, None] <= np.arange(len(KINDS))).sum(1).tolist()
        spans = [
            tuple(span for span in zip(KINDS[1:], end, end[1:], strict=False) if span[1] < span[2]) for end in ends
        ]
        return [Groups(*group) for group in zip(order, torch.from_numpy(order).unbind(), spans, strict=True)]

    def grouped(self, images: Tensor, numbers: Tensor, groups: Groups) -> Tensor:
        """(B, C, H, W) uint8, (B,) the deed of each image -> (B, C, H, W) uint8; of larger groups the first B count."""
        if len(images) < len(groups.order):
            groups = _first(groups, len(images))
        done, numbers = images.index_select(0, groups.rows), numbers.index_select(0, groups.rows)
        for kind, start, stop in groups.spans:
            done[start:stop] = self._do(kind, done[start:stop], numbers[start:stop])
        return torch.empty_like(images).index_copy_(0, groups.rows, done)

    def dense(self, images: Tensor, numbers: Tensor) -> Tensor:
        """The same at fixed shapes: one gather of pixels, one of grey levels, one blend."""
        if "warp" in self._is:
            images = self._do("warp", images, numbers)
        tables = self._table("table", images, numbers)
        for kind in ("contrast", "autocontrast", "equalize"):
            if kind in self._is:
                tables = torch.where(self._chosen(kind, numbers, 2), self._table(kind, images, numbers), tables)
        images, other = look_up(images, tables), None
        for kind, make in BLENDED.items():
            if kind in self._is:
                made = make(images)
                other = made if other is None else torch.where(self._chosen(kind, numbers, 3), made, other)
        return images if other is None else blend(images, other, *_shares(self._blend, numbers, 3))

    def _do(self, kind: str, images: Tensor, numbers: Tensor) -> Tensor:
        if kind == "warp":
            return warp(images, self._sources.index_select(0, numbers))
        if kind in BLENDED:
            return blend(images, BLENDED[kind](images), *_shares(self._blend, numbers, 3))
        return look_up(images, self._table(kind, images, numbers))

    def _table(self, kind: str, images: Tensor, numbers: Tensor) -> Tensor:
        """(B, C or 1, 256) uint8."""
        if kind == "contrast":
            return contrast(images, *_shares(self._contrast, numbers, 2))
        if kind == "table":
            return self._tables.index_select(0, numbers).unsqueeze(1)
        return {"autocontrast": autocontrast, "equalize": equalize}[kind](images)

    def _chosen(self, kind: str, numbers: Tensor, trailing: int) -> Tensor:
        return self._is[kind].index_select(0, numbers).view(-1, *(1,) * trailing)


def _first(groups: Groups, n: int) -> Groups:
    """The groups without the images from n on."""
    kept = groups.order < n
    before = [0, *kept.cumsum().tolist()]
    order = groups.order[kept]
    spans = tuple((kind, before[start], before[stop]) for kind, start, stop in groups.spans)
    return Groups(order, torch.from_numpy(order).to(groups.rows.device), tuple(s for s in spans if s[1] < s[2]))


def _sources(height: int, width: int, operation: str, magnitude: float) -> Tensor:
    return torch.from_numpy(sources(matrix(operation, magnitude, height, width), height, width))


def _factors(operation: str, magnitude: float) -> Tensor:
    return factors(magnitude)


def _shares(pairs: Tensor, numbers: Tensor, trailing: int) -> tuple[Tensor, ...]:
    """Two of (B, 1, ...)."""
    return pairs.index_select(0, numbers).view(-1, 2, *(1,) * trailing).unbind(1)

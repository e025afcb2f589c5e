"""Contact sheets: example images of each class of a data set, and what augmentation makes of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.rng import Rng

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

    from iblurry.augment.transform import Transform

_PAPER, _INK, _FAINT, _RULE = "#ffffff", "#1c2024", "#80868b", "#e6e8eb"
_MARGIN, _SPACE, _CAPTION = 24, 6, 16  # pixels: around the sheet, between images, and for words under an image
_HEADER = 62  # pixels of the title and the line below it
ImageArray = NDArray[np.uint8]  # (n, C, H, W)


class _Row(NamedTuple):
    name: str
    images: ImageArray
    note: str = ""  # under the name
    captions: Sequence[str] = ()  # under the images


def dataset_sheet(dataset: Dataset, *, columns: int = 12) -> Image:
    """Training images spread evenly over each class, one row for each, with its name and its counts."""
    many = len(dataset.classes)
    train, test = (np.bincount(part.labels, minlength=many) for part in (dataset.train, dataset.test))
    rows = []
    for label, name in enumerate(dataset.classes):
        own = np.flatnonzero(dataset.train.labels == label)
        count = min(columns, len(own))
        images = dataset.train.images[own[np.arange(count) * len(own) // max(count, 1)]]
        rows.append(_Row(name, images, f"{train[label]:,} / {test[label]:,}"))
    channels, height, width = dataset.shape
    subtitle = (
        f"{many} classes   {len(dataset.train):,} training and {len(dataset.test):,} test images   "
        f"{width} x {height} pixels, {channels} channel{'s' if channels > 1 else ''}"
    )
    return _draw(rows, dataset.shape, columns, side=56, title=dataset.name, subtitle=subtitle)


def augmentation_sheet(images: ImageArray, rng: Rng, transforms: Sequence[Transform] = ()) -> Image:
    """A picture of what augmentation does to images.

    Of AutoAugment, signed operations are shown from strongly negative to strongly positive, after the image as it is;
    operations without a magnitude as pairs, before and after.

    Parameters
    ----------
    images : array
        (N, C, H, W) uint8, grey or colour.
    rng : Rng
        Chooses the images and what is drawn for them.
    transforms : sequence of Transform
        A row for each, an image as it is and ten draws; empty: the rows of AutoAugment.
    """
    from iblurry.augment.autoaugment import BINS, OPERATIONS, POLICIES

    rows = [_transform(transform, at, images, rng) for at, transform in enumerate(transforms)] or [
        *(_operation(name, images, rng) for name in OPERATIONS),
        *(_policy(name, images, rng) for name in POLICIES),
    ]
    return _draw(rows, images.shape[1:], BINS + 1, side=64)


def _operation(name: str, images: ImageArray, rng: Rng) -> _Row:
    import torch

    from iblurry.augment.autoaugment import BINS, SIGNED, ImageOp, ImageOps, magnitudes

    strengths = magnitudes(*images.shape[2:]).get(name)
    if strengths is None:
        chosen = images[[rng.integer(f"sheet {name}", i, len(images)) for i in range(BINS // 2)]].repeat(2, axis=0)
        captions = ["before", "after"] * (BINS // 2)
        image_ops = [ImageOp("Identity"), ImageOp(name)] * (BINS // 2)
    else:
        chosen = images[[rng.integer(f"sheet {name}", 0, len(images))] * (BINS + 1)]
        signs = range(1 - BINS, BINS, 2) if name in SIGNED else range(BINS)
        values = [strengths[abs(at)] * (-1 if at < 0 else 1) for at in signs]
        captions = ["", *(f"{value:.3g}" for value in values)]
        image_ops = [ImageOp("Identity"), *(ImageOp(name, value) for value in values)]
    numbers = torch.arange(len(image_ops))
    done = ImageOps(image_ops, images.shape[1:]).dense(torch.from_numpy(chosen), numbers)
    return _Row(name, done.numpy(), captions=captions)


def _policy(name: str, images: ImageArray, rng: Rng) -> _Row:
    """Ten draws for one image."""
    import torch

    from iblurry.augment.autoaugment import BINS, AutoAugment
    from iblurry.augment.transform import UNIFORMS

    chosen = images[[rng.integer(f"sheet {name}", 0, len(images))] * (BINS + 1)]
    auto = AutoAugment(name, images.shape[1:])
    numbers = auto.draw(rng.uniforms(f"sheet draws {name}", 0, UNIFORMS * BINS).reshape(UNIFORMS, BINS))
    numbers = np.concatenate([np.zeros((2, 1), dtype=np.int64), numbers], axis=1)
    return _Row(name, auto(torch.from_numpy(chosen), torch.from_numpy(numbers), None).numpy())


def _transform(transform: Transform, at: int, images: ImageArray, rng: Rng) -> _Row:
    """Ten draws for one image, as training sees it but for CutMix."""
    import torch

    from iblurry.augment.autoaugment import BINS
    from iblurry.augment.pipeline import Pipeline

    name, channels = type(transform).__name__, images.shape[1]
    chosen = torch.from_numpy(images[[rng.integer(f"sheet {name}", at, len(images))] * (BINS + 1)])
    pipeline = Pipeline(transform, images.shape[1:], [0.5] * channels, [0.25] * channels)
    varied = pipeline.vary(chosen[1:], pipeline.draw_params(rng, at, BINS, "sheet"))
    pixels = (varied * 0.25 + 0.5).mul(255).round().clamp(0, 255).to(torch.uint8)
    return _Row(name, torch.cat([chosen[:1], pixels]).numpy())


def _draw(
    rows: Sequence[_Row], shape: tuple[int, int, int], columns: int, *, side: int, title: str = "", subtitle: str = ""
) -> Image:
    """A row of images with a name at its left; an image is enlarged by a whole factor, so that pixels stay square."""
    from PIL import Image, ImageDraw

    _, height, width = shape
    factor = max(1, round(side / max(height, width)))
    size = width * factor, height * factor
    head, big, small = _font(22, bold=True), _font(15), _font(12)
    words = [*(big.getlength(row.name) for row in rows), *(small.getlength(row.note) for row in rows)]
    left = _MARGIN + int(max(words)) + 20
    top = _MARGIN + (_HEADER if title else 0)
    down = max(size[1] + _CAPTION * any(row.captions for row in rows), 36) + _SPACE
    right = left + columns * (size[0] + _SPACE) - _SPACE
    right = max(right, _MARGIN + int(max(head.getlength(title), small.getlength(subtitle))))
    sheet = Image.new("RGB", (right + _MARGIN, top + len(rows) * down - _SPACE + _MARGIN), _PAPER)
    pen = ImageDraw.Draw(sheet)
    if title:
        pen.text((_MARGIN, _MARGIN - 6), title, font=head, fill=_INK)
        pen.text((_MARGIN, _MARGIN + 26), subtitle, font=small, fill=_FAINT)
        pen.line((_MARGIN, top - 12, right, top - 12), fill=_RULE)
    for at, row in enumerate(rows):
        y, middle = top + at * down, top + at * down + size[1] // 2
        pen.text((_MARGIN, middle - 1), row.name, font=big, fill=_INK, anchor="ld" if row.note else "lm")
        pen.text((_MARGIN, middle + 2), row.note, font=small, fill=_FAINT, anchor="la")
        for column, image in enumerate(row.images):
            x = left + column * (size[0] + _SPACE)
            plane = image.transpose(1, 2, 0) if len(image) == 3 else image[0]
            tile = Image.fromarray(np.ascontiguousarray(plane)).resize(size, Image.Resampling.NEAREST)
            sheet.paste(tile.convert("RGB"), (x, y))
            if row.captions:
                place = (x + size[0] // 2, y + size[1] + 2)
                pen.text(place, row.captions[column], font=small, fill=_FAINT, anchor="ma")
    return sheet


def _font(size: int, *, bold: bool = False) -> FreeTypeFont:
    import matplotlib
    from PIL import ImageFont

    # matplotlib ships DejaVu, so names in Latin, Greek and Cyrillic look the same on every machine
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)

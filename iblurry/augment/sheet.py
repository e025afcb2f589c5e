"""A contact sheet: AutoAugment's operations at ten magnitudes and draws from both policies, or draws of transforms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from iblurry.augment.augment import UNIFORMS
from iblurry.augment.autoaugment import OPERATIONS, AutoAugment, ImageOp, ImageOps
from iblurry.augment.pipeline import Pipeline
from iblurry.augment.policies import BINS, POLICIES, SIGNED, magnitudes
from iblurry.augment.transform import Transform
from iblurry.rng import Rng

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

PAPER, INK, FAINT = "#ffffff", "#1c2024", "#80868b"
MARGIN, GAP, LABEL, CAPTION = 24, 6, 132, 16
ImageArray = NDArray[np.uint8]  # (n, C, H, W)


class _Row(NamedTuple):
    name: str
    images: ImageArray
    captions: list[str]


def contact_sheet(images: ImageArray, rng: Rng, transforms: Sequence[Transform] = ()) -> Image:
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
    from PIL import Image, ImageDraw

    rows = [_transform(transform, at, images, rng) for at, transform in enumerate(transforms)] or [
        *(_operation(name, images, rng) for name in OPERATIONS),
        *(_policy(name, images, rng) for name in POLICIES),
    ]
    height, width = images.shape[2:]
    factor = max(1, round(64 / max(height, width)))
    across, down = width * factor + GAP, height * factor + CAPTION + GAP
    size = (2 * MARGIN + LABEL + (BINS + 1) * across - GAP, 2 * MARGIN + len(rows) * down - GAP)
    sheet = Image.new("RGB", size, PAPER)
    pen, big, small = ImageDraw.Draw(sheet), _font(15), _font(11)
    for at, row in enumerate(rows):
        y = MARGIN + at * down
        pen.text((MARGIN, y + height * factor // 2), row.name, font=big, fill=INK, anchor="lm")
        for column, (image, caption) in enumerate(zip(row.images, row.captions, strict=True)):
            x = MARGIN + LABEL + column * across
            shown = Image.fromarray(np.ascontiguousarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)))
            sheet.paste(
                shown.resize((width * factor, height * factor), Image.Resampling.NEAREST).convert("RGB"), (x, y)
            )
            pen.text((x + width * factor // 2, y + height * factor + 2), caption, font=small, fill=FAINT, anchor="ma")
    return sheet


def _operation(name: str, images: ImageArray, rng: Rng) -> _Row:
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
    return _Row(name, done.numpy(), captions)


def _policy(name: str, images: ImageArray, rng: Rng) -> _Row:
    """Ten draws for one image."""
    chosen = images[[rng.integer(f"sheet {name}", 0, len(images))] * (BINS + 1)]
    auto = AutoAugment(name, images.shape[1:])
    numbers = auto.draw(rng.uniforms(f"sheet draws {name}", 0, UNIFORMS * BINS).reshape(UNIFORMS, BINS))
    numbers = np.concatenate([np.zeros((2, 1), dtype=np.int64), numbers], axis=1)
    return _Row(name, auto(torch.from_numpy(chosen), torch.from_numpy(numbers), None).numpy(), [""] * (BINS + 1))


def _transform(transform: Transform, at: int, images: ImageArray, rng: Rng) -> _Row:
    """Ten draws for one image, as training sees it but for CutMix."""
    name, channels = type(transform).__name__, images.shape[1]
    chosen = torch.from_numpy(images[[rng.integer(f"sheet {name}", at, len(images))] * (BINS + 1)])
    pipeline = Pipeline(transform, images.shape[1:], [0.5] * channels, [0.25] * channels)
    varied = pipeline.vary(chosen[1:], pipeline.draw_params(rng, at, BINS, "sheet"))
    pixels = (varied * 0.25 + 0.5).mul(255).round().clamp(0, 255).to(torch.uint8)
    return _Row(name, torch.cat([chosen[:1], pixels]).numpy(), [""] * (BINS + 1))


def _font(size: int) -> FreeTypeFont:
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), size)

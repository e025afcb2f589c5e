"""A contact sheet: one row of example images per class, with its name and counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from iblurry.data.dataset import Dataset
from iblurry.errors import InputError
from iblurry.storage.files import replacing

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

PAPER, INK, FAINT, RULE = "#ffffff", "#1c2024", "#80868b", "#e6e8eb"
MARGIN, GAP, NAME_SIZE, SMALL = 24, 4, 16, 12


def save_sheet(dataset: Dataset, path: Path, *, columns: int = 12) -> None:
    """Writes the contact sheet as a PNG."""
    if path.suffix.lower() != ".png":
        raise InputError(f"A contact sheet is a PNG; give a file name ending in .png, not {path.name!r}.")
    picture = contact_sheet(dataset, columns=columns)
    with replacing(path) as part:
        picture.save(part)


def contact_sheet(dataset: Dataset, *, columns: int = 12) -> Image:
    """Training images spread evenly over each class, enlarged by a whole factor so that pixels stay square."""
    from PIL import Image, ImageDraw

    _, height, width = dataset.shape
    factor = max(1, round(56 / max(height, width)))
    cell_w, cell_h = width * factor, height * factor
    row_h = max(cell_h, NAME_SIZE + SMALL + 8) + GAP
    big, name_font, small = _font(22, bold=True), _font(NAME_SIZE), _font(SMALL)

    title, subtitle = dataset.name, _subtitle(dataset)
    notes = _notes(dataset)
    label_w = int(max(name_font.getlength(name) for name in dataset.classes))
    label_w = max(label_w, int(max(small.getlength(note) for note in notes))) + 20
    top = MARGIN + 62
    total_w = 2 * MARGIN + label_w + columns * (cell_w + GAP) - GAP
    total_w = max(total_w, 2 * MARGIN + int(max(big.getlength(title), small.getlength(subtitle))))
    sheet = Image.new("RGB", (total_w, top + len(dataset.classes) * row_h + MARGIN - GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, MARGIN - 6), title, font=big, fill=INK)
    pen.text((MARGIN, MARGIN + 26), subtitle, font=small, fill=FAINT)
    pen.line((MARGIN, top - 12, total_w - MARGIN, top - 12), fill=RULE)
    for label, name in enumerate(dataset.classes):
        y = top + label * row_h
        middle = y + (row_h - GAP) // 2
        pen.text((MARGIN, middle - 1), name, font=name_font, fill=INK, anchor="ld")
        pen.text((MARGIN, middle + 2), notes[label], font=small, fill=FAINT, anchor="la")
        for column, row in enumerate(_examples(dataset, label, columns)):
            tile = _tile(dataset.train.images[row], (cell_w, cell_h))
            sheet.paste(tile, (MARGIN + label_w + column * (cell_w + GAP), y + (row_h - GAP - cell_h) // 2))
    return sheet


def _subtitle(dataset: Dataset) -> str:
    channels, height, width = dataset.shape
    return (
        f"{len(dataset.classes)} classes   {len(dataset.train):,} training and {len(dataset.test):,} test images   "
        f"{width} x {height} pixels, {channels} channel{'s' if channels > 1 else ''}"
    )


def _notes(dataset: Dataset) -> list[str]:
    many = len(dataset.classes)
    train, test = (np.bincount(part.labels, minlength=many) for part in (dataset.train, dataset.test))
    return [f"{train[label]:,} / {test[label]:,}" for label in range(many)]


def _examples(dataset: Dataset, label: int, columns: int) -> list[int]:
    rows = np.flatnonzero(dataset.train.labels == label)
    count = min(columns, len(rows))
    return [int(row) for row in rows[np.arange(count) * len(rows) // max(count, 1)]]


def _tile(image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], size: tuple[int, int]) -> Image:
    from PIL import Image as Pillow

    shown = image[0] if len(image) != 3 else image.transpose(1, 2, 0)
    return Pillow.fromarray(np.ascontiguousarray(shown)).resize(size, Pillow.Resampling.NEAREST).convert("RGB")


def _font(size: int, *, bold: bool = False) -> FreeTypeFont:
    import matplotlib
    from PIL import ImageFont

    # matplotlib ships DejaVu, so names in Latin, Greek and Cyrillic look the same on every machine
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)

"""A small data set whose pictures stay on the disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.data.images import PictureFiles

COUNT, SHAPE = 40, (3, 5, 5)


def lazy_data(folder: Path) -> Dataset:
    rng = np.random.default_rng(0)
    names = [f"picture {number} ä.png" for number in range(COUNT)]
    for name in names:
        Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).save(folder / name)
    part = LabelledImages(PictureFiles(folder, names, SHAPE), np.arange(COUNT) % 4)
    return Dataset("lazy", ("a", "b", "c", "d"), part, part, (0.5,) * 3, (0.5,) * 3)

"""Your own pictures, in folders by class: this draws some, looks at them as a data set, and learns them as a stream.

python examples/image_folder.py            # draws pictures/ first
python examples/image_folder.py my_photos  # my_photos/train/<class>/*, my_photos/test/<class>/*
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from iblurry import Experiment, IBlurry, load, run

SIDE = 16  # pictures are resized to SIDE x SIDE


def draw(folder: Path) -> None:
    """Discs, squares, rings and bars of any colour, somewhere on a dark noisy ground."""
    rng = np.random.default_rng(0)
    shapes = {
        "disc": lambda on, box, colour: on.ellipse(box, fill=colour),
        "square": lambda on, box, colour: on.rectangle(box, fill=colour),
        "ring": lambda on, box, colour: on.ellipse(box, outline=colour, width=3),
        "bar": lambda on, box, colour: on.line(box, fill=colour, width=4),
    }
    for part, count in (("train", 60), ("test", 20)):
        for name, shape in shapes.items():
            (folder / part / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                picture = Image.fromarray(rng.integers(0, 90, (32, 32, 3), dtype=np.uint8))
                x, y, side = rng.integers((1, 1, 14), (11, 11, 20)).tolist()
                shape(ImageDraw.Draw(picture), (x, y, x + side, y + side), tuple(rng.integers(120, 256, 3).tolist()))
                picture.save(folder / part / name / f"{number:03}.png")


def main(folder: str | None = None) -> None:
    if folder is None:
        folder = "pictures"
        draw(Path(folder))
    spec = f"folder:{folder},size={SIDE}"
    data = load(spec)
    print(f"{len(data.train)} training and {len(data.test)} test pictures of {', '.join(data.classes)}")
    for method in ("er", "clib"):
        stream = IBlurry(tasks=2, mode="uneven")  # uneven: any number of classes
        result = run(Experiment.of(method, spec, stream=stream, memory=40, network="convnet", seed=1), out="runs")
        print(f"{method:5} A_AUC {100 * result.metrics.a_auc:.1f} %, A_last {100 * result.metrics.a_last:.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])

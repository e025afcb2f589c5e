"""`iblurry live ask`: predictions of a live service for pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.live.connect import connect, service_options
from iblurry.cli.options import json_option
from iblurry.errors import DataError

if TYPE_CHECKING:
    from iblurry.live.client import Prediction


@click.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...", type=click.Path(path_type=Path))
@click.option("--top", metavar="K", type=click.IntRange(1), default=5, help="Labels for each image.")
@service_options
@json_option
def ask(images: tuple[Path, ...], top: int, url: str, token: str | None, as_json: bool) -> None:
    """Ask a live service what IMAGEs show.

    An IMAGE is a picture (.png, .jpg, ...) or an .npy file: bytes (C, H, W), or several as (N, C, H, W). The right
    label can be sent later by the answer's id: `iblurry live correct label ID LABEL`. An answer is `unknown`
    where it is less probable than nearly all answers to samples of known classes were (see `serve --unknown-rate`).
    """
    with connect(url, token) as client:
        shape = tuple(client.status()["image"])
        named = [pair for path in images for pair in _read_images(path, shape)]
        predictions = client.predict([image for _, image in named], top)
    results = list(zip([name for name, _ in named], predictions, strict=True))
    if as_json:
        click.echo(json.dumps([_to_json(name, prediction) for name, prediction in results], indent=2))
    else:
        _print(results)


def _read_images(path: Path, shape: tuple[int, ...]) -> list[tuple[str, Any]]:
    """The images of a file, each with a name."""
    from iblurry.cli.live.samples import fit

    if path.suffix != ".npy":
        return [(str(path), fit(path, shape))]
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} is not a readable .npy file of plain numbers; write it with numpy.save.") from error
    return [(f"{path}[{row}]", image) for row, image in enumerate(array)] if array.ndim == 4 else [(str(path), array)]


def _to_json(name: str, prediction: Prediction) -> dict[str, Any]:
    return {
        "image": name,
        "label": prediction.label,
        "probability": prediction.probability,
        "unknown": prediction.unknown,
        "threshold": prediction.threshold,
        "top": [each._asdict() for each in prediction.top],
        "model": prediction.model,
        "id": prediction.id,
    }


def _print(results: Sequence[tuple[str, Prediction]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("image", overflow="fold")
    table.add_column("label", overflow="fold")
    table.add_column("probability", justify="right")
    table.add_column("id")
    for name, prediction in results:
        rows = [(Text(label), f"{100 * probability:.1f} %") for label, probability in prediction.top]
        if prediction.unknown:
            rows.insert(0, (Text("unknown", style="italic"), f"below {100 * (prediction.threshold or 0):.1f} %"))
        for rank, row in enumerate(rows):
            first, last = ("", "") if rank else (name, prediction.id)
            table.add_row(Text(first), *row, last)
    Console(highlight=False).print(table)
    models = sorted({prediction.model for _, prediction in results})
    click.echo(f"Samples the model had learnt: {', '.join(f'{model:,}' for model in models)}")

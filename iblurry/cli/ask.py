"""`iblurry ask`: what a live service makes of pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.calling import connected, service_options
from iblurry.cli.values import Whole
from iblurry.errors import DataError

if TYPE_CHECKING:
    from iblurry.live.client import Answer


@click.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...", type=click.Path(path_type=Path))
@click.option("--top", metavar="K", type=Whole(1), default=5, show_default=True, help="Labels for each image.")
@service_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def ask(images: tuple[Path, ...], top: int, url: str, token: str | None, as_json: bool) -> None:
    """Ask a live service what IMAGEs show.

    An IMAGE is a picture (.png, .jpg, ...) or an .npy file: bytes (C, H, W), or several as (N, C, H, W).
    """
    with connected(url, token) as client:
        shape = tuple(client.status()["image"])
        named = [pair for path in images for pair in _images(path, shape)]
        answers = client.predict([image for _, image in named], top)
    about = list(zip([name for name, _ in named], answers, strict=True))
    if as_json:
        click.echo(json.dumps([_facts(name, answer) for name, answer in about], indent=2))
    else:
        _print(about)


def _images(path: Path, shape: tuple[int, ...]) -> list[tuple[str, Any]]:
    """What a file holds, each with a name."""
    from iblurry.cli.fitting import fitted

    if path.suffix != ".npy":
        return [(str(path), fitted(path, shape))]
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} is not a readable .npy file of plain numbers; write it with numpy.save.") from error
    return [(f"{path}[{row}]", one) for row, one in enumerate(array)] if array.ndim == 4 else [(str(path), array)]


def _facts(name: str, answer: Answer) -> dict[str, Any]:
    return {
        "image": name,
        "label": answer.label,
        "probability": answer.probability,
        "top": [guess._asdict() for guess in answer.top],
        "model": answer.model,
    }


def _print(about: Sequence[tuple[str, Answer]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("image", overflow="fold")
    table.add_column("label", overflow="fold")
    table.add_column("probability", justify="right")
    for name, answer in about:
        for place, guess in enumerate(answer.top):
            table.add_row(Text(name if not place else ""), Text(guess.label), f"{100 * guess.probability:.1f} %")
    Console(highlight=False).print(table)
    models = sorted({answer.model for _, answer in about})
    click.echo(f"Samples the model had learnt: {', '.join(f'{model:,}' for model in models)}")

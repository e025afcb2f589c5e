"""`iblurry live restore`: the folder of a live service from a backup."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iblurry.cli.options import PLACE, OutputFolder, json_option
from iblurry.errors import counted

EXAMPLES = """\b
Examples:
  iblurry live restore live-monday.tar live-again
  iblurry live serve --data-dir live-again
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=PLACE)
@click.argument("folder", type=OutputFolder())
@json_option
def restore(file: Path, folder: Path, as_json: bool) -> None:
    """Make FOLDER, new or empty, the live service that `iblurry live backup` wrote to FILE.

    The checkpoint and the log are checked first; of a file that is damaged nothing is left.
    """
    from iblurry.live.transfer import restore as make

    samples = make(file, folder)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "samples": samples}, indent=2))
        return
    click.echo(
        f"{folder}: {counted(samples, 'sample')} accepted; continue with `iblurry live serve --data-dir {folder}`"
    )

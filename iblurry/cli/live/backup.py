"""`iblurry live backup` and `restore`: a live service as one file, also while it runs, and back."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iblurry.cli.options import PLACE, OutputFile, OutputFolder, json_option
from iblurry.errors import counted

EXAMPLES = """\b
Examples:
  iblurry live backup live live-monday.tar
  iblurry live restore live-monday.tar live-again
  iblurry live serve --data-dir live-again
"""


@click.command(epilog=EXAMPLES)
@click.argument("folder", type=PLACE)
@click.argument("file", type=OutputFile(".tar"))
@json_option
def backup(folder: Path, file: Path, as_json: bool) -> None:
    """Write the live service in FOLDER to FILE, NAME.tar, while it runs or not.

    All that it has accepted until then is in it: settings, the newest checkpoint, and the log of samples that wait.
    `iblurry live restore` makes a folder of it again, and `iblurry live serve` continues there exactly.
    """
    from iblurry.live import transfer

    samples = transfer.backup(folder, file)
    size = file.stat().st_size
    if as_json:
        click.echo(json.dumps({"file": str(file), "bytes": size, "samples": samples}, indent=2))
        return
    click.echo(f"{file}: {folder} after {counted(samples, 'sample')}, {size / 2**20:,.1f} MiB")


@click.command(epilog=EXAMPLES)
@click.argument("file", type=PLACE)
@click.argument("folder", type=OutputFolder())
@json_option
def restore(file: Path, folder: Path, as_json: bool) -> None:
    """Make FOLDER, new or empty, the live service that `iblurry live backup` wrote to FILE.

    The checkpoint and the log are checked first; of a file that is damaged nothing is left.
    """
    from iblurry.live import transfer

    samples = transfer.restore(file, folder)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "samples": samples}, indent=2))
        return
    click.echo(
        f"{folder}: {counted(samples, 'sample')} accepted; continue with `iblurry live serve --data-dir {folder}`"
    )

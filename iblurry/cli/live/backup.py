"""`iblurry live backup`: a live service as one file, also while it runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iblurry.cli.options import PLACE, OutputFile, json_option
from iblurry.errors import counted

EXAMPLES = """\b
Examples:
  iblurry live backup live live-monday.tar
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
    from iblurry.live.transfer import backup as write

    samples = write(folder, file)
    size = file.stat().st_size
    if as_json:
        click.echo(json.dumps({"file": str(file), "bytes": size, "samples": samples}, indent=2))
        return
    click.echo(f"{file}: {folder} after {counted(samples, 'sample')}, {size / 2**20:,.1f} MiB")

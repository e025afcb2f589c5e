"""`iblurry export`: the learner of a run as one file, to answer or to learn on without the run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iblurry.cli.options import PLACE, OutputFile, import_option

EXAMPLES = """\b
Examples:
  iblurry export runs/clib-digits-1-0123456789ab model.pt2
  iblurry export runs/clib-digits-1-0123456789ab model.onnx
  iblurry export runs/clib-digits-1-0123456789ab learner.safetensors
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", type=PLACE)
@click.argument("file", type=OutputFile(".pt2", ".onnx", ".safetensors"))
@import_option
@click.option("--data-home", metavar="FOLDER", type=PLACE, help="Where imported data live, as in `iblurry data`.")
@click.option("--device", metavar="NAME", default="cpu", help="Where a method that trains before it answers does so.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a line.")
def export(run: Path, file: Path, data_home: Path | None, device: str, as_json: bool) -> None:
    """Write what the last checkpoint of RUN has learnt to FILE.

    NAME.pt2 (torch.export) and NAME.onnx hold the network that answers, with normalisation and class names inside; they
    need no iblurry. NAME.safetensors holds the whole learner: Learner.load goes on with it.
    """
    from iblurry.data.load import load
    from iblurry.engine.devices import make_engine
    from iblurry.experiment.folder import RunFolder
    from iblurry.experiment.saved_learner import saved_learner
    from iblurry.export import check_ending

    if file.suffix != ".safetensors":
        check_ending(file)
    folder = RunFolder(run)
    learner = saved_learner(folder, load(folder.experiment().dataset, data_home), make_engine(device))
    if file.suffix == ".safetensors":
        learner.save(file)
    else:
        learner.export(file)
    samples, classes = learner.context.seen, len(learner.labels)
    if as_json:
        about = {"file": str(file), "bytes": file.stat().st_size, "samples": samples, "classes": learner.labels}
        click.echo(json.dumps(about, indent=2))
        return
    click.echo(f"{file}: {learner.method.name} after {samples:,} samples, {classes} classes")

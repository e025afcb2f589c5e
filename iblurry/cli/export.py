"""`iblurry export`: the learner of a run or service as one file, to answer or to learn on elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from iblurry.cli.options import PLACE, OutputFile, import_option, json_option, tell
from iblurry.errors import counted

EXAMPLES = """\b
Examples:
  iblurry export runs/clib-digits-1-0123456789ab model.pt2
  iblurry export runs/clib-digits-1-0123456789ab model.onnx
  iblurry export live learner.safetensors
"""


@click.command(epilog=EXAMPLES)
@click.argument("folder", type=PLACE)
@click.argument("file", type=OutputFile(".pt2", ".onnx", ".safetensors"))
@import_option
@click.option("--device", metavar="NAME", default="cpu", help="Where a method that trains before it answers does so.")
@json_option
def export(folder: Path, file: Path, device: str, as_json: bool) -> None:
    """Write what the last checkpoint of a run or service in FOLDER has learnt to FILE.

    NAME.pt2 (torch.export) and NAME.onnx hold the network that answers, with normalisation and class names inside; they
    need no iblurry. NAME.safetensors holds the whole learner, for Learner.load.
    """
    from iblurry.engine.devices import make_engine
    from iblurry.learner.export import check_ending
    from iblurry.learner.learner import Learner
    from iblurry.live.log import accepted_in

    if file.suffix != ".safetensors":
        check_ending(file)
    learner = Learner.load(folder, device=device, precision=make_engine(device).precision)
    if file.suffix == ".safetensors":
        learner.save(file)
    else:
        learner.export(file)
    samples, accepted = learner.context.seen, accepted_in(folder)
    about = {"file": str(file), "bytes": file.stat().st_size, "samples": samples, "classes": learner.labels}
    learnt = f"{counted(samples, 'sample')}, {counted(len(learner.labels), 'class')}"
    less = f"; the service has accepted {accepted}: ask it for the model, or stop it first"
    tell(
        about if accepted is None else about | {"accepted": accepted},
        f"{file}: {learner.method.name} after {learnt}{less if accepted and accepted > samples else ''}",
        as_json=as_json,
    )

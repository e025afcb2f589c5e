"""`iblurry live serve`: a service that learns what it is sent and answers meanwhile."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.live.connect import token_option
from iblurry.cli.options import PLACE, GroupedCommand, OutputFolder, Shape, import_option
from iblurry.errors import InputError
from iblurry.live import log_lines
from iblurry.storage.files import private_files

if TYPE_CHECKING:
    from iblurry.live.settings import Settings

LIBRARIES = ("fastapi", "uvicorn", "httptools", "prometheus_client")  # the extra `live`
GROUPS = {
    "Learning (an existing folder keeps its settings)": (
        *("method", "network", "memory", "image", "max_classes", "seed", "updates_per_sample", "batch"),
        *("measure_every", "initialise", "freeze", "augment", "modules"),
    ),
    "Places": ("data_dir", "begin", "host", "port", "token", "token_file", "as_json"),
    "Machine": ("device", "threads", "queue", "idle_updates", "unknown_rate", "log_level", "log_format"),
}
POSITIVE = click.IntRange(1)
IDLE_UPDATES = 5000  # some minutes of a small network on one core
EXAMPLES = """\b
Examples:
  iblurry live serve
  iblurry live serve --data-dir pets --network resnet18 --image 3x64x64
  iblurry live serve --data-dir pets
  iblurry live serve --data-dir pets --from runs/clib-pets-1-0123456789ab
  iblurry live serve --data-dir mine --import mine.py --network my_net
"""


@click.command(cls=GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@click.option("--method", metavar="NAME", help="See `iblurry methods`.  [default: clib]")
@click.option("--network", metavar="NAME", help="convnet, mlp, resnet18, resnet34, or your own.  [default: convnet]")
@click.option("--memory", metavar="K", type=POSITIVE, help="How many samples may be stored.  [default: 500]")
@click.option("--image", metavar="CxHxW", type=Shape(), help="Channels, height, width.  [default: 3x32x32]")
@click.option("--max-classes", metavar="N", type=POSITIVE, help="Maximum number of labels.  [default: 100]")
@click.option("--seed", metavar="S", type=click.IntRange(0), help="Seed of all random numbers.  [default: 1]")
@click.option("--updates-per-sample", metavar="U", help="Such as 1, 3 or 1/4.  [default: 1]")
@click.option("--batch", metavar="B", type=POSITIVE, help="Samples of an update.  [default: 16]")
@click.option(
    "--measure-every",
    metavar="N",
    type=POSITIVE,
    help="Updates between two measurements of the memory's loss.  [default: 20]",
)
@click.option("--initialise", type=click.Choice(["redraw", "keep"]), help="Draw the weights, or keep them as built.")
@click.option("--freeze", metavar="NAMES", help="body, or parts of it, that are not trained.  [default: none]")
@click.option(
    "--augment",
    metavar="NAME",
    multiple=True,
    callback=lambda context, option, given: given or None,
    help="Transform of training images, NAME:field=value,...; repeatable; or none.  [default: random crops]",
)
@import_option
@click.option(
    "--data-dir",
    type=OutputFolder(),
    default="live",
    help="Where samples, checkpoints and these settings are kept.",
)
@click.option(
    "--from",
    "begin",
    metavar="FOLDER",
    type=PLACE,
    help="Continue with the learner of a run or of another service, or a saved one.",
)
@click.option("--host", metavar="NAME", default="127.0.0.1", help="Addresses other than loopback need a token.")
@click.option("--port", metavar="P", type=click.IntRange(0, 65535), default=8000, help="0: any that is free.")
@token_option
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when the service is ready.")
@click.option("--device", metavar="NAME", help="auto, cpu or cuda.  [default: cpu]")
@click.option("--threads", metavar="T", type=POSITIVE, help="Threads of the learner.  [default: 1]")
@click.option("--queue", metavar="N", type=POSITIVE, help="Samples that may wait to be learnt.  [default: 1000]")
@click.option(
    "--idle-updates",
    metavar="N",
    type=click.IntRange(0),
    default=IDLE_UPDATES,
    help="Updates from the memory after the last sample, while idle; 0: none.",
)
@click.option(
    "--unknown-rate",
    metavar="R",
    type=click.FloatRange(0, 0.5),
    default=0.05,
    help="Share of samples of known classes that may be answered `unknown`; 0: never.",
)
@click.option("--log-level", type=click.Choice(log_lines.LEVELS), default="info", help="Of lines on standard error.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of these lines.")
def serve(
    data_dir: Path,
    begin: Path | None,
    host: str,
    port: int,
    token: str | None,
    queue: int | None,
    idle_updates: int,
    unknown_rate: float,
    as_json: bool,
    log_level: str,
    log_format: str,
    **settings: Any,
) -> None:
    """Start a live service, or continue the one in FOLDER.

    It learns labelled images as they are sent (`iblurry live send`, HTTP, its page) and answers at any time (`iblurry
    live ask`). Accepted samples are on the disk before they are acknowledged. Ctrl-C saves and stops; the same command
    continues.
    """
    _check_installed()

    from iblurry.live.http.server import serve as listen
    from iblurry.live.quota import Limits
    from iblurry.live.service import Service
    from iblurry.live.settings import Settings

    given = {name: value for name, value in settings.items() if value is not None}
    if "augment" in given:
        given["augment"] = [] if given["augment"] == ("none",) else list(map(_transform, given["augment"]))
    limits = Limits() if queue is None else Limits(queue=queue)
    with private_files(), log_lines.written(log_level, as_json=log_format == "json"):
        if begin is None:
            chosen = Settings.of(data_dir, **given)
        else:
            from iblurry.live.transfer import begin_from

            chosen = begin_from(data_dir, begin, **given)

        def announce(url: str) -> None:
            click.echo(json.dumps({"url": url, "pid": os.getpid()}) if as_json else _greeting(url, data_dir, chosen))

        service = Service(data_dir, chosen, limits, idle_updates=idle_updates, unknown_rate=unknown_rate)
        listen(service, host=host, port=port, token=token, on_ready=announce)


def _transform(text: str) -> dict[str, Any]:
    from iblurry.augment import Transform
    from iblurry.components.edit import component

    kind: Any = Transform
    made: dict[str, Any] = json.loads(json.dumps(component(kind, text).to_json()))  # tuples as lists, as they are read
    return made


def _check_installed() -> None:
    missing = [name for name in LIBRARIES if (found := find_spec(name)) is None or found.origin is None]
    if missing:
        raise InputError(f"A live service needs {', '.join(missing)}; run: pip install 'iblurry[live]'.")


def _greeting(url: str, folder: Path, settings: Settings) -> str:
    shape = "x".join(map(str, settings.image))
    return (
        f"Listening on {url} (the page; the API is at {url}/docs)\n"
        f"Learns with {settings.method} and {settings.network}: images {shape}, memory {settings.memory:,}, "
        f"up to {settings.max_classes:,} classes; kept in {folder}\n"
        "Ctrl-C saves and stops; the same command continues."
    )

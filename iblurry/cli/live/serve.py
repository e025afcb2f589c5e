"""`iblurry live serve`: a service that learns what it is sent and answers meanwhile."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.live.connect import token_option
from iblurry.cli.options import COUNT, PLACE, GroupedCommand, OutputFolder, Shape, add, declare, import_option
from iblurry.errors import InputError
from iblurry.live import log_lines
from iblurry.storage.files import private_files

if TYPE_CHECKING:
    from iblurry.live.settings import Settings

LIBRARIES = ("fastapi", "uvicorn", "httptools", "prometheus_client")  # the extra `live`
IDLE_UPDATES = 5000  # some minutes of a small network on one core
LEARNING = declare(  # the settings of a folder; `Settings` has their defaults
    {
        "method": ("NAME", None, "See `iblurry methods`.  [default: clib]"),
        "network": ("NAME", None, "convnet, mlp, resnet18, resnet34, or your own.  [default: convnet]"),
        "memory": ("K", COUNT, "How many samples may be stored.  [default: 500]"),
        "image": ("CxHxW", Shape(), "Channels, height, width.  [default: 3x32x32]"),
        "max_classes": ("N", COUNT, "Maximum number of labels.  [default: 100]"),
        "seed": ("S", click.IntRange(0), "Seed of all random numbers.  [default: 1]"),
        "updates_per_sample": ("U", None, "Such as 1, 3 or 1/4.  [default: 1]"),
        "batch": ("B", COUNT, "Samples of an update.  [default: 16]"),
        "measure_every": ("N", COUNT, "Updates between two measurements of the memory's loss.  [default: 20]"),
        "initialise": (
            "[redraw|keep]",
            click.Choice(["redraw", "keep"]),
            "Draw the weights, or keep them as built.",
        ),
        "freeze": ("NAMES", None, "body, or parts of it, that are not trained.  [default: none]"),
        "augment": (
            "NAME",
            None,
            "Transform of training images, NAME:field=value,...; repeatable; or none.  [default: random crops]",
        ),
    },
    many=["augment"],
)
PLACES = declare(
    {
        "data_dir": ("FOLDER", OutputFolder(), "Where samples, checkpoints and these settings are kept."),
        "from": ("FOLDER", PLACE, "Continue with the learner of a run or of another service, or a saved one."),
        "host": ("NAME", None, "Addresses other than loopback need a token."),
        "port": ("P", click.IntRange(0, 65535), "0: any that is free."),
    },
    data_dir="live",
    host="127.0.0.1",
    port=8000,
)
MACHINE = declare(
    {
        "device": ("NAME", None, "auto, cpu or cuda.  [default: cpu]"),
        "threads": ("T", COUNT, "Threads of the learner.  [default: 1]"),
        "queue": ("N", COUNT, "Samples that may wait to be learnt.  [default: 1000]"),
        "idle_updates": (
            "N",
            click.IntRange(0),
            "Updates from the memory after the last sample, while idle; 0: none.",
        ),
        "unknown_rate": (
            "R",
            click.FloatRange(0, 0.5),
            "Share of samples of known classes that may be answered `unknown`; 0: never.",
        ),
        "log_level": (f"[{'|'.join(log_lines.LEVELS)}]", click.Choice(log_lines.LEVELS), "Of lines on standard error."),
        "log_format": ("[text|json]", click.Choice(["text", "json"]), "Format of these lines."),
    },
    idle_updates=IDLE_UPDATES,
    unknown_rate=0.05,
    log_level="info",
    log_format="text",
)
GROUPS = {
    "Learning (an existing folder keeps its settings)": (*LEARNING, "modules"),
    "Places": (*PLACES, "token", "token_file", "as_json"),
    "Machine": MACHINE,
}
EXAMPLES = """\b
Examples:
  iblurry live serve
  iblurry live serve --data-dir pets --network resnet18 --image 3x64x64
  iblurry live serve --data-dir pets
  iblurry live serve --data-dir pets --from runs/clib-pets-1-0123456789ab
  iblurry live serve --data-dir mine --import mine.py --network my_net
"""


@click.command(cls=GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@add(LEARNING)
@import_option
@add(PLACES)
@token_option
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when the service is ready.")
@add(MACHINE)
def serve(
    data_dir: Path,
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

    begin = settings.pop("from")  # no name of an argument
    given = {name: value for name, value in settings.items() if value not in (None, ())}
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

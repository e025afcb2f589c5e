"""`iblurry log`: runs into TensorBoard, Weights & Biases or MLflow, afterwards or while they are under way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iblurry.cli.options import OutputFolder, run_folders, runs_argument
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.studies.loggers.follow import JournalFeed

LOGGERS = ("tensorboard", "wandb", "mlflow")
PAUSE = 1.0  # seconds between two looks at the journals
GRACE = 10.0  # seconds in which the next run of several may begin


@click.command()
@runs_argument
@click.option(
    "--to",
    metavar="LOGGER",
    type=click.Choice(LOGGERS),
    required=True,
    help="tensorboard, wandb or mlflow; each is an extra to install.",
)
@click.option("--out", type=OutputFolder(), help="Where they are kept on this machine.  [default: logs/LOGGER]")
@click.option("--project", metavar="NAME", help="W&B's project or MLflow's experiment.  [default: iblurry]")
@click.option("--follow", is_flag=True, help="Go on while runs are under way, until all are finished or Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def log(runs: tuple[Path, ...], to: str, out: Path | None, project: str | None, follow: bool, as_json: bool) -> None:
    """Write the journals of RUNs to a logger: run folders, or folders of them (default: runs).

    Accuracy, learning rate, updates and new classes by samples seen, the final numbers, hyper-parameters, versions and
    hardware. A run that is there already is brought up to date. Runs are only read.
    """
    folders = _distinct(run_folders(runs))

    from iblurry.studies.loggers.follow import JournalFeed
    from iblurry.studies.loggers.logger import make_logger_factory

    begin = partial(JournalFeed, make=make_logger_factory(to, out=out, project=project))
    feeds = {folder: begin(folder) for folder in folders}
    interrupted = False
    try:
        if follow:
            interrupted = not _follow(feeds, runs, begin)
        else:
            for feed in feeds.values():
                _done(feed)
    finally:
        for feed in feeds.values():
            feed.close()
    _report(feeds, as_json=as_json)
    if interrupted:
        raise KeyboardInterrupt


def _follow(feeds: dict[Path, JournalFeed], places: tuple[Path, ...], begin: Callable[[Path], JournalFeed]) -> bool:
    """Looks again and again, also for runs that are new; True once all are finished, False at Ctrl-C."""
    from iblurry.launch.stop import stop_on_signals

    busy: float | None = None  # when a run was under way last
    with stop_on_signals() as stop:
        while True:
            under_way = [feed for feed in feeds.values() if not _done(feed)]
            if under_way:
                busy = time.monotonic()
            elif busy is None or time.monotonic() - busy > GRACE:
                return True
            if stop.is_set:
                return False
            time.sleep(PAUSE)
            for folder in _distinct(run_folders(places)):
                if folder not in feeds:
                    feeds[folder] = begin(folder)


def _done(feed: JournalFeed) -> bool:
    finished = feed.update()
    if finished:
        feed.close()
    return finished


def _distinct(folders: list[Path]) -> list[Path]:
    """Two runs of one name would become one."""
    first: dict[str, Path] = {}
    for folder in folders:
        twin = first.setdefault(folder.resolve().name, folder)
        if twin is not folder:
            raise InputError(f"{twin} and {folder} have the same name and would be written into one; name one of them.")
    return folders


def _report(feeds: dict[Path, JournalFeed], *, as_json: bool) -> None:
    about = [
        {"folder": str(folder), "place": feed.location, "finished": feed.summary is not None, "events": feed.events}
        for folder, feed in feeds.items()
    ]
    if as_json:
        click.echo(json.dumps(about, indent=2))
        return
    for run in about:
        if run["place"] is None:
            click.echo(f"{run['folder']} has not begun yet and is left out.", err=True)
        else:
            state = "finished" if run["finished"] else "not finished"
            click.echo(f"{run['folder']}: {run['events']:,} events, {state}, in {run['place']}")

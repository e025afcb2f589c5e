"""What a verb that runs experiments is told about the machine; nothing here is part of an experiment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.values import NumberRange

if TYPE_CHECKING:
    from iblurry.launch.config import LaunchConfig

OPTIONS = ("device", "precision", "jobs", "pack", "threads", "save_seconds", "save_samples")


def machine_options(*, jobs: str, pack: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a verb these options; `jobs` and `pack` say what it does unless told. Its function gets one `machine`."""
    options = (
        click.option(
            "--device", metavar="NAME", default="auto", help="cpu, cuda.  [default: a GPU for a ResNet if there is one]"
        ),
        click.option("--precision", metavar="NAME", help="float32 or bfloat16.  [default: float32; bfloat16 on a GPU]"),
        click.option(
            "--jobs", metavar="J", type=click.IntRange(1), help=f"Runs at a time, a process each.  [default: {jobs}]"
        ),
        click.option(
            "--pack",
            metavar="N",
            type=click.IntRange(1),
            help=f"Runs side by side in one process on a GPU.  [default: {pack}]",
        ),
        click.option(
            "--threads",
            metavar="T",
            type=click.IntRange(1),
            help="Threads of each run.  [default: its share; 1 if small]",
        ),
        click.option(
            "--save-seconds",
            metavar="S",
            type=NumberRange(0),
            default=30,
            show_default=True,
            help="Seconds between two checkpoints.",
        ),
        click.option(
            "--save-samples", metavar="S", type=click.IntRange(1), help="Also a checkpoint every so many samples."
        ),
    )

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            return command(machine={name: given.pop(name) for name in OPTIONS}, **given)

        return functools.reduce(lambda made, option: option(made), reversed(options), called)

    return give


def launch_config(machine: dict[str, Any], out: Path, data_home: Path | None, **more: Any) -> LaunchConfig:
    """What these options say."""
    from iblurry.experiment.checkpointer import CheckpointPolicy
    from iblurry.launch.config import LaunchConfig

    rest = {name: value for name, value in machine.items() if not name.startswith("save") and value is not None}
    checkpoints = CheckpointPolicy(seconds=machine["save_seconds"], samples=machine["save_samples"])
    return LaunchConfig(out=out, data_home=data_home, checkpoints=checkpoints, **rest | more)

"""The command `iblurry`: a handful of verbs, each in a file of its own that is opened only when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from iblurry.errors import IblurryError, UnknownNameError
from iblurry.version import __version__

VERBS = {
    "run": "Run methods on a stream, or continue; print the table and draw the figure.",
    "show": "Print the table and draw the figure again, from journals alone.",
    "split": "Show, draw and export an i-Blurry stream: which class comes when.",
    "data": "List, fetch, import and look at data sets.",
    "methods": "List the methods and what they are made of.",
}


class Verbs(click.Group):
    """Finds a verb's module by its name, so that --help imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            raise UnknownNameError("command", cmd_name, VERBS)
        verb: click.Command = getattr(importlib.import_module(f"iblurry.cli.{cmd_name}"), cmd_name)
        return verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="iblurry")
def iblurry() -> None:
    """Online continual learning on i-Blurry streams: one sample at a time, queries at any moment.

    Start with `iblurry run`: CLIB and ER on the embedded digits, three seeds each, under a minute.
    """


def main(arguments: list[str] | None = None) -> Any:
    """Runs the program; an error on purpose is one sentence and exit code 2, never a traceback."""
    try:
        code = iblurry.main(args=arguments, prog_name="iblurry", standalone_mode=False)
    except IblurryError as error:
        sys.exit(_refuse(str(error)))
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "iblurry"
        sys.exit(_refuse(f"{error.format_message()} See `{where} --help`."))
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(sentence: str) -> int:
    click.echo(f"iblurry: {sentence}", err=True)
    return 2

"""Groups of verbs: each verb is a file of its own, which is opened only when the verb is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from iblurry.errors import InputError, UnknownNameError

FAILED = 1  # of the runs, at least one
INTERRUPTED = 130  # what a shell reports for SIGINT


class Verbs(click.Group):
    """A group that finds a verb's module in its package by the verb's name, so that --help imports none of them.

    Parameters
    ----------
    package : str
        Name of the package; its module NAME holds the command NAME.
    verbs : Mapping[str, str]
        What each verb does, in the order of --help.
    files : Mapping[str, str]
        The module of a verb that is in another's.
    moved : Mapping[str, str]
        What is written now for a verb of an earlier version: {"serve": "live serve"}.
    """

    def __init__(
        self,
        name: str,
        *,
        package: str,
        verbs: Mapping[str, str],
        files: Mapping[str, str] | None = None,
        moved: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(name, invoke_without_command=True, callback=_help_unless_called, **more)
        self.package, self.verbs, self.files, self.moved = package, verbs, files or {}, moved or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name in self.moved:
            now = f"iblurry {self.moved[cmd_name]}"
            raise InputError(f"There is no command called {cmd_name!r}. Did you mean `{now}`? It moved there.")
        if cmd_name not in self.verbs:
            raise UnknownNameError("command", cmd_name, self.verbs)
        file = self.files.get(cmd_name, cmd_name)
        verb: click.Command = getattr(importlib.import_module(f"{self.package}.{file}"), cmd_name)
        return verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.verbs.items()))


@click.pass_context
def _help_unless_called(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())

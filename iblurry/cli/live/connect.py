"""How `send` and `ask` reach a live service: options for its address and token, and a client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource

from iblurry.errors import InputError, ServiceError

if TYPE_CHECKING:
    from iblurry.live.client import Client

ADDRESS = "http://127.0.0.1:8000"


def token_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--token` and `--token-file` to a command, which gets a `token`: that of the file before $IBLURRY_TOKEN."""

    @click.option(
        "--token", metavar="TEXT", envvar="IBLURRY_TOKEN", help="The service's token; safer in $IBLURRY_TOKEN."
    )
    @click.option(
        "--token-file",
        metavar="FILE",
        envvar="IBLURRY_TOKEN_FILE",
        type=click.File(encoding="utf-8", errors="replace"),
        help="A file with it; else $IBLURRY_TOKEN_FILE.",
    )
    @functools.wraps(command)
    def call(token: str | None, token_file: TextIO | None, **given: Any) -> Any:
        if token_file is not None:
            if click.get_current_context().get_parameter_source("token") is ParameterSource.COMMANDLINE:
                raise click.UsageError("Both --token and a token file are given; give one of them.")
            token = token_file.read().strip()
            if not token:
                raise InputError(f"The token file {token_file.name} is empty; write the token into it.")
        return command(token=token, **given)

    return call


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url` and `--token` to a command."""
    url = click.option("--url", metavar="URL", envvar="IBLURRY_URL", default=ADDRESS, help="Or set $IBLURRY_URL.")
    return url(token_option(command))


@contextmanager
def connect(url: str, token: str | None) -> Iterator[Client]:
    """A client of the service; where it refuses the token, the error names this program's options."""
    from iblurry.live.client import Client

    with Client(url, token=token) as client:
        try:
            yield client
        except ServiceError as error:
            if error.status != 401:
                raise
            wrong = "refused this token" if token else "needs a token"
            raise InputError(f"{client.url} {wrong}; give the right one by $IBLURRY_TOKEN or --token.") from error


def wait_for_status(client: Client) -> dict[str, Any]:
    """The service's status, once it is reachable; a line on standard error says that it is waited for."""
    from iblurry.live.client import is_temporary, retry

    is_told = False

    def status() -> dict[str, Any]:
        nonlocal is_told
        try:
            return client.status()
        except ServiceError as error:
            if is_temporary(error) and not is_told:
                is_told = True
                click.echo(f"iblurry: {error} Trying again for {client.patience:.0f} s.", err=True)
            raise

    return retry(client.patience, status)

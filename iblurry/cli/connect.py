"""How `send` and `ask` reach a live service: options for its address and token, and a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from iblurry.errors import InputError, ServiceError

if TYPE_CHECKING:
    from iblurry.live.client import Client

ADDRESS = "http://127.0.0.1:8000"


def token_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--token` to a command."""
    return click.option(
        "--token", metavar="TEXT", envvar="IBLURRY_TOKEN", help="What the service asks for; better: $IBLURRY_TOKEN."
    )(command)


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url` and `--token` to a command."""
    url = click.option("--url", metavar="URL", envvar="IBLURRY_URL", default=ADDRESS, help="Else $IBLURRY_URL.")
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
            wrong = "This token is not the one" if token else "No token was given, and one is"
            raise InputError(f"{wrong} that {client.url} asks for; give it by $IBLURRY_TOKEN or --token.") from error


def wait_for_status(client: Client) -> dict[str, Any]:
    """The service's status, once it is reachable; a line on standard error says that it is waited for."""
    from iblurry.live.client.http_client import is_temporary, retry

    is_told = False

    def status() -> dict[str, Any]:
        nonlocal is_told
        try:
            return client.status()
        except ServiceError as error:
            if is_temporary(error) and not is_told:
                is_told = True
                click.echo(f"iblurry: {error} Waits for it, {client.patience:.0f} s at most.", err=True)
            raise

    return retry(client.patience, status)

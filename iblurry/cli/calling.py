"""How a verb finds a live service: its address and its token."""

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
    """Gives a verb `--token`."""
    return click.option(
        "--token", metavar="TEXT", envvar="IBLURRY_TOKEN", help="What the service asks for; better: $IBLURRY_TOKEN."
    )(command)


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a verb `--url` and `--token`."""
    url = click.option(
        "--url", metavar="URL", envvar="IBLURRY_URL", default=ADDRESS, help=f"$IBLURRY_URL, or {ADDRESS}."
    )
    return url(token_option(command))


@contextmanager
def connected(url: str, token: str | None) -> Iterator[Client]:
    """A client of the service that is meant; a token that it does not take is spoken of as this program does."""
    from iblurry.live.client import Client

    with Client(url, token=token) as client:
        try:
            yield client
        except ServiceError as error:
            if error.status != 401:
                raise
            wrong = "This token is not the one" if token else "No token was given, and one is"
            raise InputError(f"{wrong} that {client.url} asks for; give it by $IBLURRY_TOKEN or --token.") from error


def awaited(client: Client) -> dict[str, Any]:
    """Its status, once it is there; that it is waited for is said."""
    from iblurry.live.client.caller import passes, patiently

    told = False

    def look() -> dict[str, Any]:
        nonlocal told
        try:
            return client.status()
        except ServiceError as error:
            if passes(error) and not told:
                told = True
                click.echo(f"iblurry: {error} Waits for it, {client.patience:.0f} s at most.", err=True)
            raise

    return patiently(client.patience, look)

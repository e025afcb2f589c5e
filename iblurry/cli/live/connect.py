"""How `send` and `ask` reach a live service: options for its address and token, and a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from iblurry.errors import InputError, ServiceError

if TYPE_CHECKING:
    from iblurry.live.client import Client

FROM_FILE = "iblurry.token"  # in the context's meta
ADDRESS = "http://127.0.0.1:8000"


def token_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--token` and `--token-file` to a command, which gets a `token`."""
    token = click.option(
        "--token",
        metavar="TEXT",
        envvar="IBLURRY_TOKEN",
        callback=_choose_token,
        help="The service's token; safer in $IBLURRY_TOKEN.",
    )
    file = click.option(
        "--token-file",
        metavar="FILE",
        envvar="IBLURRY_TOKEN_FILE",
        type=click.Path(path_type=Path),
        callback=_read_token,
        expose_value=False,
        is_eager=True,  # before --token
        help="A file with it; else $IBLURRY_TOKEN_FILE.",
    )
    return token(file(command))


def _read_token(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"The token file {path} cannot be read ({why}); give one with the token in it.") from error
    if not token:
        raise InputError(f"The token file {path} is empty; write the token into it.")
    context.meta[FROM_FILE] = token


def _choose_token(context: click.Context, parameter: click.Parameter, token: str | None) -> str | None:
    """That of the file, which goes before $IBLURRY_TOKEN."""
    if FROM_FILE not in context.meta:
        return token
    if context.get_parameter_source("token") is ParameterSource.COMMANDLINE:
        raise click.UsageError("Both --token and a token file are given; give one of them.", context)
    found: str = context.meta[FROM_FILE]
    return found


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
    from iblurry.live.client.http_client import is_temporary, retry

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

"""`iblurry live correct`: takes back or mends what a live service was taught."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from iblurry.cli.live.connect import connect, service_options
from iblurry.cli.options import json_option
from iblurry.errors import counted

EXAMPLES = """\b
Examples:
  iblurry live correct remove 17 18
  iblurry live correct relabel 17 dog
  iblurry live correct merge cot cat
  iblurry live correct label 5f2a9c01-17 dog
"""


@click.group(epilog=EXAMPLES)
def correct() -> None:
    """Correct what a live service was taught.

    Samples are named by their numbers, which `send --json` and /v1/memory tell. A correction is on the service's disk
    before it is acknowledged. The weights keep what they learnt from a mistake until rehearsal overwrites it.
    """


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every subcommand."""
    for option in (
        json_option,
        service_options,
        click.option("--wait/--no-wait", default=True, help="Until it is applied, or until it is accepted."),
    ):
        command = option(command)
    return command


def _correct(corrections: list[dict[str, Any]], *, url: str, token: str | None, wait: bool, as_json: bool) -> None:
    with connect(url, token) as client:
        receipt = client.correct(corrections)
        if wait:
            client.wait(operation=receipt.operation)
    if as_json:
        about = {"accepted": receipt.accepted, "operation": receipt.operation, "sentence": receipt.sentence}
        click.echo(json.dumps({"url": client.url} | about, indent=2))
    else:
        click.echo(f"{counted(receipt.accepted, 'correction')} {'applied' if wait else 'accepted'}. {receipt.sentence}")


@correct.command()
@click.argument("samples", metavar="NUMBER...", nargs=-1, required=True, type=click.IntRange(1))
@options
def remove(samples: tuple[int, ...], **how: Any) -> None:
    """Take the samples NUMBER out of the memory."""
    _correct([{"action": "remove", "sample": sample} for sample in samples], **how)


@correct.command()
@click.argument("sample", metavar="NUMBER", type=click.IntRange(1))
@click.argument("label", metavar="LABEL")
@options
def relabel(sample: int, label: str, **how: Any) -> None:
    """Give the sample NUMBER of the memory another LABEL."""
    _correct([{"action": "relabel", "sample": sample, "label": label}], **how)


@correct.command()
@click.argument("label", metavar="CLASS")
@click.argument("to", metavar="NAME")
@options
def rename(label: str, to: str, **how: Any) -> None:
    """Call a CLASS by another NAME, which no class has."""
    _correct([{"action": "rename", "label": label, "to": to}], **how)


@correct.command()
@click.argument("label", metavar="CLASS")
@click.argument("to", metavar="OTHER")
@options
def merge(label: str, to: str, **how: Any) -> None:
    """Make a CLASS part of an OTHER one."""
    _correct([{"action": "merge", "label": label, "to": to}], **how)


@correct.command()
@click.argument("label", metavar="CLASS")
@options
def delete(label: str, **how: Any) -> None:
    """Delete a CLASS with its samples in the memory; it never answers again."""
    _correct([{"action": "delete", "label": label}], **how)


@correct.command()
@click.argument("answer", metavar="ID")
@click.argument("label", metavar="LABEL")
@options
def label(answer: str, label: str, url: str, token: str | None, wait: bool, as_json: bool) -> None:
    """Teach the picture that the answer ID was about its LABEL."""
    with connect(url, token) as client:
        receipt = client.label(answer, label)
        if wait:
            client.wait(receipt.last)
    if as_json:
        click.echo(json.dumps({"url": client.url, "accepted": receipt.accepted, "sample": receipt.last}, indent=2))
    else:
        click.echo(f"Sample {receipt.last:,} {'learnt' if wait else 'accepted'} as {label!r}.")

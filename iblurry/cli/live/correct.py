"""`iblurry live correct`: takes back or mends what a live service was taught."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from iblurry.cli.live.connect import connect, service_options
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
    """The options of every subcommand."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a sentence."),
        service_options,
        click.option("--wait/--no-wait", default=True, help="Until it is applied, or until it is accepted."),
    ):
        command = option(command)
    return command


def correction(command: Callable[..., list[dict[str, Any]]]) -> click.Command:
    """A subcommand of a function that makes corrections of its arguments."""

    def run(url: str, token: str | None, wait: bool, as_json: bool, **arguments: Any) -> None:
        with connect(url, token) as client:
            receipt = client.correct(command(**arguments))
            if wait:
                client.wait(operation=receipt.operation)
        if as_json:
            about = {"accepted": receipt.accepted, "operation": receipt.operation, "sentence": receipt.sentence}
            click.echo(json.dumps({"url": client.url} | about, indent=2))
        else:
            done = "applied" if wait else "accepted"
            click.echo(f"{counted(receipt.accepted, 'correction')} {done}. {receipt.sentence}")

    run = options(run)
    vars(run)["__click_params__"] += vars(command)["__click_params__"]  # click reads them from the last to the first
    return correct.command(command.__name__, help=command.__doc__)(run)


SAMPLE = click.IntRange(1)


@correction
@click.argument("samples", metavar="NUMBER...", nargs=-1, required=True, type=SAMPLE)
def remove(samples: tuple[int, ...]) -> list[dict[str, Any]]:
    """Take the samples NUMBER out of the memory."""
    return [{"action": "remove", "sample": sample} for sample in samples]


@correction
@click.argument("sample", metavar="NUMBER", type=SAMPLE)
@click.argument("label", metavar="LABEL")
def relabel(sample: int, label: str) -> list[dict[str, Any]]:
    """Give the sample NUMBER of the memory another LABEL."""
    return [{"action": "relabel", "sample": sample, "label": label}]


@correction
@click.argument("label", metavar="CLASS")
@click.argument("to", metavar="NAME")
def rename(label: str, to: str) -> list[dict[str, Any]]:
    """Call a CLASS by another NAME, which no class has."""
    return [{"action": "rename", "label": label, "to": to}]


@correction
@click.argument("label", metavar="CLASS")
@click.argument("to", metavar="OTHER")
def merge(label: str, to: str) -> list[dict[str, Any]]:
    """Make a CLASS part of an OTHER one."""
    return [{"action": "merge", "label": label, "to": to}]


@correction
@click.argument("label", metavar="CLASS")
def delete(label: str) -> list[dict[str, Any]]:
    """Delete a CLASS with its samples in the memory; it never answers again."""
    return [{"action": "delete", "label": label}]


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

"""What a page prints: its Python, its commands and its links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import click

from iblurry.cli.main import iblurry
from iblurry.cli.verbs import Verbs


class Block(NamedTuple):
    """A fenced block: its language, the file it is saved as (its title), and its lines."""

    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    """All of its fenced blocks, in order."""
    found = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', page.read_text("utf-8"), flags=re.DOTALL | re.M)
    return [Block(*block) for block in found]


def python(page: Path) -> list[str]:
    """Its blocks of Python."""
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)


def commands(page: Path) -> list[str]:
    """The lines of its console, without what is said about them."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]


def links(page: Path) -> list[Path]:
    """The files it shows or points to."""
    found = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))
    return [page.parent / target for target in found if "://" not in target]


def understood(command: str) -> bool:
    """Whether its verb exists, and every option; what they do is tested elsewhere."""
    words = shlex.split(command)
    found: click.Command = iblurry
    while isinstance(found, Verbs):
        verb, words = words[1], words[1:]
        found = found.get_command(click.Context(found), verb)  # raises at an unknown verb
    with patch("iblurry.cli.options.import_user_modules"):  # a file of the page's reader
        return found.make_context(verb, words[1:]).info_name == verb  # raises at an unknown option

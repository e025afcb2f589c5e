"""What a page prints: its Python, its commands and its links."""

from __future__ import annotations

import importlib.util
import re
import runpy
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
    """Its blocks of Python that are no files."""
    return [block.text for block in blocks(page) if block.language == "python" and not block.file]


def run_python(page: Path) -> None:
    """Runs its Python in the current folder, each block as a program whose file later blocks may import.

    The file is called as the first class or function in it. A block with a library that is not installed is left out.
    """
    for number, block in enumerate(python(page)):
        named = re.search(r"^(?:class|def) (\w+)", block, re.MULTILINE)
        file = Path(f"{named[1].lower() if named else f'block_{number}'}.py")
        file.write_text(block)
        if all(file.with_stem(name).exists() or importlib.util.find_spec(name) for name in _imported(block)):
            runpy.run_path(str(file), run_name="__main__")


def _imported(block: str) -> list[str]:
    """The modules and packages that it imports, by the first of their names."""
    return re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE)


def commands(page: Path) -> list[str]:
    """The lines of its console, without what is said about them."""
    lines = [line for block in blocks(page) if block.language == "console" for line in block.text.splitlines()]
    return [line.split("#")[0].strip() for line in lines]


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

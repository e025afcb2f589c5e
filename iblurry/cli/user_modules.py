"""`--import`: parts and methods of one's own, known on the command line once their module is imported."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from iblurry.errors import InputError


def import_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a verb `--import`; its function gets `modules`."""
    return click.option(
        "--import",
        "modules",
        multiple=True,
        metavar="MODULE",
        help="Import a module, or a file like mine.py, with parts or methods of your own first. Repeatable.",
    )(command)


def import_user_modules(modules: Iterable[str]) -> None:
    """Imports modules by their names, found from the working folder too, and files by their paths.

    Worker processes find them the same way: they get this process's search path, and unpacking a part imports it.
    """
    for module in modules:
        try:
            if module.endswith(".py"):
                _import_file(Path(module).resolve(strict=True))
            else:
                _search(Path.cwd())
                importlib.import_module(module)
        except Exception as error:  # whatever the user's own code raises
            raise InputError(f"--import {module} failed: {_what(error, module)}. Correct it, and try again.") from error


def _import_file(path: Path) -> None:
    _search(path.parent)
    found = importlib.import_module(path.stem).__file__
    if found is None or Path(found).resolve() != path:
        raise ImportError(f"another module is called {path.stem} already, so the file needs another name")


def _search(folder: Path) -> None:
    """Last, so that nothing of the user's hides a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _what(error: Exception, module: str) -> str:
    """The error and, where it arose in a file of the user's, the line."""
    name = Path(module).name if module.endswith(".py") else f"{module.rsplit('.', 1)[-1]}.py"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == name]
    if isinstance(error, FileNotFoundError) and not lines:
        return "there is no such file"
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{type(error).__name__}: {str(error).rstrip('.')}"

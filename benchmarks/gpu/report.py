"""The report as JSON: the machine, the options, and the rows of every section so far."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from benchmarks.gpu.figures import figures
from iblurry.errors import IblurryError, InputError

DRIVER = Path("/sys/module/nvidia/version")
FREE = ("only", "methods", "jobs")  # options that change no row


class Report:
    """Written anew after every row, so that a benchmark that is cut short keeps what it has, and goes on from there."""

    def __init__(self, device: str, options: dict[str, Any], path: Path | None) -> None:
        self.path = path
        self.content: dict[str, Any] = machine(device) | {"options": options}
        if path is not None and path.exists():
            self._go_on(path)

    def _go_on(self, path: Path) -> None:
        """With the rows of an earlier start, if they were measured on the same machine in the same way."""
        try:
            earlier = json.loads(path.read_text())
            known = {name: _compared(name, earlier[name]) for name in self.content}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no report of this benchmark; remove it or choose another --json.") from error
        for name, value in self.content.items():
            if known[name] != _compared(name, value):
                raise InputError(
                    f"{path} was made with {name} {known[name]}, but now it is {_compared(name, value)}; "
                    "remove it, choose another --json, or use the same again."
                )
        self.content = earlier | self.content
        print(f"Goes on with the rows in {path}; remove it to measure them again.", file=sys.stderr)

    def has(self, section: str, method: str) -> bool:
        """Whether that row was measured already."""
        return any(row["method"] == method for row in self.content.get(section, []))

    def add(self, section: str, row: dict[str, Any]) -> None:
        self.content.setdefault(section, []).append(row)
        print(json.dumps({section: row}), flush=True)
        self.write()

    def note(self, name: str, value: Any) -> None:
        """One number that belongs to no method."""
        self.content[name] = value
        print(json.dumps({name: value}), flush=True)
        self.write()

    def write(self) -> None:
        if self.path is not None:
            whole = self.content | {"figures": figures(self.content)}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(whole, indent=1) + "\n")


def _compared(name: str, value: Any) -> Any:
    """What must be the same: of the options not which rows are wanted now, nor how quickly."""
    if name != "options":
        return value
    fixed = {option: v for option, v in value.items() if option not in FREE}
    return json.loads(json.dumps(fixed))  # lists, as a file has them


def leave_with(main: Callable[[], int]) -> NoReturn:
    """Ends a program with its exit code; a mistake of the user's is a sentence, not a traceback."""
    try:
        raise SystemExit(main())
    except IblurryError as error:
        raise SystemExit(f"Error: {error}") from error


def machine(device: str) -> dict[str, Any]:
    """What the numbers were measured on."""
    on_gpu = torch.device(device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else device,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,
        "driver": DRIVER.read_text().strip() if DRIVER.exists() else None,
    }

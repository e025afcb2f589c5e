"""The report as JSON: the machine, the options, and the rows of every section so far."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from benchmarks.gpu.tables import check_goals
from iblurry.errors import IblurryError, InputError

DRIVER = Path("/sys/module/nvidia/version")
FREE = ("only", "methods", "jobs")  # options that change no row


class BenchmarkReport:
    """Rewritten after every row, so that an interrupted benchmark keeps its rows and can continue."""

    def __init__(self, device: str, options: dict[str, Any], path: Path | None) -> None:
        self.path = path
        self.content: dict[str, Any] = machine(device) | {"options": options}
        if path is not None and path.exists():
            self._continue(path)

    def _continue(self, path: Path) -> None:
        """Takes over the rows of an earlier report of the same machine and options."""
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
        print(f"Continues with the rows in {path}; remove it to measure them again.", file=sys.stderr)

    def has(self, section: str, method: str) -> bool:
        """Whether that row was measured already."""
        return any(row["method"] == method for row in self.content.get(section, []))

    def add(self, section: str, row: dict[str, Any]) -> None:
        self.content.setdefault(section, []).append(row)
        print(json.dumps({section: row}), flush=True)
        self.write()

    def set(self, name: str, value: Any) -> None:
        """A number that belongs to no method."""
        self.content[name] = value
        print(json.dumps({name: value}), flush=True)
        self.write()

    def write(self) -> None:
        if self.path is not None:
            whole = self.content | {"figures": check_goals(self.content)}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(whole, indent=1) + "\n")


def _compared(name: str, value: Any) -> Any:
    """What must be the same: of the options not which rows are wanted now, nor how quickly."""
    if name != "options":
        return value
    fixed = {option: v for option, v in value.items() if option not in FREE}
    return json.loads(json.dumps(fixed))  # lists, as a file has them


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Ends a program with its exit code; an IblurryError is printed without a traceback."""
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

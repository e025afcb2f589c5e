"""The report as JSON: the machine, the options, and the rows of every section so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from benchmarks.gpu.figures import figures
from iblurry.errors import IblurryError

DRIVER = Path("/sys/module/nvidia/version")


class Report:
    """Written anew after every row, so that a benchmark that is cut short keeps what it has."""

    def __init__(self, device: str, options: dict[str, Any], path: Path | None) -> None:
        self.path = path
        self.content: dict[str, Any] = machine(device) | {"options": options}

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

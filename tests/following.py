"""A reader who does what a page says: saves its files, runs its Python and its commands, and compares what is shown."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iblurry.cli.main import main
from tests.printed import Block, blocks

PROGRAM = [sys.executable, "-c", "from iblurry.cli.main import main; main()"]
ADDRESS = "http://127.0.0.1:8000"
NUMBER = r"[-+]?\d+(?:\.\d+)?"
HASH = r"\b[0-9a-f]{8,}\b"  # of experiments


class Reader:
    """Follows one page in the current folder; a service that it starts runs until it is started again, or the end."""

    def __init__(self, capsys: Any) -> None:
        self.capsys = capsys
        self.url = ADDRESS
        self.service: subprocess.Popen[str] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if self.service is not None and kind is not None:
            self.service.kill()
        self._stop()

    def follow(self, page: Path) -> None:
        """Every block in order; a block of text is what the one before it printed, or some lines of that."""
        said = ""
        for block in blocks(page):
            if block.language == "text":
                assert_shown(block.text, said)
            else:
                said = self._do(block)

    def _do(self, block: Block) -> str:
        self.capsys.readouterr()
        if block.file:
            Path(block.file).write_text(block.text.replace(ADDRESS, self.url))
        elif block.language == "python":
            exec(compile(block.text.replace(ADDRESS, self.url), "page", "exec"), {"__name__": "__main__"})
        elif block.language == "console":
            for line in block.text.splitlines():
                self._command(shlex.split(line, comments=True))
        else:
            raise AssertionError(f"a reader does not know what to do with {block.language}")
        return str(self.capsys.readouterr().out)

    def _command(self, words: list[str]) -> None:
        program, *rest = words
        if program == "python":
            (file,) = rest
            runpy.run_path(file, run_name="__main__")
        elif rest[:2] == ["live", "serve"]:
            self._serve(rest)
        else:
            assert program == "iblurry"
            with pytest.raises(SystemExit) as ended:
                main(
                    [*rest, *(["--jobs", "1"] if rest[0] == "run" else [])]
                )  # no process of its own, which imports torch
            assert not ended.value.code, words

    def _serve(self, words: list[str]) -> None:
        self._stop()
        self.service = subprocess.Popen([*PROGRAM, *words, "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
        assert self.service.stdout is not None
        self.url = os.environ["IBLURRY_URL"] = json.loads(self.service.stdout.readline())["url"]

    def _stop(self) -> None:
        if self.service is not None:
            with self.service:
                self.service.send_signal(signal.SIGINT)
                assert self.service.wait(60) in (0, -signal.SIGKILL)
            self.service = None


def assert_shown(shown: str, said: str) -> None:
    """Every line that is shown was said, in that order; decimals may differ a little on another processor."""
    rest = iter(said.splitlines())
    for line in filter(None, map(str.strip, shown.splitlines())):
        assert any(alike(line, other.strip()) for other in rest), f"{line!r} is not among what was printed:\n{said}"


def alike(shown: str, said: str) -> bool:
    """Equal but for hashes and spaces; whole numbers are equal, percentages within 5 % or 1.5, fractions within 0.04.

    >>> alike("er  3  71.9 ± 1.6", "er 3 72.3 ± 1.9"), alike("er 3 71.9", "er 4 71.9"), alike("er 71.9", "er 78.1")
    (True, False, False)
    """
    one, other = (" ".join(re.sub(HASH, "#", line).split()) for line in (shown, said))
    if re.sub(NUMBER, "0", one) != re.sub(NUMBER, "0", other):
        return False
    return all(
        a == b
        if "." not in a
        else float(b) == pytest.approx(float(a), rel=0.05, abs=1.5 if abs(float(a)) > 1 else 0.04)
        for a, b in zip(re.findall(NUMBER, one), re.findall(NUMBER, other), strict=True)
    )

"""A live service in a process of its own, to be stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

STARTS = 60.0  # seconds it may take


class ServeProcess:
    """`iblurry live serve`, again and again at the same address; nothing of it is left after `with`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        words = ["live", "serve", "--data-dir", str(self.folder), "--port", str(self.port), "--json", *self.options]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "iblurry", *words], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"The service ended with code {self._process.wait()} before it listened.")
        assert json.loads(line)["url"].rstrip("/") == self.url

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill(everything=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self, *, everything: bool) -> None:
        """SIGKILL to the server, and where `everything` also to the process that learns, as a power failure would."""
        (os.killpg if everything else os.kill)(self.pid, signal.SIGKILL)
        self._end()

    def stop(self) -> int:
        """SIGTERM: it saves and ends."""
        os.kill(self.pid, signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        code = self._process.wait(STARTS)
        self._process.stdout.close()
        self._process = None
        return code


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def to_options(settings: dict[str, object]) -> Sequence[str]:
    """As options of `iblurry live serve`."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]

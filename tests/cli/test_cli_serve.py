"""`iblurry live serve` refuses before it makes anything: no folder, no lock, no log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import stat
import subprocess

import numpy as np
import pytest

from iblurry import Client
from iblurry.errors import FolderError, ServiceError
from iblurry.live import log_lines
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from tests.cli.conftest import QUICK

pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
pytest.importorskip("uvicorn", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
from iblurry.live.http.server import listen


@pytest.mark.parametrize(
    "line, named",
    [
        ("--method clob", "'clob'. Did you mean 'clib'?"),
        ("--method gdumb", "gdumb cannot serve"),
        ("--network convnut", "'convnut'"),
        ("--memory 5", "memory=5"),
        ("--memory 1000000000000", "2,861,022.9 GiB"),
        ("--image 3x4x4", "4x4"),
        ("--image 3x10000000x10000000 --network mlp", "cannot be built here"),
        ("--device tpu", "'tpu'"),
        ("--updates-per-sample 0.0 --method er", "updates_per_sample=0.0"),
        ("--updates-per-sample=-1", "updates_per_sample=-1"),
        ("--updates-per-sample few", "'few'"),
    ],
)
def test_settings_that_cannot_serve_leave_nothing_behind(refused, here, line, named):
    (here / "empty").mkdir()
    for place in ("new", "empty"):
        assert named in refused("live", "serve", *line.split(), "--data-dir", place, "--port", 0)
    assert not (here / "new").exists()
    assert not list((here / "empty").iterdir())


@pytest.mark.parametrize("line", ["--host 192.0.2.1 --token t", "--host 0.0.0.0", "--port 65536", "--token ä"])
def test_places_that_cannot_be_served_leave_nothing_behind(refused, here, line):
    refused("live", "serve", *line.split(), "--data-dir", "new")
    assert not (here / "new").exists()


def test_a_port_that_another_has(refused, here):
    with listen("127.0.0.1", 0, token=None) as other:
        port = other.getsockname()[1]
        assert f"Port {port} of 127.0.0.1" in refused("live", "serve", "--port", port, "--data-dir", "new")
    assert not (here / "new").exists()


def test_the_folder_of_a_run_is_left_alone(call, refused, here):
    assert call("run", "er", "--seeds", "1", *QUICK).code == 0
    (run,) = (here / "runs").glob("er-*")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert f"{run} is the folder of a run" in refused("live", "serve", "--data-dir", run, "--port", 0)
    with pytest.raises(FolderError, match="is the folder of a run"):
        asyncio.run(Service(run, Settings()).start())
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.fixture
def serving(program, here):
    """The program, started with these words; it has said where it listens."""
    started = []

    def begin(*words):
        options = ("--network", "mlp", "--image", "1x8x8", "--port", "0", "--json")
        command = [*program, "live", "serve", *options, *map(str, words)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here))
        return started[-1], json.loads(started[-1].stdout.readline())["url"]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_lines_of_the_log_have_a_time_and_files_are_for_their_owner(serving, here):
    (here / "old").mkdir(mode=0o755)
    (here / "old" / "notes.txt").write_text("of its owner")
    (here / "old" / "notes.txt").chmod(0o644)
    words = ("--log-format", "json", "--token", "a-long-enough-token", "--idle-updates", "0")
    service, url = serving("--data-dir", here / "old", *words)
    with pytest.raises(ServiceError), Client(url, token="wrong-one") as client:
        client.status()
    with Client(url, token="a-long-enough-token") as client:
        client.learn(np.zeros((1, 8, 8), np.uint8), "a")
        client.wait()
    service.terminate()
    lines = [json.loads(line) for line in service.communicate(timeout=60)[1].splitlines()]
    assert [line["level"] for line in lines] == ["info", "warning", "info"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    assert lines[1]["message"] == "127.0.0.1 sent a wrong token."
    assert stat.S_IMODE((here / "old").stat().st_mode) == 0o700
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (here / "old").iterdir()}
    assert {"service.json", "samples.sqlite", "checkpoint-000000000001.safetensors", "notes.txt"} <= found.keys()
    assert set(found.values()) == {0o600}
    service, url = serving("--data-dir", here / "old", "--log-level", "warning")
    service.terminate()
    assert service.communicate(timeout=60)[1] == ""


def test_a_line_of_the_log_as_text(capsys):
    logger = logging.getLogger("iblurry.live.somewhere")
    with log_lines.written("info", as_json=False):
        logger.debug("Not told.")
        try:
            raise ValueError("a reason")
        except ValueError:
            logger.exception("%s failed.", "It")
    logger.info("Not told any more.")
    first, *rest = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d{4}-\S+Z ERROR iblurry\.live\.somewhere: It failed\.", first)
    assert rest[-1] == "ValueError: a reason"

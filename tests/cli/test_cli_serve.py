"""`iblurry serve` refuses before it makes anything: no folder, no lock, no log."""

from __future__ import annotations

import asyncio

import pytest

from iblurry.errors import FolderError
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
        assert named in refused("serve", *line.split(), "--data-dir", place, "--port", 0)
    assert not (here / "new").exists()
    assert not list((here / "empty").iterdir())


@pytest.mark.parametrize("line", ["--host 192.0.2.1 --token t", "--host 0.0.0.0", "--port 65536", "--token ä"])
def test_places_that_cannot_be_served_leave_nothing_behind(refused, here, line):
    refused("serve", *line.split(), "--data-dir", "new")
    assert not (here / "new").exists()


def test_a_port_that_another_has(refused, here):
    with listen("127.0.0.1", 0, token=None) as other:
        port = other.getsockname()[1]
        assert f"Port {port} of 127.0.0.1" in refused("serve", "--port", port, "--data-dir", "new")
    assert not (here / "new").exists()


def test_the_folder_of_a_run_is_left_alone(call, refused, here):
    assert call("run", "er", "--seeds", "1", *QUICK).code == 0
    (run,) = (here / "runs").glob("er-*")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert f"{run} is the folder of a run" in refused("serve", "--data-dir", run, "--port", 0)
    with pytest.raises(FolderError, match="is the folder of a run"):
        asyncio.run(Service(run, Settings()).start())
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before

"""`iblurry serve` says no before it makes anything: no folder, no lock, no log."""

from __future__ import annotations

import pytest

from iblurry.live.settings import Settings

pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
pytest.importorskip("uvicorn", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
from iblurry.live.http.server import listen


@pytest.fixture
def began(monkeypatch):
    """Folders of services that were about to begin; none does."""
    folders = []
    monkeypatch.setattr("iblurry.live.http.server.serve", lambda service, **_: folders.append(service.folder))
    return folders


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("--method clob", "There is no method called 'clob'. Did you mean 'clib'?"),
        ("--method gdumb", "gdumb cannot serve: it trains anew before it answers."),
        ("--network convnut", "There is no network called 'convnut'."),
        ("--memory 5", "memory=5 is too small for clib"),
        ("--memory 1000000000000", "samples take 2,861,022.9 GiB, and this machine has"),
        ("--image 3x4x4", "The images are 4x4 pixels, but a convnet needs at least 8x8"),
        ("--image 3x10000000x10000000 --network mlp", "cannot be built here"),
        ("--device tpu", "device='tpu' is neither 'cpu' nor 'cuda'"),
        ("--updates-per-sample 0", "updates_per_sample=0: nothing would be learnt; give more than 0, as 1, 3 or 1/4."),
        ("--updates-per-sample 0.0 --method er", "updates_per_sample=0.0: nothing would be learnt"),
        ("--updates-per-sample=-1", "updates_per_sample=-1: nothing would be learnt"),
        ("--updates-per-sample few", "'few' is no fraction; write 3, 0.25 or 1/16."),
    ],
)
def test_settings_that_cannot_serve_leave_nothing_behind(refused, began, here, line, sentence):
    (here / "empty").mkdir()
    for place in ("new", "empty"):
        assert sentence in refused("serve", *line.split(), "--data-dir", place)
    assert not (here / "new").exists()
    assert not list((here / "empty").iterdir())
    assert not began


@pytest.mark.parametrize("line", ["--host 192.0.2.1 --token t", "--host 0.0.0.0", "--port 65536", "--token ä"])
def test_places_that_cannot_be_served_leave_nothing_behind(refused, here, line):
    refused("serve", *line.split(), "--data-dir", "new")
    assert not (here / "new").exists()


def test_a_port_that_another_has(refused, here):
    with listen("127.0.0.1", 0, token=None) as other:
        port = other.getsockname()[1]
        assert f"Port {port} of 127.0.0.1 is in use; stop what" in refused("serve", "--port", port, "--data-dir", "new")
    assert not (here / "new").exists()


def test_a_folder_that_has_begun_is_not_tried_again(call, began, here, monkeypatch):
    Settings(network="mlp", image=(1, 8, 8)).keep(here)
    monkeypatch.setattr(Settings, "check", lambda self: pytest.fail("this costs time"))
    assert call("serve", "--data-dir", here).code == 0
    assert began == [here]

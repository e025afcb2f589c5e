"""The page before the real service: what is taught in the browser is learnt, and what others send appears there."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from iblurry import Client, load
from iblurry.live.quota import Limits
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from tests.live.browsing import file, settled, wait_for_text

DIGITS = load("digits")


@pytest.fixture(scope="module")
def url(running, tmp_path_factory):
    settings = Settings(network="mlp", image=(1, 8, 8), memory=60, max_classes=12)
    port, _ = running(Service(tmp_path_factory.mktemp("live"), settings, Limits(queue=300)))
    return f"http://127.0.0.1:{port}/"


def picture(pixels):
    held = io.BytesIO()
    Image.fromarray(pixels[0]).save(held, "PNG")
    return held.getvalue()


@pytest.mark.slow
def test_taught_asked_and_followed(url, visit):
    tab = visit(url, height=2400)
    settled(tab)
    assert tab.locator("#classes-none").is_visible()
    blob = picture(DIGITS.test.images[0])
    tab.set_input_files("#files", [file("first.png", blob)])
    wait_for_text(tab, "#tray", "not learnt any sample")  # says the service
    tab.fill("#label", "mine")
    tab.get_by_role("button", name="Teach", exact=True).click()
    wait_for_text(tab, "#tray", "✓ sample 1: mine")
    wait_for_text(tab, "#classes", "mine")
    wait_for_text(tab, "#learnt", "1")
    with Client(url) as client:
        labels = [DIGITS.classes[label] for label in DIGITS.train.labels[:250]]
        client.learn(DIGITS.train.images[:250], labels)
        client.wait(timeout=120)
    wait_for_text(tab, "#learnt", "251")
    settled(tab)
    assert tab.locator("#classes tbody tr").count() == 11
    tab.wait_for_selector("#curves[data-points]:not([data-points='0']) canvas")
    wait_for_text(tab, "#sheet", "mine")
    shown = tab.locator("#sheet img")
    tab.wait_for_function("() => document.querySelectorAll('#sheet ul').length === 11", timeout=30_000)
    assert shown.count() >= 11
    assert shown.first.evaluate("image => image.decode().then(() => image.naturalWidth)") >= 8
    tab.get_by_role("button", name="Clear").click()
    tab.set_input_files("#files", [file("again.png", blob)])
    wait_for_text(tab, "#tray", "model version 251")
    assert tab.locator("#tray ol li").count() == 3
    guess = tab.locator("#tray ol li bdi").first.inner_text()
    tab.get_by_role("button", name=f"Confirm {guess} for again.png").click()
    wait_for_text(tab, "#tray", f"✓ sample 252: {guess}")
    wait_for_text(tab, "#tray", "model version 252")  # asked again
    tab.fill("#tray input", "mine")
    tab.get_by_role("button", name="Relabel again.png").click()
    wait_for_text(tab, "#tray", "✓ sample 252: mine")
    wait_for_text(tab, "#confusion-key", "recent answers were wrong")


@pytest.mark.slow
def test_it_fits_a_phone(url, visit):
    tab = visit(url, width=360, height=2400)
    settled(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360

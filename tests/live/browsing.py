"""What the tests of the page in a browser wait for and give it."""

from __future__ import annotations

import math

from tests.live.fake_service import png


def learning(fake, points=40):
    """A service that has met three classes."""
    fake.learn("cat", 400)
    fake.learn("dog", 250)
    fake.learn("bird", 90)
    for i in range(1, points):
        fake.point(i * 20, 0.8 - 0.5 * math.exp(-i / 12), 0.85 - 0.5 * math.exp(-i / 6), 3e-4 * 0.98**i)
    return fake


def file(name="one.png", content=None, kind="image/png"):
    return {"name": name, "mimeType": kind, "buffer": png(1, 2) if content is None else content}


def settled(tab, state="idle"):
    tab.wait_for_selector(f"#state[data-state={state}]")


def wait_for_text(tab, selector, text):
    tab.wait_for_function("([s, t]) => document.querySelector(s)?.innerText.includes(t)", arg=[selector, text])

"""What the tests of the page in a browser wait for and give it."""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image


def learning(toy):
    """Lets it meet three classes."""
    toy.teach("cat", 400)
    toy.teach("dog", 250)
    toy.teach("bird", 90)
    for i in range(1, 40):
        toy.point(i * 20, 0.8 - 0.5 * math.exp(-i / 12), 0.85 - 0.5 * math.exp(-i / 6), 3e-4 * 0.98**i)


def png(size=32):
    """A grey picture."""
    held = io.BytesIO()
    Image.fromarray(np.arange(size * size).reshape(size, size).astype(np.uint8)).save(held, "PNG")
    return held.getvalue()


def file(name="one.png", content=None, kind="image/png"):
    return {"name": name, "mimeType": kind, "buffer": png() if content is None else content}


def settled(tab, state="idle"):
    tab.wait_for_selector(f"#state[data-state={state}]")


def wait_for_text(tab, selector, text):
    tab.wait_for_function("([s, t]) => document.querySelector(s)?.innerText.includes(t)", arg=[selector, text])

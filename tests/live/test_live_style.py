"""The style of the live page: the library under its licence, and colours readable in light and dark."""

from __future__ import annotations

import re

import numpy as np
import pytest

from iblurry.live import page


def test_the_chart_library_has_its_licence_and_version():
    for name in ("uplot.js", "uplot.css"):
        assert page.asset(name)[0].startswith(b"/*!\nThe MIT License (MIT)")
    assert b"(v1.6.32)" in page.asset("uplot.js")[0]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_are_told_from_the_paper_they_are_on(scheme):
    """WCAG 2: text 4.5 to 1, lines 3 to 1."""
    block = re.findall(r"\{([^{}]*--page[^{}]*)\}", page.asset("style.css")[0].decode())[scheme]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    for ground in ("page", "card", "head"):
        for ink in ("ink", "muted", "accent", "miss"):
            assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for line in range(7):
        assert _contrast(colours[f"c{line}"], colours["card"]) >= 3, line


def _contrast(one, other):
    bright, dark = sorted(map(_luminance, (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour):
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]

"""The live page's files: all there, all used, small, and safe under the strictest policy."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from iblurry.errors import UnknownNameError
from iblurry.live import page

SCRIPTS = [name for name in page.ASSETS if name.endswith(".js")]


def text(name):
    return page.asset(name)[0].decode()


class Elements(HTMLParser):
    """The attributes of every element, and what stands in scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.attributes, self.inline, self.inside = [], "", None
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.attributes += attributes
        self.inside = name

    def handle_data(self, data):
        if self.inside in ("script", "style"):
            self.inline += data.strip()

    def all(self, *names):
        return [value for name, value in self.attributes if name in names]


@pytest.mark.parametrize("name", page.names())
def test_a_file_comes_with_its_type(name):
    content, kind = page.asset(name)
    expected = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert kind == expected[name.rsplit(".")[-1]] + "; charset=utf-8"
    assert len(content) > 100
    assert page.asset(name)[0] is content  # read once


@pytest.mark.parametrize("name", ["", "..", "../__init__.py", "assets/main.js", "main.JS", "/etc/passwd", "LICENSE"])
def test_other_names_are_unknown(name):
    with pytest.raises(UnknownNameError, match="no file of the page called"):
        page.asset(name)


def test_every_file_is_reached_from_the_page_and_exists():
    index, docs = (Elements(text(name)) for name in ("index.html", "docs.html"))
    places = [*index.all("src", "href"), *docs.all("src", "href")]
    linked = [place.removeprefix("assets/") for place in places if place.startswith("assets/")]
    imported = {found for name in SCRIPTS for found in re.findall(r'(?:from|import) "\./([\w.]+)"', text(name))}
    assert {*linked, *imported, "index.html", "docs.html"} == set(page.names())
    others = [place for place in index.all("src", "href") if not place.startswith("assets/")]
    assert sorted(others) == ["#main", "docs"]  # relative: the service may live below a path


def test_scripts_ask_for_elements_that_exist():
    ids = []
    for name in ("index.html", "docs.html"):
        own = Elements(text(name)).all("id")
        assert len(own) == len(set(own))
        ids += own
    cards = re.findall(r"(\w+): \"", text("status.js").split("const BARS")[0])
    made = {id + end for id in cards for end in ("", "-of", "-bar")}
    asked = {id for name in SCRIPTS for id in re.findall(r'\bat\("([\w-]+)"\)', text(name))}
    assert asked <= {*ids, *made}


def test_nothing_needs_a_looser_policy():
    index = Elements(text("index.html"))
    assert index.inline == ""
    assert not [name for name, _ in index.attributes if name == "style" or name.startswith("on")]
    assert not re.search("unsafe|https?:|[*]", page.POLICY)
    assert page.POLICY.startswith("default-src 'none'; script-src 'self'; style-src 'self';")


@pytest.mark.parametrize("name", [*SCRIPTS, "live.css", "docs.css"])
def test_files_are_short_and_say_what_they_are(name):
    assert text(name).count("\n") <= 300
    assert text(name).startswith(("// ", "/* "))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|XMLHttp|https?:|url\(", text(name)
    )


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

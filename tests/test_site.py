"""The documentation site builds without a warning, describes every public name, fits screens, and asks no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import iblurry

ROOT = Path(__file__).parent.parent
LOADED = r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?([^\"' >]+)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    if shutil.which("npm") is None:
        pytest.skip("the site's formulas need npm, which fetches MathJax")
    folder: Path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_screen(site, browser, width, scheme):
    """Nothing but tables and code, which scroll by themselves, is wider than the window; no script fails."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(error))
    for name in ("index", "start", "tutorials/paper", "concepts/i-blurry", "reference/parts", "faq", "methods/clib"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        if width == 1280:  # a table fits; on a phone the widest ones scroll by themselves
            boxes = "[...document.querySelectorAll('.md-typeset__scrollwrap')]"
            assert page.evaluate(f"{boxes}.filter(box => box.scrollWidth > box.clientWidth).length") == 0, name
        if name == "methods/clib":
            page.wait_for_selector("div.arithmatex mjx-container svg")
            assert page.evaluate("document.querySelectorAll('mjx-merror').length") == 0
    shown = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", shown)[:3])) > 380) == (scheme == "light")
    assert not errors
    context.close()


@pytest.mark.slow
def test_search_finds_an_answer_from_the_disk(site, browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("continue a killed run")
    page.click(".md-search-result__item a", timeout=20_000)
    page.wait_for_url("**/faq.html*")
    context.close()


@pytest.mark.slow
def test_every_public_name_is_described(site):
    headings = {
        name
        for page in (site / "reference").glob("*.html")
        for name in re.findall(r'<h\d id="iblurry\.(?:\w+\.)*(\w+)" class="doc doc-heading">', page.read_text("utf-8"))
    }
    assert set(iblurry.__all__) - {"__version__"} <= headings
    parts = re.sub(r"<[^>]+>", "", (site / "reference" / "parts.html").read_text("utf-8"))
    assert re.search(r"Importance\(\s*\*,\s*step: float = 0.1,", parts)


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        for target in re.findall(LOADED, page.read_text("utf-8")):
            assert not unescape(target).startswith(("http", "//")), f"{page.name} loads {target}"

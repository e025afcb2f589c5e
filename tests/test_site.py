"""The documentation site builds without a warning, describes every public name, and asks no network."""

from __future__ import annotations

import re
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
    folder: Path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_public_name_is_described(site):
    headings = {
        name
        for page in (site / "reference").glob("*.html")
        for name in re.findall(r'<h\d id="iblurry\.(?:\w+\.)*(\w+)" class="doc doc-heading">', page.read_text("utf-8"))
    }
    assert set(iblurry.__all__) - {"__version__"} <= headings


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        for target in re.findall(LOADED, page.read_text("utf-8")):
            assert not unescape(target).startswith(("http", "//")), f"{page.name} loads {target}"

"""A page per method, with every field of every part it brings."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from iblurry.methods import METHODS
from iblurry.parts.part import hyper_parameters

PAGES = Path(__file__).parent.parent / "docs" / "methods"
MAIN = [name for name in METHODS if "-" not in name]


@pytest.mark.parametrize("name", MAIN)
def test_every_method_has_a_page_with_its_parts_and_their_fields(name):
    page = (PAGES / f"{name}.md").read_text()
    made, plain = METHODS[name](), METHODS["er"]()
    usual = set() if name == "er" else {repr(part) for _, part in plain.parts()}
    for part in [part for _, part in [*made.parts(), *(made.refit.parts() if made.refit else ())]]:
        if repr(part) in usual:
            continue
        row = next((line for line in page.splitlines() if line.startswith(f"| `{type(part).__name__}`")), None)
        assert row, f"{name}.md does not list {type(part).__name__}"
        for field in hyper_parameters(part):
            assert f"`{field}`" in row, f"{name}.md does not list {type(part).__name__}.{field}"
    assert "**Differs.**" in page
    groups = [made.pace] * (name in ("er", "clib", "gdumb", "rm")) + [made.head] * (name == "rm")
    for group in [*groups, *([made.refit.optimizer] if made.refit else [])]:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{type(group).__name__}`"))
        assert all(f"`{field.name}`" in row for field in fields(group))


def test_no_page_without_a_method():
    assert {page.stem for page in PAGES.glob("*.md")} == set(MAIN)

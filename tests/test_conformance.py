"""The table of conformance checks: complete, every test it names exists, and no golden number goes unused."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = (HERE / "conformance.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|$", TABLE, re.MULTILINE)
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)
SOURCES = [path.read_text() for path in HERE.rglob("*.py")]


def test_every_check_has_a_row_with_tests():
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 42))
    assert all("::test_" in tests for _, _, tests in ROWS)


@pytest.mark.parametrize("file, test", sorted(set(NAMED)))
def test_the_tests_of_a_check_exist(file, test):
    found = ast.parse((HERE.parent / file).read_text()).body
    assert test in {node.name for node in found if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("key", [key for key in json.loads((HERE / "golden.json").read_text()) if key != "_about"])
def test_every_golden_number_is_used(key):
    assert any("golden" in source and f'["{key}"]' in source for source in SOURCES)

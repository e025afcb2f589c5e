"""The table of conformance checks: complete, every test it names exists, and no golden number goes unused."""

from __future__ import annotations

import ast
import functools
import json
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = (HERE / "conformance.md").read_text()
GOLDEN = json.loads((HERE / "golden.json").read_text())
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def checks(table: str) -> dict[int, list[tuple[str, str]]]:
    """The (file, function) pairs of each numbered row; a number that comes twice is refused."""
    found: dict[int, list[tuple[str, str]]] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and cells[0].isdecimal():
            number, words, tests = cells
            assert int(number) not in found, f"check {number} has two rows"
            assert words, f"check {number} says nothing"
            found[int(number)] = TEST_ID.findall(tests)
    return found


def functions(source: str) -> set[str]:
    """The functions of a module that are not inside anything."""
    return {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def golden_keys(source: str) -> set[str]:
    """The entries a test file takes out of the golden numbers: `golden["x"]`, or `json.loads(...)["x"]`."""
    return {
        node.slice.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and re.fullmatch(r"(golden|GOLDEN|json\.loads\(.*\bgolden\.json\b.*\))", ast.unparse(node.value))
    }


def strings(source: str) -> re.Pattern[str]:
    """Matches each string a module writes out; where an f-string has a value, anything fits."""
    tree, patterns = ast.parse(source), set()
    holed = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    pieces = {id(value) for node in holed for value in node.values}
    for node in holed:
        parts = [re.escape(v.value) if isinstance(v, ast.Constant) else r"\w+" for v in node.values]
        if any(part != r"\w+" for part in parts):
            patterns.add("".join(parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            patterns.add(re.escape(node.value))
    return re.compile("|".join(sorted(patterns)))


def parts_of(entry: object) -> set[str]:
    """The names of the numbers in an entry at any depth; prose, a string or a list of strings, is not among them."""
    if isinstance(entry, list):
        return set().union(*(parts_of(each) for each in entry if isinstance(each, dict)))
    names: set[str] = set()
    for name, value in entry.items() if isinstance(entry, dict) else ():
        prose = isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
        names |= set() if prose else {name} | parts_of(value)
    return names


@functools.cache
def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in HERE.rglob("*.py") if path != Path(__file__)}


@functools.cache
def users() -> dict[str, list[str]]:
    """The sources that use each golden entry."""
    using: dict[str, list[str]] = {}
    for source in sources().values():
        for key in golden_keys(source):
            using.setdefault(key, []).append(source)
    return using


def test_every_check_has_its_row():
    assert list(checks(TABLE)) == list(range(1, 42))


@pytest.mark.parametrize("number", checks(TABLE))
def test_the_tests_of_a_check_exist(number):
    named = checks(TABLE)[number]
    assert named, f"check {number} names no test"
    for file, function in named:
        assert (HERE.parent / file).is_file(), f"{file} is not there"
        assert function.startswith("test_")
        assert function in functions((HERE.parent / file).read_text()), f"{file} has no {function}"


def test_what_is_named_below_the_table_exists_too():
    for file, function in TEST_ID.findall(TABLE[TABLE.index("Beyond the checks") :]):
        assert (HERE.parent / file).is_file(), f"{file} is not there"
        assert function in functions((HERE.parent / file).read_text()), f"{file} has no {function}"


@pytest.mark.parametrize("key", [key for key in GOLDEN if key != "_about"])
def test_every_golden_number_is_used(key):
    using = users().get(key, [])
    assert using, f"no test uses golden[{key!r}]"
    found = [strings(source) for source in using]
    unused = {part for part in parts_of(GOLDEN[key]) if not any(each.fullmatch(part) for each in found)}
    assert not unused, f"no test that uses golden[{key!r}] speaks of {sorted(unused)}"


def test_the_table_is_read_row_by_row():
    text = "| check | what | tests |\n|---|---|---|\n| | **Some** | |\n| 1 | it adds | `tests/a/test_b.py::test_c` |\n"
    assert checks(text) == {1: [("tests/a/test_b.py", "test_c")]}
    assert checks(text + "| 3 | two | `tests/x.py::test_y`, `tests/x.py::test_z` |")[3] == [
        ("tests/x.py", "test_y"),
        ("tests/x.py", "test_z"),
    ]
    assert checks(text + "| 2 | none | soon |")[2] == []
    with pytest.raises(AssertionError, match="two rows"):
        checks(text + "| 1 | again | `tests/x.py::test_y` |")
    with pytest.raises(AssertionError, match="says nothing"):
        checks(text + "| 2 | | `tests/x.py::test_y` |")


def test_only_functions_of_the_module_itself_count():
    assert functions("def test_a():\n    def test_b(): ...\nclass C:\n    def test_c(self): ...\n") == {"test_a"}


def test_only_what_is_taken_out_of_the_golden_numbers_counts():
    source = """
GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["whole"]
OTHER = json.loads(Path("facts.json").read_text())["facts"]
def test_a(golden):
    case = golden["first"]
    assert case["x"] == GOLDEN["second"]["y"] == summary["third"] == "fourth"
"""
    assert golden_keys(source) == {"whole", "first", "second"}


def test_strings_may_have_holes():
    found = strings("""x = "whole"; y = f"rand{seed}"; z = f"{rule}_after_each"; w = f"{anything}" """)
    assert [bool(found.fullmatch(s)) for s in ("whole", "rand3", "H_after_each")] == [True] * 3
    assert [bool(found.fullmatch(s)) for s in ("who", "rand", "H_before_each", "other")] == [False] * 4


def test_prose_is_no_number():
    entry = {"a": 1, "note": "about", "columns": ["x", "y"], "b": {"c": [1, 2], "d": "why"}, "e": [{"f": 1}, {"g": 2}]}
    assert parts_of(entry) == {"a", "b", "c", "e", "f", "g"}
    assert parts_of([entry, {"h": []}]) == {"a", "b", "c", "e", "f", "g"}

"""The house: who may import whom, how long a file may be, which names are public."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import iblurry

ROOT = Path(iblurry.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LAYERS = [  # imports only go up this list
    ["errors", "files", "version", "rng", "compute", "web"],
    ["data", "augment", "network"],
    ["streams", "memory", "engine"],
    ["parts"],
    ["training", "method", "trainer", "refitter", "learner", "cost"],
    ["methods"],
    ["experiment"],
    ["launch"],
    ["studies", "live", "estimator"],
    ["cli", "__main__"],
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
APART = [{"data", "augment", "network"}, {"studies", "live", "estimator"}]  # rooms of a floor, strangers
KINDS = ["admission", "rehearsal", "terms", "gradient", "schedule", "readout"]


def module(path):
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room(name):
    return name.split(".")[1] if name.count(".") else None


@pytest.mark.parametrize("path", FILES, ids=module)
def test_imports_go_up_the_list(path):
    mine = room(module(path))
    if mine is None:
        return  # the front door imports what it offers
    assert mine in LEVEL, f"{mine} has no place in the list of rooms"
    for name in imports(path):
        other = room(name) if name.startswith("iblurry.") else None
        if other is None or other == mine:
            continue
        assert LEVEL[other] <= LEVEL[mine], f"{module(path)} imports {name} from a later room"
        assert not any({mine, other} <= rooms for rooms in APART), f"{module(path)} imports {name} from next door"


@pytest.mark.parametrize("path", sorted((ROOT / "parts").rglob("*.py")), ids=module)
def test_kinds_of_parts_do_not_know_each_other(path):
    mine = next((kind for kind in KINDS if kind in path.parts), None)
    for name in imports(path):
        kind = next((k for k in KINDS if name.startswith(f"iblurry.parts.{k}.")), None)
        assert mine is None or kind in (None, mine), f"{module(path)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=module)
def test_files_are_short_and_say_what_they_are(path):
    text = path.read_text()
    assert text.count("\n") <= 400
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "a module says in one sentence what it is"


def test_data_does_not_need_torch():
    assert not [module(p) for p in (ROOT / "data").rglob("*.py") for n in imports(p) if n.split(".")[0] == "torch"]


def test_public_names_are_exactly_what_the_front_door_offers():
    assert dir(iblurry) == sorted({*iblurry.__all__, *iblurry._EXTRA})
    assert {*iblurry.__all__, *iblurry._EXTRA} == {*iblurry._HOME_OF, "__version__"}
    assert not iblurry._EXTRA & set(iblurry.__all__)
    for name in iblurry.__all__:
        assert getattr(iblurry, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = iblurry.nothing


def test_the_front_door_opens_without_torch():
    code = "import sys, iblurry, iblurry.cli.main; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The structure: who may import whom, one meaning for each name, documented parameters, and the page that shows it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import iblurry
from iblurry import METHODS, parts
from tools import architecture

ROOT = Path(iblurry.__file__).parent
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text()
LAYERS = [re.findall(r"`(\w+)(?:\.py|/)`", row.split("|")[1]) for row in PAGE.splitlines() if row.startswith("| `")]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms} | {"version": 0, "__main__": len(LAYERS)}
INDEPENDENT = [{"data", "augment", "network"}, {"studies", "live", "estimator"}]  # of one layer, without imports
KINDS = ["admission", "rehearsal", "terms", "gradient", "schedule", "readout"]
IMPORTS = architecture.imports()


def test_imports_go_up_the_layers_of_the_page():
    for module, used in IMPORTS.items():
        if module == "iblurry":
            continue  # it imports what it exports
        mine = module.split(".")[1]
        for other in used - {"iblurry"}:
            room = other.split(".")[1]
            assert LEVEL[room] <= LEVEL[mine], f"{module} imports {other} from a later layer"
            assert room == mine or not any({mine, room} <= group for group in INDEPENDENT), f"{module} imports {other}"


def test_kinds_of_parts_do_not_import_each_other():
    for module, used in IMPORTS.items():
        mine, *others = ({kind for kind in KINDS if f"iblurry.parts.{kind}." in f"{name}."} for name in (module, *used))
        assert not mine or all(other <= mine for other in others), module


def test_no_modules_or_folders_import_each_other():
    """Also by annotations and inside functions."""
    assert architecture.circles(IMPORTS) == architecture.circles(architecture.rooms(IMPORTS)) == []


def test_the_picture_of_the_folders_is_drawn_from_the_imports():
    assert architecture.PICTURE.read_text() == architecture.picture(), "run: python -m tools.architecture"


def test_a_public_class_name_means_one_thing():
    trees = [ast.parse(path.read_text()) for path in ROOT.rglob("*.py")]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, times in names.items() if times > 1 and not name.startswith("_")] == []


def public_objects():
    """Classes and functions of the front door and of the parts."""
    for home in (iblurry, parts):
        for name in sorted({*home.__all__, *getattr(home, "_EXTRA", ())}):
            value = getattr(home, name)
            is_error = inspect.isclass(value) and issubclass(value, Exception)
            if not is_error and (inspect.isclass(value) or inspect.isfunction(value)):
                yield name, value


def undocumented(value):
    given = {
        parameter.name
        for parameter in inspect.signature(value).parameters.values()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    section = (inspect.getdoc(value) or "").partition("Parameters\n----------\n")[2]
    names = {word.strip() for line in re.findall(r"^(\S[^:\n]*) :", section, flags=re.M) for word in line.split(",")}
    if "**config" in section:  # its fields are documented once
        given -= set(inspect.signature(iblurry.LearnerConfig).parameters)
    return sorted(given - names - {"init"})


def test_every_public_object_documents_its_parameters():
    missing = {name: undocumented(value) for name, value in public_objects()}
    assert {name: names for name, names in missing.items() if names} == {}


@pytest.mark.parametrize(
    "modules, unwanted",
    [
        ("iblurry, iblurry.cli.main", {"torch", "numpy"}),
        (", ".join(name for name in IMPORTS if name.split(".")[1:2] in (["data"], ["streams"])), {"torch"}),
    ],
    ids=["the package and its command line", "data and streams"],
)
def test_what_opens_without_torch(modules, unwanted):
    code = f"import sys, {modules}; sys.exit(not sys.modules.keys().isdisjoint({unwanted}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_are_exactly_what_the_package_exports():
    assert dir(iblurry) == sorted({*iblurry.__all__, *iblurry._EXTRA})
    assert {*iblurry.__all__, *iblurry._EXTRA} == {*iblurry._HOME_OF, "__version__"}
    assert not iblurry._EXTRA & set(iblurry.__all__)
    assert all(getattr(iblurry, name) is not None for name in iblurry.__all__)
    assert {*METHODS, *parts.__all__} <= {name.replace("_", "-") for name in iblurry.__all__} | set(iblurry.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = iblurry.nothing


def test_type_checkers_find_every_public_name_where_it_is_at_run_time():
    body = ast.parse(Path(iblurry.__file__).read_text()).body
    (block,) = [node for node in body if ast.unparse(node).startswith("if TYPE_CHECKING:")]
    homes = {}
    for node in block.body:
        for name in [alias.name for alias in node.names]:
            names = importlib.import_module(node.module).__all__ if name == "*" else [name]
            homes |= dict.fromkeys(names, node.module)
    assert homes == iblurry._HOME_OF

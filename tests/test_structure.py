"""The structure: who may import whom, one meaning for each name, documented parameters, and the page that shows it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import iblurry
from iblurry import METHODS, parts
from tools import architecture

ROOT = Path(iblurry.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text()
LAYERS = [  # imports only go up this list
    ["errors", "version", "rng", "compute"],
    ["storage", "components"],
    ["data", "augment", "network"],
    ["streams", "engine"],
    ["parts"],
    ["methods"],
    ["learner"],
    ["experiment"],
    ["launch"],
    ["analysis"],
    ["studies", "live", "estimator"],
    ["cli", "__main__"],
]
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
INDEPENDENT = [{"data", "augment", "network"}, {"studies", "live", "estimator"}]  # of one layer, without imports
KINDS = ["admission", "rehearsal", "terms", "gradient", "schedule", "readout"]


def module(path):
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(path):
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def package(name):
    return name.split(".")[1] if name.count(".") else None


def test_imports_go_up_the_layers():
    for path in FILES:
        mine = package(module(path))
        if mine is None:
            continue  # iblurry/__init__.py imports what it exports
        assert mine in LEVEL, f"{mine} has no place in the layers"
        for name in imports(path):
            other = package(name) if name.startswith("iblurry.") else None
            if other is None or other == mine:
                continue
            assert LEVEL[other] <= LEVEL[mine], f"{module(path)} imports {name} from a later layer"
            assert not any({mine, other} <= group for group in INDEPENDENT), f"{module(path)} imports {name}"


def test_kinds_of_parts_do_not_import_each_other():
    for path in (ROOT / "parts").rglob("*.py"):
        mine = next((kind for kind in KINDS if kind in path.parts), None)
        for name in imports(path):
            kind = next((k for k in KINDS if name.startswith(f"iblurry.parts.{k}.")), None)
            assert mine is None or kind in (None, mine), f"{module(path)} imports {name}"


def test_files_have_a_docstring():
    for path, tree in TREES.items():
        assert not path.read_text().strip() or ast.get_docstring(tree), path


def test_a_public_class_name_means_one_thing():
    found = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module(path))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def public_objects():
    """Classes and functions of the front door and of the parts."""
    for home in (iblurry, parts):
        for name in sorted({*home.__all__, *getattr(home, "_EXTRA", ())}):
            value = getattr(home, name)
            is_error = inspect.isclass(value) and issubclass(value, Exception)
            if not is_error and (inspect.isclass(value) or inspect.isfunction(value)):
                yield name, value


def undocumented(value):
    given = [
        parameter.name
        for parameter in inspect.signature(value).parameters.values()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    section = (inspect.getdoc(value) or "").partition("Parameters\n----------\n")[2]
    names = {word.strip() for line in re.findall(r"^(\S[^:\n]*) :", section, flags=re.M) for word in line.split(",")}
    if "**config" in section:  # its fields are documented once
        given = sorted({*given} - set(inspect.signature(iblurry.LearnerConfig).parameters))
    return sorted(set(given) - names - {"init"})


def test_every_public_object_documents_its_parameters():
    missing = {name: undocumented(value) for name, value in public_objects()}
    assert {name: names for name, names in missing.items() if names} == {}


def test_data_does_not_need_torch():
    names = [module(path) for path in FILES if path.parent.name in ("data", "streams")]
    code = f"import sys, {', '.join(names)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_are_exactly_what_the_package_exports():
    assert dir(iblurry) == sorted({*iblurry.__all__, *iblurry._EXTRA})
    assert {*iblurry.__all__, *iblurry._EXTRA} == {*iblurry._HOME_OF, "__version__"}
    assert not iblurry._EXTRA & set(iblurry.__all__)
    for name in iblurry.__all__:
        assert getattr(iblurry, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = iblurry.nothing


def test_type_checkers_find_every_public_name_where_it_is_at_run_time():
    (block,) = [
        node for node in TREES[Path(iblurry.__file__)].body if ast.unparse(node).startswith("if TYPE_CHECKING:")
    ]
    homes = {}
    for node in block.body:
        for name in [alias.name for alias in node.names]:
            names = importlib.import_module(node.module).__all__ if name == "*" else [name]
            homes |= dict.fromkeys(names, node.module)
    assert homes == iblurry._HOME_OF


def test_every_recipe_and_part_is_at_the_front_door():
    assert {*METHODS, *parts.__all__} <= {name.replace("_", "-") for name in iblurry.__all__} | set(iblurry.__all__)


def test_the_package_and_its_command_line_open_without_torch():
    code = "import sys, iblurry, iblurry.cli.main; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_picture_of_the_architecture_is_true():
    """Each arrow is a name that its file uses and the next file defines; six files, ending at the learner."""
    drawn = PAGE.partition("```text")[2].partition("```")[0]
    files, names = re.findall(r"^([\w/]+\.py)  ", drawn, re.M), re.findall(r"^  \| (\w+)$", drawn, re.M)
    assert len(files) == len(names) + 1 == 6
    assert files[-1] == "learner/learner.py"
    for source, name, target in zip(files, names, files[1:], strict=False):
        used = (ROOT / source).read_text()
        assert re.search(rf"\b{name}\b", used), f"{source} does not use {name}"
        defined = [getattr(node, "name", "") for node in ast.walk(TREES[ROOT / target])]
        assert name in defined, f"{target} does not define {name}"


def test_the_picture_of_the_folders_is_drawn_from_the_imports():
    assert architecture.PICTURE.read_text() == architecture.picture(), "run: python -m tools.architecture"


def test_no_modules_or_folders_import_each_other():
    """Also by annotations and inside functions."""
    modules = architecture.imports()
    assert architecture.circles(modules) == architecture.circles(architecture.rooms(modules)) == []


def test_the_table_of_layers_is_that_of_this_test():
    rows = [
        re.findall(r"`(\w+)(?:\.py|/)`", line.split("|")[1]) for line in PAGE.splitlines() if line.startswith("| `")
    ]
    hidden = {"version", "__main__"}
    assert [set(row) for row in rows] == [set(layer) - hidden for layer in LAYERS]

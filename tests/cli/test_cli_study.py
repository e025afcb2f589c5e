"""`iblurry study`: what is missing is run, whatever happens to workers and to itself; the table is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iblurry.errors import DiskFullError, StoppedError
from iblurry.launch import config, launch

ROOT = Path(__file__).parents[2]
DATA = "shapes:classes=10,train=10,test=2,size=8,channels=1"
SOME = ["main", "--dataset", DATA, "--methods", "er,clib", "--seeds", "1,2"]


def test_list(call):
    said = call("study", "list")
    assert said.code == 0
    assert "main - Table 1, Table 8" in said.out
    assert "curves - Figure 4" in said.out
    assert {one["name"]: one for one in json.loads(call("study", "list", "--json").out)}["gss"]["shows"] == ["Table 7"]


def test_what_is_missing_is_run_and_the_rest_is_kept(in_process, call, here):
    methods = ["main", "--dataset", DATA, "--methods", "er,er-constant", "--seeds"]
    said = call("study", *methods, "1")
    assert said.code == 0, said.err
    assert "er-constant" in said.out
    assert "(1)" in said.out
    runs = sorted(path.parent.name for path in here.glob("runs/*/summary.json"))
    assert len(runs) == 2
    before = {name: (here / "runs" / name / "summary.json").stat().st_mtime_ns for name in runs}
    more = call("study", *methods, "1,2")
    assert "(2)" in more.out
    assert {name: (here / "runs" / name / "summary.json").stat().st_mtime_ns for name in runs} == before
    assert call("table", *methods, "1", "--runs", "runs").out == said.out


def test_it_says_first_what_is_to_do_and_a_dry_run_does_nothing(in_process, call, here):
    given = ["main", "--dataset", DATA, "--methods", "er,clib", "--seeds"]
    said = call("study", *given, "1,2", "--dry-run")
    assert said.code == 0, said.err
    assert not list(here.iterdir())
    assert said.err == f"main on {DATA}: 4 of 4 runs to do, 0 done and kept.\n"
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[0] == ["row", "to", "do", "done", "training"]
    assert [line[:3] for line in lines[2:]] == [["er", "2", "0"], ["clib", "2", "0"]]

    call("study", *given[:3], "--methods", "er", "--seeds", "1")
    (run,) = here.glob("runs/*/summary.json")
    spent = json.loads(run.read_text())["compute"]["flops"]
    plan = json.loads(call("study", *given, "1,2,3", "--dry-run", "--json").out)
    er, clib = plan["rows"]
    assert (plan["to_do"], plan["done"]) == (5, 1)
    assert (er["to_do"], er["done"], clib["to_do"], clib["done"]) == (2, 1, 3, 0)
    assert er["training_flops"] == 2 * (sum(spent.values()) - spent["queries"])
    assert len(list(here.glob("runs/*"))) == 1

    again = call("study", *given[:3], "--methods", "er", "--seeds", "1", "--again", "--dry-run")
    assert "1 of 1 runs to do" in again.err
    assert run.exists()
    done = call("study", *given[:3], "--methods", "er", "--seeds", "1")
    assert done.err == f"main on {DATA}: 0 of 1 runs to do, 1 done and kept.\n"


def test_some_columns_at_a_smaller_scale(in_process, call, here):
    data = "shapes:classes=10,train=40,test=2,size=8,channels=1"
    part = ["--methods", "er", "--seeds", "1", "--only", "N=0", "--scale", "0.2"]
    said = call("study", "disjoint", "--dataset", data, *part)
    assert said.code == 0, said.err
    (run,) = here.glob("runs/*/summary.json")
    assert json.loads(run.read_text())["samples"] == 80
    assert "N=50" not in said.out


def test_a_column_on_published_orders(in_process, call, here):
    """The folder of the split files does not tell runs apart."""
    for seed, folder in ((1, "splits"), (2, "splits"), (1, "copy"), (2, "copy")):
        call("split", "--dataset", DATA, "--seed", seed, "--export", folder)
    chosen = ("study", "main", "--dataset", DATA, "--methods", "er,clib", "--seeds", "1,2", "--published")
    first, again = (call(*chosen, folder) for folder in ("splits", "copy"))
    assert (first.code, again.code, again.out) == (0, 0, first.out), first.err
    assert first.err.startswith(f"main on {DATA}: 4 of 4 runs to do, 0 done")
    assert again.err.startswith(f"main on {DATA}: 0 of 4 runs to do, 4 done")
    orders = {}
    for summary in here.glob("runs/*/summary.json"):
        run, about = (json.loads((summary.parent / name).read_text()) for name in ("summary.json", "experiment.json"))
        assert about["experiment"]["stream"]["Published"]["folder"] == "splits"
        order = json.loads((summary.parent / "environment.json").read_text())["order"]
        orders[run["method"], run["seed"]] = order
    assert orders.keys() == {(method, seed) for method in ("er", "clib") for seed in (1, 2)}
    assert orders["clib", 1] == orders["er", 1] != orders["er", 2] == orders["clib", 2]


def test_a_failure_is_said_and_the_others_are_done(monkeypatch, in_process, call, here):
    """Also in a folder of one's own, which the command that goes on with it names."""
    here_run = launch._run_queue

    def failing(queue, *rest):
        queue.waiting.popleft()
        queue.failures[queue.jobs[0].experiment.name] = DiskFullError("the disk is full")
        here_run(queue, *rest)

    monkeypatch.setattr(launch, "_run_queue", failing)
    said = call("study", *SOME[:-1], "1", "--out", "other")
    assert said.code == 1
    assert "er-shapes-1-" in said.err
    assert "the disk is full" in said.err
    assert "Not run yet: er." in said.out
    assert f"iblurry study main --dataset {DATA} --methods er --seeds 1 --out=other\n" in said.out


@pytest.mark.parametrize(
    "words, named",
    [
        ("mian", "'main'"),
        ("main --methods clip", "'clib'"),
        ("main --scale 0", "'--scale': 0"),
        ("disjoint --only N=7", "'N=7'"),
        ("main --on moon", "'moon'"),
        ("main --seeds 1,1", "twice"),
        ("compute --equal-compute er", "--equal-compute er"),
        ("compute --equal-bytes er", "--equal-bytes er"),
        ("main --equal-bytes eer", "'eer'"),
        ("main --methods er,ewc --equal-bytes er", "'ewc'"),
    ],
)
def test_refusals(words, named, refused):
    assert named in refused("study", *words.split())


@pytest.fixture
def on_gpus(monkeypatch):
    """Two GPUs that are not there; what would be started on them."""
    started = []

    class Started:
        def __init__(self, queue, config, stop, *, places, gpus):
            started.append((places, config.pack, list(gpus)))
            self.queue = queue

        def run(self):
            self.queue.failures = {job.experiment.name: StoppedError("there is no GPU") for job in self.queue.jobs}

    monkeypatch.setattr(launch, "LocalWorkers", Started)
    monkeypatch.setattr(launch, "visible_gpus", lambda: ["4", "7"])
    monkeypatch.setattr(config, "default_device", lambda *, heavy: "cuda")
    return started


@pytest.mark.parametrize(
    "words, processes, packed",
    [
        ("", 2, 2),  # one for each GPU, packed, as many in each
        ("--jobs 1", 1, 1),
        ("--jobs 3", 3, 1),
        ("--jobs 9", 4, 1),  # there are no more runs
        ("--pack 1", 2, 1),
        ("--pack 4", 2, 2),
        ("--pack 3 --jobs 1", 1, 3),
        ("--pack 2 --jobs 2", 2, 2),
        ("--pack 2 --jobs 3", 3, 2),
    ],
)
def test_jobs_and_packs_on_gpus(words, processes, packed, on_gpus, call):
    said = call("study", *SOME, *words.split())
    assert (said.code, "there is no GPU" in said.err) == (1, True)
    assert on_gpus == [(processes, packed, ["4", "7"])]


def test_on_a_cpu_nothing_is_packed_unless_told(on_gpus, call, monkeypatch):
    monkeypatch.setattr(config, "usable_cores", lambda: 4)
    for words in ("", "--jobs 2", "--pack 2"):
        call("study", *SOME, "--device", "cpu", *words.split())
    assert on_gpus == [(4, 1, []), (2, 1, []), (1, 2, [])]


@pytest.mark.slow
def test_killed_itself_and_its_workers_it_comes_to_the_same_table(call, here, request):
    command = [sys.executable, "-m", "iblurry", "study", *SOME, "--jobs", "2", "--save-samples", "5"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as first:
        end = time.monotonic() + 120
        while not list(here.glob("runs/*/checkpoint-*.safetensors")):
            assert time.monotonic() < end
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    request.getfixturevalue("in_process")
    assert call("study", *SOME, "--out", "alone").out == again.stdout

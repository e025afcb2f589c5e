"""`iblurry run`: runs, goes on, prints the table, draws the figure, keeps its streams apart."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time

import click
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from iblurry.analysis.describe import name_figure, seed_ranges
from iblurry.cli.options import Seeds
from iblurry.components.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Journal
from iblurry.launch.progress import ProgressDisplay
from iblurry.methods import METHODS
from tests.cli.conftest import QUICK

USUAL = ("clib", "er"), (1, 2, 3)


def folders(place):
    return sorted(path.parent for path in place.glob("*/experiment.json"))


def experiment(folder):
    return json.loads((folder / "experiment.json").read_text())["experiment"]


def curve(folder):
    lines = map(json.loads, (folder / "journal.jsonl").read_text().splitlines())
    return [100 * sum(line["correct"]) / sum(line["total"]) for line in lines if line["kind"] == "query"]


def test_table_figure_and_folders(quick, here):
    said = quick("clib", "er", "--seeds", "1,2")
    lines = said.out.splitlines()
    data = "shapes:classes=4,train=20,test=10,size=8,channels=1"
    assert lines[0] == f"{data}, i-Blurry-50-10, 2 tasks, memory 20, network mlp:width=16, samples 40"
    assert max(map(len, lines[1:])) <= 80
    found = folders(here / "runs")
    assert [(e["method"]["name"], e["seed"]) for e in map(experiment, found)] == [
        *(("clib", 1), ("clib", 2)),
        *(("er", 1), ("er", 2)),
    ]
    for name, runs in (("clib", found[:2]), ("er", found[2:])):
        areas = [np.mean(curve(run)) for run in runs]
        row = next(line.split() for line in lines if line.startswith(f"{name} "))
        assert row[1] == "2"
        assert row[2:5] == [f"{np.mean(areas):.2f}", "±", f"{np.std(areas, ddof=1):.2f}"]
    assert "Percent, mean ± sample standard deviation (n - 1) over 2 seeds." in lines
    (figure,) = (here / "runs").glob("shapes-*.png")
    at = lines.index(f"Figure: runs/{figure.name}")
    assert lines[at + 1].strip() == f"runs/{figure.stem}.svg"
    assert [line.removeprefix("Runs:").strip() for line in lines[-4:]] == [f"runs/{path.name}" for path in found]
    with Image.open(figure) as picture:
        assert picture.format == "PNG"
    assert figure.with_suffix(".svg").read_text().startswith("<?xml")


def test_seeds_may_be_ranges():
    assert Seeds().convert("1-3,7", None, None) == (1, 2, 3, 7)
    assert Seeds().convert(" 0 , 4 - 5 ", None, None) == (0, 4, 5)
    for wrong in ("3-1", "1-", "-3", "1-2-3", "1-3,2", "1-999999999999", "a-b", "1--3", "", "١-٣"):
        with pytest.raises(click.BadParameter) as refusal:
            Seeds().convert(wrong, None, None)
        assert wrong in refusal.value.message
    assert seed_ranges([7, 1, 2, 3]) == "1-3,7"


def test_the_figure_of_other_experiments_has_another_name():
    names = [
        name_figure([Experiment.of(method, data, seed=seed, **fields) for method in methods for seed in seeds], *USUAL)
        for methods, data, seeds, fields in (
            (("clib", "er"), "digits", (1, 2, 3), {}),
            (("clib", "er"), "digits", (1, 2), {}),
            (("clib", "er"), "digits", (1, 2, 3), {"memory": 50}),
            (("clib", "er"), "digits", (1, 2, 3), {"blur": 30}),
            (("clib", "er"), "digits", (1, 2, 3), {"samples": 100}),
            (("clib", "bic"), "digits", (1, 2, 3), {}),
            (("clib", "er"), "shapes:classes=4", (1, 2, 3), {}),
            (tuple(METHODS), "digits", (1, 2, 3), {}),
        )
    ]
    rows = [Experiment.of("er", "digits", seed=seed, **more) for more in ({}, {"memory": 50}) for seed in (1, 2, 3)]
    names += [name_figure(rows, *USUAL), name_figure(rows[3:], *USUAL), name_figure(rows[:3], *USUAL)]
    assert names[0] == "digits"
    assert names[2] == "digits-memory-50"
    assert names[7].startswith("digits-er-er-constant-er-averaged-")  # and a checksum in place of the others
    assert len({*names}) == len(names)
    assert max(map(len, names)) <= 60
    rate = edit(Experiment.of("er", network="convnet"), "schedule.gamma=0.999")
    name = name_figure([Experiment.of("er"), rate], *USUAL)
    assert name == "digits-er-er-network-convnet-schedule-gamma-0-999-seeds-1"


def test_where_there_is_no_terminal_there_are_lines(quick):
    said = quick("er", "--seeds", "1")
    assert "\x1b" not in said.out + said.err
    assert "━" not in said.err
    (line,) = said.err.splitlines()
    assert line.startswith("er seed 1: ")
    assert " % after 40 samples, " in line


@pytest.mark.parametrize("verb", ["run", "study main", "run --grid memory=50,100"])
def test_a_person_at_a_terminal_is_told_at_once_what_is_waited_for(here, verb):
    """Before torch is imported, which takes seconds: here it cannot be."""
    code = "import sys; sys.stderr.isatty = lambda: True; sys.modules['torch'] = None; sys.argv[0] = 'iblurry'; "
    code += "from iblurry.cli.main import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", code, *verb.split()]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.stderr.splitlines()[0] == "Loading PyTorch, then digits."


def test_what_is_done_is_kept(quick, here):
    first = quick("er", "--seeds", "1")
    (folder,) = folders(here / "runs")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    again = quick("er", "--seeds", "1,2")
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    assert [line.split(":")[0] for line in again.err.splitlines()] == ["er seed 2"]  # the first has nothing to say
    assert quick("er", "--seeds", "1") == (0, first.out, "")


def test_json(quick, here):
    said = quick("er", "--seeds", "1,2", "--json")
    about = json.loads(said.out)
    assert list(about) == ["title", "table", "figures", "runs"]
    found = folders(here / "runs")
    assert [run["folder"] for run in about["runs"]] == [f"runs/{path.name}" for path in found]
    for run, folder in zip(about["runs"], found, strict=True):
        summary = json.loads((folder / "summary.json").read_text())
        assert {key: run[key] for key in summary} == summary
        assert (run["row"], run["finished"]) == ("er", True)
        assert run["a_auc"] == pytest.approx(np.mean(curve(folder)) / 100)
    (row,) = about["table"]["rows"]
    areas = [np.mean(curve(folder)) for folder in found]
    assert (row["method"], row["n"]) == ("er", 2)
    assert row["a_auc"]["mean"] == pytest.approx(np.mean(areas))
    assert row["a_auc"]["std"] == pytest.approx(np.std(areas, ddof=1))
    assert all((here / path).exists() for path in about["figures"])


@pytest.mark.quick(".png", ".svg")
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_figure_goes_where_it_is_asked_to_and_nowhere_else(quick, here, suffix):
    quick("er", "--seeds", "1", "--figure", f"deep/er{suffix}")
    start = (here / f"deep/er{suffix}").read_bytes()[:5]
    assert start == {".png": b"\x89PNG\r", ".svg": b"<?xml", ".pdf": b"%PDF-"}[suffix.lower()]
    drawn = [path.name for path in here.rglob("*") if path.suffix.lower() in (".png", ".svg", ".pdf")]
    assert drawn == [f"er{suffix}"]


def test_options_reach_the_experiment(quick, here):
    options = ["--seeds", "7", "--out", "else/where", "--disjoint", "0", "--blur", "30", "--mode", "uneven"]
    options += ["--set", "admission=Balanced", "--set", "schedule.initial_lr=0.001", "--set", "pace.stream_batch=4"]
    said = quick("er", *options, "--tasks", "3", "--memory", "24", "--query-every", "20", "--samples", "30")
    (folder,) = folders(here / "else/where")
    made = experiment(folder)
    values = {"seed": 7, "memory": 24, "query_every": 20}
    assert made["stream"] == {"IBlurry": {"tasks": 3, "disjoint": 0, "blur": 30, "mode": "uneven"}}
    assert {name: made[name] for name in values} == values
    assert made["samples"] == 30
    assert made["network"] == "mlp:width=16"
    assert made["method"]["admission"] == {"Balanced": {}}
    assert made["method"]["schedule"]["Exponential"]["initial_lr"] == 0.001
    assert made["method"]["pace"]["stream_batch"] == 4
    assert "admission=Balanced" in said.out  # not the er one knows, so not called er
    assert not (here / "runs").exists()


def test_rows_have_changes_of_their_own(quick, here):
    """After those of --set, as in `iblurry study --methods`."""
    changed = "er schedule.initial_lr=0.001 memory=24"
    said = quick("er", changed, "--set", "schedule.initial_lr=0.01", "--seeds", "1")
    made = [experiment(folder) for folder in folders(here / "runs")]
    rates = [one["method"]["schedule"]["Exponential"]["initial_lr"] for one in made]
    assert sorted(zip(rates, [one["memory"] for one in made], strict=True)) == [(0.001, 24), (0.01, 20)]
    assert [line.split(" seed")[0] for line in said.err.splitlines()] == ["er", changed]


@pytest.mark.parametrize(
    "row, named",
    [
        ("er seed=3", "--seeds"),
        ("er dataset=digits", "--dataset"),
        ("memory=20", "'er memory=20'"),
        ("er memory=1", "memory=1"),
        ("", "''"),
    ],
)
def test_a_row_is_refused_before_anything_is_run(row, named, refused):
    assert named in refused("run", *QUICK, "er", row, "--seeds", "1")


def test_a_plain_run_is_balm_clib_and_er_on_digits(call, here, monkeypatch):
    asked = []

    def run_all(experiments, config, callbacks, failures):
        asked.extend(experiments)
        return []

    monkeypatch.setattr("iblurry.launch.launch.run_all", run_all)
    assert call("run").code == 130  # nothing came back, so it was stopped
    assert [(e.method.name, e.dataset, e.seed) for e in asked] == [
        (method, "digits", seed) for method in ("balm", "clib", "er") for seed in (1, 2, 3)
    ]


def test_launch_config(call, monkeypatch):
    configs = []
    monkeypatch.setattr(
        "iblurry.launch.launch.run_all", lambda experiments, config, callbacks, failures: configs.append(config) or []
    )
    call("run", "--jobs", "3", "--threads", "2", "--save-seconds", "0.5", "--save-samples", "9", "--data-home", "x")
    call("run", "--pack", "4")
    call("run")
    (config, packed, usual) = configs
    assert (config.jobs, config.threads, config.checkpoints.seconds, config.checkpoints.samples) == (3, 2, 0.5, 9)
    assert (str(config.out), str(config.data_home)) == ("runs", "x")
    assert (config.pack, packed.pack, usual.pack) == (1, 4, 1)
    assert (usual.jobs, usual.threads, usual.checkpoints.seconds, usual.checkpoints.samples) == (None, None, 30, None)


@pytest.mark.slow
def test_interrupted_and_continued(call, quick, here, monkeypatch):
    """Ctrl-C, the same command again: the table of a run nobody disturbed."""
    options = ["er", "clib", "--seeds", "1", "--save-seconds", "1000", "--json"]
    append = Journal.append

    def interrupt(journal, record):
        append(journal, record)
        if record.kind == "query":
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", interrupt)
        said = call("run", *QUICK, *options)
    assert (said.code, said.out) == (130, "")
    assert "saved in runs" in said.err.splitlines()[-1]
    assert not list(here.glob("runs/*/summary.json"))

    went_on, undisturbed = quick(*options), quick(*options, "--out", "other")
    assert "er seed 1: continues from sample 10 of 40" in went_on.err
    assert json.loads(went_on.out)["table"] == json.loads(undisturbed.out)["table"]
    same_journals(here / "runs", here / "other")


def same_journals(first, second):
    assert folders(first)
    for folder in folders(first):
        assert (folder / "journal.jsonl").read_bytes() == (second / folder.name / "journal.jsonl").read_bytes()


@pytest.mark.slow
def test_packed(quick, here):
    alone = quick("er", "clib", "--seeds", "1", "--json", "--out", "alone")
    packed = quick("er", "clib", "--seeds", "1", "--json", "--out", "packed", "--pack", "2")
    assert json.loads(packed.out)["table"] == json.loads(alone.out)["table"]
    assert [line.split(":")[0] for line in packed.err.splitlines()] == ["er seed 1", "clib seed 1"]
    same_journals(here / "packed", here / "alone")


OWN = " ".join(["run", "clib", *QUICK, "--import mine.py --set admission=Oldest --set admission.patience=5 --json"])


@pytest.mark.slow
def test_ones_own_parts_in_every_verb(call, apart, own, here):
    commands = (
        f"{OWN} --seeds 1",
        "show --import mine --json",
        "report --import mine.py",
        "table main --methods clib-oldest,clib --import mine.py",
        "methods --import mine.py",
        "methods --import mine --json",
    )
    made, shown, _, tabled, listed, everything = said = [call(*command.split()) for command in commands]
    assert [each.code for each in said] == [0] * len(said), made.err
    (folder,) = folders(here / "runs")
    (written,) = experiment(folder)["method"]["admission"]
    assert re.fullmatch("Oldest@[0-9a-f]{12}", written)
    assert [run["row"] for run in json.loads(made.out)["runs"]] == ["clib admission=Oldest"]
    assert json.loads(shown.out)["table"] == json.loads(made.out)["table"]
    assert "admission=Oldest" in (here / "report.html").read_text()
    assert "Not run yet: clib-oldest." in tabled.out
    assert "\nclib-oldest" in listed.out
    assert "CLIB that gives up the oldest." in listed.out
    about = json.loads(everything.out)
    assert about["methods"]["clib-oldest"]["paper"] == "mine"
    assert about["parts"]["admission"]["Oldest"] == {"patience": 3}
    shown_again, _ = apart("show --json", "report --out again.html")  # what was run can be read without its code
    assert json.loads(shown_again.out)["table"] == json.loads(made.out)["table"]
    assert "admission=Oldest" in (here / "again.html").read_text()


@pytest.mark.slow
def test_ones_own_part_also_in_workers(apart, own, here):
    (made,) = apart(f"{OWN} --seeds 1,2 --jobs 2")
    assert made.code == 0, made.err
    assert len(folders(here / "runs")) == 2


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 80 columns that remembers everything."""
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=80, highlight=False)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    return terminal


@pytest.mark.parametrize("name", ["er seed 1", "clib-exponential-released seed 12345"])
def test_bars_fit_80_columns(screen, name):
    with ProgressDisplay() as display:
        run = display.callback(name)
        run.on_run_start("ignored", 0, 1_281_167)
        run.began -= 600  # seconds
        run.on_progress(600_000, 0.999, 3.2e-4)
        bar = picture(display.bars)
        run.on_progress(1_281_167, 0.5, 3.2e-4)
        after = picture(display.bars)
    (line,) = bar.splitlines()
    assert len(line) <= 80
    for word in (name, "━", "47%", "99.9 %  lr 3e-04  1,000/s"):
        assert word in line
    assert name not in after  # done: no bar
    assert f"{name}: 50.0 % after 1,281,167 samples" in screen.getvalue()  # but a line


@pytest.mark.parametrize("is_terminal", [True, False])
def test_all_runs_are_counted_and_the_time_left_is_told(screen, capsys, monkeypatch, is_terminal):
    """By the rate so far of all runs together, of which a done one and what was done before are no part."""
    monkeypatch.setattr("iblurry.launch.progress.PAUSE", -1.0)
    monkeypatch.setattr(Console, "is_terminal", is_terminal)
    with ProgressDisplay("main", runs=4) as display:
        first, second, *_ = (display.callback(f"er seed {seed}", is_done=seed == 3) for seed in range(4))
        assert display.seconds_left() is None
        first.on_run_start("ignored", 150, 300)
        second.on_run_start("ignored", 0, 300)
        display.began -= 100
        first.on_progress(225, 0.5, 0.1)
        assert display.seconds_left() == pytest.approx(2.25 * 100 / 0.25, rel=0.01)
        second.on_run_end()  # a callback stopped it
        assert display.seconds_left() == pytest.approx(1.25 * 100 / 1.25, rel=0.01)
        shown = click.unstyle(picture(display.bars).splitlines()[0])
        first.on_progress(300, 0.5, 0.1)
    if is_terminal:
        assert "2 of 4 runs, about 1.7 min to go" in shown
        assert len(shown) <= 80
    else:
        assert "main: 3 of 4 runs, about 67 s to go." in capsys.readouterr().err.splitlines()


def test_a_stage_shows_on_its_bar_until_samples_pass(screen):
    with ProgressDisplay() as display:
        run = display.callback("er seed 1")
        run.on_run_start("ignored", 0, 1400)
        run.on_stage("compiling")
        assert "compiling" in picture(display.bars)
        run.on_progress(20, None, 0.05)
        assert "compiling" not in picture(display.bars)


def test_a_refit_shows_on_its_bar(screen):
    with ProgressDisplay() as display:
        run = display.callback("gdumb seed 1")
        run.on_run_start("ignored", 0, 1400)
        run.on_progress(300, 0.5, 0.05)
        run.on_refit_progress(12_750, 127_500)
        (line,) = picture(display.bars).splitlines()
    assert len(line) <= 80
    assert "50.0 %  refit 10 % of 127,500" in line


def test_a_long_refit_says_so_now_and_then(capsys, monkeypatch):
    clock = iter(range(0, 10_000, 25))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with ProgressDisplay() as display:
        run = display.callback("rm seed 1")
        run.on_run_start("ignored", 0, 300)
        run.on_progress(60, None, 0.1)
        for done in range(10, 100, 10):
            run.on_refit_progress(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"rm seed 1: after 60 of 300 samples, {done} % of a refit's 100 updates" for done in (20, 50, 80)]


def picture(bars):
    paper = io.StringIO()
    Console(file=paper, width=80).print(bars.get_renderable())
    return paper.getvalue()


def test_lines_come_now_and_then(capsys, monkeypatch):
    clock = iter(range(0, 10_000, 25))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with ProgressDisplay() as display:
        run = display.callback("er seed 1")
        run.on_run_start("ignored", 100, 300)
        for at in range(120, 301, 20):
            run.on_progress(at, None, 0.1)
        run.on_message("a [b]remark[/b]")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "er seed 1: continues from sample 100 of 300"
    assert lines[1:-2] == [
        f"er seed 1: after {at} of 300 samples, 1 a second" for at in (160, 220, 280)
    ]  # a look every 25 s, a line once 60 have gone by
    assert lines[-2:] == ["er seed 1: after 300 samples, 1 a second", "er seed 1: a [b]remark[/b]"]


@pytest.mark.slow
@pytest.mark.parametrize("seeds, jobs", [("1", 1), ("1,2", 1), ("1,2", 2)])
def test_an_exception_in_a_part_of_ones_own_has_one_exit_code(seeds, jobs, program, here):
    (here / "mine.py").write_text(
        "from iblurry.parts import Reservoir\n\n\n"
        "class Broken(Reservoir):\n"
        "    def admit(self, sample):\n"
        "        super().admit(sample)\n"
        "        return 1 / (self.context.memory.offered - 30)\n"
    )
    words = ["run", "er", *QUICK, "--import", "mine.py", "--set", "admission=Broken", "--seeds", seeds, "--jobs", jobs]
    said = subprocess.run([*program, *map(str, words)], capture_output=True, text=True, check=False)
    assert said.returncode == 1, said.stderr
    assert said.stdout == ""
    assert "Traceback" not in said.stderr
    last = said.stderr.splitlines()[-1]
    assert "ZeroDivisionError" in last
    assert "mine.py, line 7" in last
    assert "Traceback" in next(here.glob("runs/*/failure.txt")).read_text()


def test_a_folder_of_pictures_of_any_size_runs_without_options(call, here):
    rng = np.random.default_rng(0)
    for number in range(40):
        place = here / "pictures" / "abcd"[number % 4] / f"{number}.{('png', 'jpg')[number % 2]}"
        place.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (*rng.integers(12, 40, 2), 3), dtype=np.uint8)
        Image.fromarray(pixels if number % 3 else pixels[..., 0]).save(place)
    words = ("run", "er", "--dataset", "pictures/", "--seeds", "1", "--jobs", "1")
    said = call(*words)
    assert said.code == 0, said.err
    assert "32 training and 8 test images" in said.err
    assert "--tasks 2 --memory 20 --query-every 3 --network convnet" in said.err
    (folder,) = folders(here / "runs")
    assert len(curve(folder)) >= 10
    lines = (folder / "journal.jsonl").read_bytes()
    assert call(*words).code == 0  # finished: it is only read
    assert folders(here / "runs") == [folder]
    assert (folder / "journal.jsonl").read_bytes() == lines
    assert Experiment.of("er", "pictures/").name == folder.name
    assert "--tasks 2 --memory 18" in call(*words, "--memory", "18").err

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
from tests.cli.conftest import DATA, QUICK

USUAL = ("clib", "er"), (1, 2, 3)
OWN = '''
from iblurry.methods import clib, recipe
from iblurry.parts import Admission
from beside import THREE


class Oldest(Admission):
    patience: int = THREE

    def choose_row(self, sample):
        return self.context.memory.written_at[:-1].argmin(0, keepdim=True)


@recipe(paper="mine")
def clib_oldest(hyperparameters):
    """CLIB that gives up the oldest."""
    return clib(hyperparameters, name="clib-oldest", admission=Oldest())
'''
BROKEN = """
from iblurry.parts import Reservoir

class Broken(Reservoir):
    def admit(self, sample):
        super().admit(sample)
        return 1 / (self.context.memory.offered - 30)
"""


def folders(place):
    return sorted(path.parent for path in place.glob("*/experiment.json"))


def experiment(folder):
    return json.loads((folder / "experiment.json").read_text())["experiment"]


def curve(folder):
    lines = map(json.loads, (folder / "journal.jsonl").read_text().splitlines())
    return [100 * sum(line["correct"]) / sum(line["total"]) for line in lines if line["kind"] == "query"]


def test_table_figure_folders_and_json(quick, here):
    said = quick("clib", "er", "--seeds", "1,2")
    assert "\x1b" not in said.out + said.err
    lines, found = said.out.splitlines(), folders(here / "runs")
    assert lines[0] == f"{DATA}, i-Blurry-50-10, 2 tasks, memory 20, network mlp:width=16, samples 40"
    assert max(map(len, lines[1:])) <= 80
    names = [(e["method"]["name"], e["seed"]) for e in map(experiment, found)]
    assert names == [("clib", 1), ("clib", 2), ("er", 1), ("er", 2)]
    table = json.loads(quick("clib", "er", "--seeds", "1,2", "--json").out)
    assert list(table) == ["title", "table", "figures", "runs"]
    for name, runs, row in (
        ("clib", found[:2], table["table"]["rows"][0]),
        ("er", found[2:], table["table"]["rows"][1]),
    ):
        areas = [np.mean(curve(run)) for run in runs]
        words = next(line.split() for line in lines if line.startswith(f"{name} "))
        assert words[1:5] == ["2", f"{np.mean(areas):.2f}", "±", f"{np.std(areas, ddof=1):.2f}"]
        assert (row["method"], row["n"]) == (name, 2)
        assert row["a_auc"] == pytest.approx({"mean": np.mean(areas), "std": np.std(areas, ddof=1)})
    for run, folder in zip(table["runs"], found, strict=True):
        summary = json.loads((folder / "summary.json").read_text())
        assert {key: run[key] for key in summary} == summary
        assert (run["folder"], run["finished"]) == (f"runs/{folder.name}", True)
        assert run["a_auc"] == pytest.approx(np.mean(curve(folder)) / 100)
    (figure,) = (here / "runs").glob("shapes-*.png")
    assert table["figures"] == [f"runs/{figure.name}", f"runs/{figure.stem}.svg"]
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
    def made(methods, data="digits", seeds=(1, 2, 3), **fields):
        return [Experiment.of(method, data, seed=seed, **fields) for method in methods for seed in seeds]

    both = ("clib", "er")
    kinds = [made(both), made(both, seeds=(1, 2)), made(both, memory=50), made(both, blur=30), made(both, samples=100)]
    kinds += [made(("clib", "bic")), made(both, "shapes:classes=4"), made(("er",)), made(("er",), memory=50)]
    kinds += [[*made(("er",)), *made(("er",), memory=50)], made(tuple(METHODS))]
    names = [name_figure(kind, *USUAL) for kind in kinds]
    assert names[0] == "digits"
    assert names[2] == "digits-memory-50"
    assert names[-1].startswith("digits-er-er-constant-er-averaged-")  # and a checksum in place of the others
    assert len({*names}) == len(names)
    assert max(map(len, names)) <= 60
    rate = edit(Experiment.of("er", network="convnet"), "schedule.gamma=0.999")
    name = name_figure([Experiment.of("er"), rate], *USUAL)
    assert name == "digits-er-er-network-convnet-schedule-gamma-0-999-seeds-1"


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
    (line,) = first.err.splitlines()  # where there is no terminal there are lines
    assert line.startswith("er seed 1: ")
    assert " % after 40 samples, " in line
    (folder,) = folders(here / "runs")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    again = quick("er", "--seeds", "1,2")
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    assert [line.split(":")[0] for line in again.err.splitlines()] == ["er seed 2"]  # the first has nothing to say
    assert quick("er", "--seeds", "1") == (0, first.out, "")


@pytest.mark.quick(".svg")
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
    values = {"seed": 7, "memory": 24, "query_every": 20, "samples": 30, "network": "mlp:width=16"}
    assert {name: made[name] for name in values} == values
    assert made["stream"] == {"IBlurry": {"tasks": 3, "disjoint": 0, "blur": 30, "mode": "uneven"}}
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


def test_what_is_asked_of_the_launcher(call, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "iblurry.launch.launch.run_all", lambda experiments, config, *_, **__: asked.append((experiments, config)) or []
    )
    call("run", "--jobs", "3", "--threads", "2", "--save-seconds", "0.5", "--save-samples", "9", "--data-home", "x")
    call("run", "--pack", "4")
    assert call("run").code == 130  # nothing came back, so it was stopped
    (_, config), (_, packed), (experiments, usual) = asked
    assert (config.jobs, config.threads, config.checkpoints.seconds, config.checkpoints.samples) == (3, 2, 0.5, 9)
    assert (str(config.out), str(config.data_home)) == ("runs", "x")
    assert (config.pack, packed.pack, usual.pack) == (1, 4, 1)
    assert (usual.jobs, usual.threads, usual.checkpoints.seconds, usual.checkpoints.samples) == (None, None, 30, None)
    assert [(e.method.name, e.dataset, e.seed) for e in experiments] == [
        (method, "digits", seed) for method in ("balm", "clib", "er") for seed in (1, 2, 3)
    ]


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
    for folder in folders(here / "runs"):
        assert (folder / "journal.jsonl").read_bytes() == (here / "other" / folder.name / "journal.jsonl").read_bytes()


@pytest.mark.slow
def test_ones_own_parts_in_every_verb(call, apart, here):
    (here / "mine.py").write_text(OWN)
    (here / "beside.py").write_text("THREE = 3\n")
    changes = "--import mine.py --set admission=Oldest --set admission.patience=5"
    commands = (
        " ".join(["run", "clib", *QUICK, changes, "--seeds 1 --json"]),
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
@pytest.mark.parametrize("seeds, jobs", [("1", 1), ("1,2", 2)])
def test_an_exception_in_a_part_of_ones_own_has_one_exit_code(seeds, jobs, program, here):
    (here / "mine.py").write_text(BROKEN)
    words = ["run", "er", *QUICK, "--import", "mine.py", "--set", "admission=Broken", "--seeds", seeds, "--jobs", jobs]
    said = subprocess.run([*program, *map(str, words)], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (1, ""), said.stderr
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
    assert Experiment.of("er", "pictures/").name == folder.name
    assert "--tasks 2 --memory 18" in call(*words, "--memory", "18").err


# ------------------------------------------------------------------------------------------------------------ progress


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 80 columns that remembers everything."""
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=80, highlight=False)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    return terminal


def picture(bars):
    paper = io.StringIO()
    Console(file=paper, width=80).print(bars.get_renderable())
    return paper.getvalue()


@pytest.mark.parametrize("name", ["er seed 1", "clib-exponential-released seed 12345"])
def test_bars_fit_80_columns(screen, name):
    with ProgressDisplay() as display:
        run = display.callback(name)
        run.on_run_start("ignored", 0, 1_281_167)
        run.on_stage("compiling")
        assert "compiling" in picture(display.bars)
        run.began -= 600  # seconds
        run.on_progress(600_000, 0.999, 3.2e-4)
        (line,) = picture(display.bars).splitlines()
        run.on_refit_progress(12_750, 127_500)
        (refit,) = picture(display.bars).splitlines()
        run.on_progress(1_281_167, 0.5, 3.2e-4)
        after = picture(display.bars)
    assert max(len(line), len(refit)) <= 80
    for word in (name, "━", "47%", "99.9 %  lr 3e-04  1,000/s"):
        assert word in line
    assert "99.9 %  refit 10 % of 127,500" in refit
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


def test_lines_come_now_and_then(capsys, monkeypatch):
    """A look every 25 s, a line once 60 have gone by."""
    clock = iter(range(0, 10_000, 25))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with ProgressDisplay() as display:
        run, refit = display.callback("er seed 1"), display.callback("rm seed 1")
        run.on_run_start("ignored", 100, 300)
        for at in range(120, 301, 20):
            run.on_progress(at, None, 0.1)
        run.on_message("a [b]remark[/b]")
        refit.on_run_start("ignored", 0, 300)
        refit.on_progress(60, None, 0.1)
        for done in range(10, 100, 10):
            refit.on_refit_progress(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "er seed 1: continues from sample 100 of 300",
        *(f"er seed 1: after {at} of 300 samples, 1 a second" for at in (160, 220, 280)),
        *("er seed 1: after 300 samples, 1 a second", "er seed 1: a [b]remark[/b]"),
        *(f"rm seed 1: after 60 of 300 samples, {done} % of a refit's 100 updates" for done in (20, 50, 80)),
    ]

"""`iblurry show`: the same table from journals alone, rows with the right names, nothing counted twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from iblurry.analysis.describe import describe_settings, name_rows
from iblurry.components.edit import edit
from iblurry.experiment.experiment import Experiment
from tests.cli.conftest import QUICK


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Finished runs of clib and er with two seeds, and what `run` said of them."""
    from click.testing import CliRunner

    from iblurry.cli.run import run

    place = tmp_path_factory.mktemp("done") / "runs"
    said = CliRunner().invoke(run, ["clib", "er", "--seeds", "1,2", *QUICK, "--out", str(place), "--json"])
    return place, json.loads(said.stdout)


@pytest.fixture
def runs(done, here):
    """A copy of them, to do with as one likes."""
    shutil.copytree(done[0], here / "runs")
    return here / "runs"


def folders(place):
    return sorted(path.parent for path in place.glob("*/experiment.json"))


def unfinish(folder, queries):
    """As if the run had been killed after so many queries."""
    (folder / "summary.json").unlink()
    lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    ends = [at for at, line in enumerate(lines) if '"kind":"query"' in line]
    (folder / "journal.jsonl").write_text("".join(lines[: ends[queries - 1] + 1 if queries else 1]))


@pytest.mark.slow
def test_the_same_as_run_from_journals_alone(done, runs, call):
    for path in runs.rglob("*"):
        if path.name not in ("journal.jsonl", "experiment.json", "summary.json") and path.is_file():
            path.unlink()
    said = call("show", "runs", "--json")
    assert (said.code, said.err) == (0, "")
    about = json.loads(said.out)
    assert about["table"] == done[1]["table"]
    assert about["title"] == done[1]["title"]
    assert about["figures"] == []
    assert [run["folder"] for run in about["runs"]] == [f"runs/{path.name}" for path in folders(runs)]
    assert json.loads(call("show", "--json").out) == about  # runs is where runs are


def test_folders_and_folders_of_folders(runs, call, here):
    first, *rest = folders(runs)
    (here / "more").mkdir()
    for folder in rest:
        shutil.move(folder, here / "more" / folder.name)
    about = json.loads(call("show", "more", first, "--json").out)
    assert [row["n"] for row in about["table"]["rows"]] == [2, 2]
    again = json.loads(call("show", "more", first, "more", f"{here}/runs/../{first.relative_to(here)}", "--json").out)
    assert again["table"] == about["table"]  # a folder named twice is one folder


def test_a_copy_is_not_another_seed(runs, refused, here):
    twin = folders(runs)[0]
    shutil.copytree(twin, here / "copies" / twin.name)
    assert f"copies/{twin.name}" in refused("show", "runs", "copies")


@pytest.mark.slow
def test_unfinished_runs_count_as_far_as_they_got(runs, call):
    folder = folders(runs)[0]
    unfinish(folder, queries=2)
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write('{"kind":"que')  # killed while it wrote
    said = call("show")
    assert said.code == 0
    assert f"Not finished: runs/{folder.name}, 20 of 40 samples" in said.out.splitlines()
    about = json.loads(call("show", "--json").out)
    assert [run["finished"] for run in about["runs"]] == [False, True, True, True]
    assert (about["runs"][0]["samples"], about["runs"][0]["queries"], about["runs"][0]["seed"]) == (20, 2, 1)


def test_runs_that_have_nothing_to_show_are_left_out_aloud(runs, call):
    clib, other, *_ = folders(runs)
    unfinish(clib, queries=0)
    (other / "journal.jsonl").unlink()
    said = call("show", "--json")
    assert said.code == 0
    assert [row["method"] for row in json.loads(said.out)["table"]["rows"]] == ["er"]
    assert said.err.splitlines() == [f"runs/{folder.name} has no query yet and is skipped." for folder in (clib, other)]


def test_a_finished_run_without_queries_has_its_end(runs, call):
    for folder in folders(runs):
        lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
        (folder / "journal.jsonl").write_text("".join(line for line in lines if '"kind":"query"' not in line))
    said = call("show", "--json")
    assert (said.code, said.err) == (0, "")
    rows = json.loads(said.out)["table"]["rows"]
    assert [(row["method"], row["a_auc"]) for row in rows] == [("clib", None), ("er", None)]
    assert all(row["a_last"]["mean"] > 0 for row in rows)


def test_nothing_to_show_at_all(runs, call):
    for folder in folders(runs):
        unfinish(folder, queries=0)
    said = call("show")
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith("iblurry: No run in runs has a query yet; continue it with `iblurry run` first.\n")


@pytest.mark.quick(".svg-<?xml")
@pytest.mark.parametrize("suffix, start", [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_figure(runs, call, here, suffix, start):
    before = set(here.rglob("*"))
    said = call("show", "--figure", f"a/b{suffix}")
    assert said.code == 0
    assert f"Figure: a/b{suffix}" in said.out.splitlines()
    assert (here / f"a/b{suffix}").read_bytes().startswith(start)
    assert set(here.rglob("*")) - before == {here / "a", here / f"a/b{suffix}"}


def test_a_figure_that_fails_spoils_nothing(runs, call, monkeypatch):
    (runs / "accuracy.png").write_bytes(b"before")
    files = set(runs.iterdir())

    def fail(columns, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("iblurry.analysis.figures.curves.draw_curves", fail)
    said = call("show", "--json", "--figure", "runs/accuracy.png")
    assert (said.code, said.out) == (2, "")
    assert "The disk of runs is full" in said.err
    assert (runs / "accuracy.png").read_bytes() == b"before"
    assert set(runs.iterdir()) == files


def test_many_runs_are_counted_not_named(runs, call, monkeypatch):
    monkeypatch.setattr("iblurry.cli.show.FEW", 3)
    assert "Runs:   4 folders in runs" in call("show").out.splitlines()


def test_long_names_are_folded_not_cut(runs, call):
    for folder in folders(runs):
        about = json.loads((folder / "experiment.json").read_text())
        made = Experiment.from_json(about["experiment"])
        made = replace(made, method=replace(made.method, name=f"{made.method.name}-{'long' * 10}"))
        about |= {"digest": made.digest, "experiment": made.to_json()}
        (folder / "experiment.json").write_text(json.dumps(about))
    lines = call("show").out.splitlines()[1:]
    assert max(map(len, lines)) <= 80
    column = "".join(line.split(" ")[0] for line in lines[2:])
    assert "clib-" + "long" * 10 in column
    assert "er-" + "long" * 10 in column


def made(method, *changes, **fields):
    experiment = Experiment.of(method, fields.pop("dataset", "digits"), **fields)
    for change in changes:
        experiment = edit(experiment, change)
    return experiment


@pytest.mark.parametrize(
    "kinds, called",
    [
        ([made("clib"), made("er")], ["clib", "er"]),
        ([made("clib", memory=50), made("er", memory=50)], ["clib", "er"]),  # the title says it
        ([made("clib"), made("clib", memory=50)], ["clib", "clib memory=50"]),
        ([made("clib", memory=60), made("er", memory=50)], ["clib memory=60", "er memory=50"]),
        ([made("er", disjoint=0), made("er")], ["er disjoint=0", "er"]),
        ([made("er", "admission=Balanced")], ["er admission=Balanced"]),  # even alone it is not er
        ([made("er", "schedule.initial_lr=0.001"), made("er")], ["er schedule.initial_lr=0.001", "er"]),
        (
            [made("er", "admission=Importance", f"admission.step={step}") for step in (0.5, 0.75)],
            ["er admission=Importance admission.step=0.5", "er admission=Importance admission.step=0.75"],
        ),
        ([made("er", "pace.updates_per_sample=1/2")], ["er pace.updates_per_sample=1/2"]),
        (
            [made("er", dataset="shapes"), made("er")],
            ["er dataset=shapes", "er dataset=digits"],  # what is usual for each is not said
        ),
        ([made("er", "gradient=Clip"), made("er")], ["er gradient=Clip", "er"]),
        ([made("clib-released"), made("clib")], ["clib-released", "clib"]),
        ([made("er", "name=mine", memory=50)], ["mine"]),
        ([made("er", "name=mine"), made("clib", "name=mine", "admission=Reservoir", "schedule=Exponential")], None),
    ],
)
def test_names_of_rows(kinds, called):
    assert len(set(name_rows(kinds))) == len(kinds)
    if called is not None:
        assert name_rows(kinds) == called


WITHOUT_TORCH = """
import sys
try:
    {}
finally:
    assert "torch" not in sys.modules
"""


def without_torch(code):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH.format(code)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_table_needs_no_torch(runs, call):
    """Its import takes longer than all else."""
    assert without_torch("from iblurry.cli.main import main; main(['show'])") == call("show").out
    assert "er" in without_torch("from iblurry.cli.main import main; main(['methods', 'er'])")


VARIED = ["admission=Balanced", "optimizer=SGD", "network=mlp:width=64", "terms=CrossEntropy,Distil", "stream=Gaussian"]


def test_experiments_are_the_same_without_torch():
    code = f"""
    from iblurry.components.edit import edit
    from iblurry.experiment.experiment import Experiment
    from iblurry.methods import METHODS
    from iblurry.analysis.describe import describe_settings, name_rows
    made = [Experiment.of(name, data) for name in (*METHODS, "er-released") for data in ("digits", "imagenet")]
    made += [edit(Experiment.of("er"), change) for change in {VARIED}]
    assert [Experiment.from_json(one.to_json()) for one in made] == made
    result = [[one.digest for one in made], name_rows(made), describe_settings(made[::2]), made[0].pretrained]
"""
    here = {}
    exec(textwrap.dedent(code), here)
    assert json.loads(without_torch(f"{code}\n    import json; print(json.dumps(result))")) == here["result"]


def test_title():
    assert describe_settings([made("clib"), made("er")]) == "digits, i-Blurry-50-10, 5 tasks, memory 100"
    assert describe_settings([made("clib"), made("er", memory=50, blur=30)]) == "digits, 5 tasks"
    assert describe_settings([made("clib"), made("er", dataset="shapes")]) == "i-Blurry-50-10, 5 tasks, memory 100"
    whole = describe_settings(
        [made("clib", network="convnet", samples=200), made("er", network="convnet", samples=200)]
    )
    assert whole == "digits, i-Blurry-50-10, 5 tasks, memory 100, network convnet, samples 200"
    assert "network" not in describe_settings([made("clib", network="convnet"), made("er")])  # the rows say it

"""`iblurry show`: the same table from journals alone, rows with the right names, nothing counted twice; loggers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from iblurry.analysis.describe import describe_settings, name_rows
from iblurry.cli.main import main
from iblurry.components.edit import edit
from iblurry.experiment.experiment import Experiment
from tests.cli.conftest import QUICK
from tests.experiment.told import FINISHED, LINES, Recorder, begin, finish, write


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Finished runs of clib and er with two seeds."""
    place = tmp_path_factory.mktemp("done") / "runs"
    with pytest.raises(SystemExit):
        main(["run", "clib", "er", "--seeds", "1,2", *QUICK, "--out", str(place)])
    return place


@pytest.fixture
def runs(done, here):
    """A copy of them, to do with as one likes."""
    return shutil.copytree(done, here / "runs")


def folders(place):
    return sorted(path.parent for path in place.glob("*/experiment.json"))


def unfinish(folder, queries):
    """As if the run had been killed after so many queries."""
    (folder / "summary.json").unlink()
    lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    ends = [at for at, line in enumerate(lines) if '"kind":"query"' in line]
    (folder / "journal.jsonl").write_text("".join(lines[: ends[queries - 1] + 1 if queries else 1]))


def test_the_same_as_run_from_journals_alone(runs, quick, call):
    ran = json.loads(quick("clib", "er", "--seeds", "1,2", "--json").out)
    for path in runs.rglob("*"):
        if path.name not in ("journal.jsonl", "experiment.json", "summary.json") and path.is_file():
            path.unlink()
    said = call("show", "runs", "--json")
    assert (said.code, said.err) == (0, "")
    about = json.loads(said.out)
    assert (about["table"], about["title"]) == (ran["table"], ran["title"])
    assert about["figures"] == []
    assert [run["folder"] for run in about["runs"]] == [f"runs/{path.name}" for path in folders(runs)]
    assert json.loads(call("show", "--json").out) == about  # runs is where runs are


def test_folders_and_folders_of_folders(runs, call, refused, here):
    first, *rest = folders(runs)
    (here / "more").mkdir()
    for folder in rest:
        shutil.move(folder, here / "more" / folder.name)
    about = json.loads(call("show", "more", first, "--json").out)
    assert [row["n"] for row in about["table"]["rows"]] == [2, 2]
    again = json.loads(call("show", "more", first, "more", f"{here}/runs/../{first.relative_to(here)}", "--json").out)
    assert again["table"] == about["table"]  # a folder named twice is one folder
    shutil.copytree(first, here / "copies" / first.name)
    assert f"copies/{first.name}" in refused("show", "runs", "copies")  # a copy is not another seed


def test_runs_that_are_not_finished(runs, call):
    """They count as far as they got; those without a query are left out aloud."""
    clib, other, *_ = folders(runs)
    unfinish(clib, queries=2)
    with (clib / "journal.jsonl").open("a") as journal:
        journal.write('{"kind":"que')  # killed while it wrote
    assert f"Not finished: runs/{clib.name}, 20 of 40 samples" in call("show").out.splitlines()
    about = json.loads(call("show", "--json").out)
    assert [run["finished"] for run in about["runs"]] == [False, True, True, True]
    assert (about["runs"][0]["samples"], about["runs"][0]["queries"], about["runs"][0]["seed"]) == (20, 2, 1)
    unfinish(other, queries=0)
    (clib / "journal.jsonl").unlink()
    said = call("show", "--json")
    assert [row["method"] for row in json.loads(said.out)["table"]["rows"]] == ["er"]
    assert [line.split()[0] for line in said.err.splitlines()] == [f"runs/{folder.name}" for folder in (clib, other)]
    for folder in folders(runs):
        (folder / "journal.jsonl").unlink(missing_ok=True)
    said = call("show")
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 5)


def test_a_finished_run_without_queries_has_its_end(runs, call):
    for folder in folders(runs):
        lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
        (folder / "journal.jsonl").write_text("".join(line for line in lines if '"kind":"query"' not in line))
    said = call("show", "--json")
    assert (said.code, said.err) == (0, "")
    rows = json.loads(said.out)["table"]["rows"]
    assert [(row["method"], row["a_auc"]) for row in rows] == [("clib", None), ("er", None)]
    assert all(row["a_last"]["mean"] > 0 for row in rows)


def test_figure(runs, call, here):
    before = set(here.rglob("*"))
    said = call("show", "--figure", "a/b.svg")
    assert said.code == 0
    assert "Figure: a/b.svg" in said.out.splitlines()
    assert (here / "a/b.svg").read_bytes().startswith(b"<?xml")
    assert set(here.rglob("*")) - before == {here / "a", here / "a/b.svg"}


def test_a_figure_that_fails_spoils_nothing(runs, call, monkeypatch):
    (runs / "accuracy.png").write_bytes(b"before")
    files = set(runs.iterdir())

    def fail(columns, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("iblurry.analysis.figures.curves.draw_curves", fail)
    said = call("show", "--json", "--figure", "runs/accuracy.png")
    assert (said.code, said.out) == (2, "")
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
    return edit(Experiment.of(method, fields.pop("dataset", "digits"), **fields), *changes)


@pytest.mark.parametrize(
    "kinds, called",
    [
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
        ([made("er", dataset="shapes"), made("er")], ["er dataset=shapes", "er dataset=digits"]),  # not what is usual
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


def test_title():
    assert describe_settings([made("clib"), made("er")]) == "digits, i-Blurry-50-10, 5 tasks, memory 100"
    assert describe_settings([made("clib"), made("er", memory=50, blur=30)]) == "digits, 5 tasks"
    assert describe_settings([made("clib"), made("er", dataset="shapes")]) == "i-Blurry-50-10, 5 tasks, memory 100"
    small = {"network": "convnet", "samples": 200}
    whole = describe_settings([made("clib", **small), made("er", **small)])
    assert whole == "digits, i-Blurry-50-10, 5 tasks, memory 100, network convnet, samples 200"
    assert "network" not in describe_settings([made("clib", network="convnet"), made("er")])  # the rows say it


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


# --------------------------------------------------------------- loggers: the libraries themselves are tried elsewhere


@pytest.fixture
def asked(monkeypatch):
    """What is asked of a logger that only remembers."""
    asked = []

    def make(**given):
        asked.append(given)
        Recorder.runs.clear()
        return Recorder()

    for name in ("TensorBoard", "WandB", "MLflow"):
        monkeypatch.setattr(f"iblurry.experiment.callbacks.{name}", make)
    return asked


@pytest.fixture
def told(here):
    """Two runs that are finished and one that is under way."""
    for name in ("a", "b"):
        finish(begin(here / "runs" / name, LINES))
    begin(here / "runs" / "c", LINES[:5])
    return here / "runs"


def test_runs_go_to_a_logger_and_are_only_read(told, call, asked):
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in told.rglob("*") if path.is_file()}
    said = call("show", "--to", "tensorboard")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "runs/a: finished, in kept/a",
        "runs/b: finished, in kept/b",
        "runs/c: not finished, in kept/c",
    ]
    assert [Recorder.runs[name] for name in "ab"] == [FINISHED, FINISHED]
    assert [Recorder.closed[name] for name in "abc"] == [True, True, False]
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in told.rglob("*") if path.is_file()} == before
    begin(told / "d")  # one that has not begun is left out aloud
    said = call(
        "show", "runs/c", "runs/a", "runs/d", "runs/a", "--to", "mlflow", "--out", "x", "--project", "y", "--json"
    )
    assert json.loads(said.out) == [
        {"folder": "runs/c", "place": "kept/c", "finished": False},
        {"folder": "runs/a", "place": "kept/a", "finished": True},
    ]
    assert said.err.startswith("runs/d ")
    assert asked == [{}, {"out": "x", "project": "y"}]


@pytest.mark.parametrize(
    "words, named",
    [
        ("--out logs", "--out logs"),
        ("--project pets", "--project pets"),
        ("--to wandb --metric a_auc", "--to wandb"),
        ("--to tensorbord", "'tensorboard'"),
        ("nowhere --to tensorboard", "nowhere"),
        ("--to tensorboard --out runs/a/summary.json", "summary.json"),
        ("--to tensorboard --project x", "--project x"),
        ("runs more --to tensorboard", "runs/a and more/a"),  # one name
    ],
)
def test_what_no_logger_gets(told, refused, here, words, named):
    finish(begin(here / "more" / "a", LINES))
    assert named in refused("show", *words.split())


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_an_extra_that_is_not_installed(told, refused, name, monkeypatch):
    monkeypatch.setattr("iblurry.experiment.callbacks.find_spec", lambda _: None)
    assert f"iblurry[{name}]" in refused("show", "--to", name)


def test_a_damaged_journal_ends_it(told, call, asked):
    write(told / "b", [*LINES[:3], b"noise\n"])
    said = call("show", "--to", "tensorboard")
    assert (said.code, said.out.count("\n")) == (2, 1)
    assert "runs/b/journal.jsonl, line 4" in said.err
    assert list(Recorder.runs) == ["a"]

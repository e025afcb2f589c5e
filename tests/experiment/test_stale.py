"""A result is never another experiment's: edited code is another run, changed data are refused or run anew."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from iblurry import Dataset, Experiment, LaunchConfig, run, run_all
from iblurry.analysis.describe import group_runs
from iblurry.cli.main import main
from iblurry.errors import FolderError, InputError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.result import read_result
from tests.experiment.small import small

OLDEST = """
    from iblurry import Experiment, clib, run
    from iblurry.parts import Admission

    class Oldest(Admission):
        def choose_row(self, sample):
            return self.context.memory.written_at[:-1].argmin(0, keepdim=True)

    if __name__ == "__main__":
        method = clib(admission=Oldest())
        result = run(Experiment.of(method, "digits", samples=60, memory=20, query_every=30))
        print(result.metrics.a_auc, result.folder)
"""


@pytest.mark.slow
def test_an_edited_part_is_another_run(tmp_path, monkeypatch, capsys):
    script = tmp_path / "oldest.py"
    script.write_text(textwrap.dedent(OLDEST))
    command = [sys.executable, script.name]  # a process of its own
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    monkeypatch.chdir(tmp_path)
    runpy.run_path(script.name, run_name="__main__")
    assert capsys.readouterr().out.split() == first
    script.write_text(textwrap.dedent(OLDEST).replace("argmin", "argmax"))
    runpy.run_path(script.name, run_name="__main__")
    edited = capsys.readouterr().out.split()
    assert edited[1] != first[1]
    assert edited[0] != first[0]
    about = json.loads((tmp_path / first[1] / "experiment.json").read_bytes())
    ((name, source),) = about["sources"].items()
    assert name in about["experiment"]["method"]["admission"]
    assert (source["module"], source["name"]) == ("oldest", "Oldest")
    assert source["file"] == str((tmp_path / "oldest.py").resolve())
    named = group_runs([read_result(RunFolder(tmp_path / folder)) for _, folder in (first, edited)])
    assert len(named) == 2  # read without their code, and told apart


def write(path, flipped=False):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 20)
    images = rng.integers(0, 60, (80, 8, 8), dtype=np.uint8) + (60 * labels[:, None, None]).astype(np.uint8)
    shown = labels[::-1].copy() if flipped else labels
    np.savez(path, x_train=images, y_train=shown, x_test=images, y_test=shown)


@pytest.fixture
def four(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("four.npz")
    return small(dataset="four.npz")


def test_a_finished_run_of_other_data_is_refused_and_run_anew(four, tmp_path):
    first = run(four)
    assert run(four).records == first.records
    write("four.npz", flipped=True)
    with pytest.raises(FolderError, match=r"four\.npz.*--again"):
        run(four)
    with pytest.raises(FolderError, match=r"four\.npz.*--again"):
        run_all([four, small(dataset="four.npz", seed=2)], LaunchConfig(out=tmp_path / "runs"))
    assert read_result(RunFolder(first.folder)).records == first.records  # nothing was lost
    anew = run(four, again=True)
    assert anew.records != first.records
    assert run(four).records == anew.records


def test_data_that_are_gone_do_not_hide_a_finished_run(four, tmp_path):
    first = run(four)
    (tmp_path / "four.npz").unlink()
    assert run(four).records == first.records


def test_runs_on_two_versions_of_the_data_are_never_averaged(four):
    first = run(four)
    write("four.npz", flipped=True)
    other = run(small(dataset="four.npz", seed=2))
    names = group_runs([first, other])
    assert len(names) == 2
    assert all(" data=" in name for name in names)


def test_a_data_set_of_ones_own_is_known_by_its_content(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4
    one = Dataset.from_arrays(images, labels, images, labels, name="mine")
    other = Dataset.from_arrays(images, labels[::-1], images, labels, name="mine")
    first, second = (Experiment.of("er", data, tasks=2, memory=20, network="mlp") for data in (one, other))
    assert first.name.startswith("er-mine-1-")
    assert first.digest != second.digest
    assert first == Experiment.from_json(json.loads(json.dumps(first.to_json())))
    gone = first.to_json() | {"dataset": "mine@0123456789ab"}
    with pytest.raises(InputError, match="mine@0123456789ab"):
        run(Experiment.from_json(gone), tmp_path)


@pytest.mark.slow
def test_a_data_set_of_ones_own_runs_here_and_in_workers(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (80, 8, 8), dtype=np.uint8), np.arange(80) % 4
    data = Dataset.from_arrays(images, labels, images, labels, name="mine")
    experiments = [small(dataset=data, seed=seed) for seed in (1, 2)]
    here = [run(experiment, tmp_path / "here") for experiment in experiments]
    apart = run_all(experiments, LaunchConfig(out=tmp_path / "apart", jobs=2))
    assert [result.records for result in here] == [result.records for result in apart]


def test_a_script_is_not_run_again_when_it_is_imported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "loose.py").write_text(
        "from iblurry import Experiment, run\nrun(Experiment.of('er', 'digits', samples=10, query_every=5))\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["run", "er", "--import", "loose.py", "--samples", "10", "--seeds", "1"])
    assert ended.value.code == 2
    assert "__main__" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()

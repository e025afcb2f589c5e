"""Transforms of a user's own, those of docs/transforms.md among them: the laws, packs, workers and the command line."""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from iblurry import Augment, Experiment, LaunchConfig, TorchTransform, load, run, run_all
from iblurry.analysis.describe import describe_command, name_rows, run_command
from iblurry.cli.main import main
from iblurry.methods import METHODS, Hyperparameters
from iblurry.storage import checkpoint
from tests.experiment.small import kept, small
from tests.laws.lawful import assert_same_state, new_learner
from tests.laws.user_transforms import Brightness, Negative
from tests.printed import commands, python

PAGE = Path(__file__).parent.parent / "docs" / "transforms.md"
INVERT, USE, VISION = python(PAGE)[:3]


class Speckle(nn.Module):
    """As torchvision's: draws from torch's own generator, whether at all and how much."""

    def __init__(self, p=0.5):
        super().__init__()
        self.p = p

    def forward(self, image):
        return torch.where(torch.rand(image.shape) < 0.1, 255 - image, image) if torch.rand(1) < self.p else image


AUGMENTS = {
    "own": (Negative(), Augment(pad=1), Brightness()),
    "torch": (Augment(pad=1), TorchTransform(Speckle())),
    "torch, whole batches": (TorchTransform(Speckle(), per_image=False), Brightness()),
    "none": (),
}


@pytest.fixture
def invert(tmp_path, monkeypatch):
    """The page's transform, as the reader's file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "invert.py").write_text(INVERT)
    return lambda: importlib.import_module("invert").Invert


def feed(learner, samples, start=0, stop=40):
    for at, (image, label) in enumerate(samples[start:stop], start=start + 1):
        learner.observe(image, label)
        if at == 20:
            learner.end_task()


CASES = [  # each kind with each method in the slow ones
    pytest.param(method, name, marks=[pytest.mark.slow] * (method not in quick), id=f"{method} {name}")
    for name, quick in zip(AUGMENTS, [("er", "gdumb"), ("agem",), ("mir",), ("er",)], strict=True)
    for method in ("er", "mir", "agem", "gdumb")
]


@pytest.mark.parametrize("method, name", CASES)
def test_a_run_resumes_exactly_and_queries_change_nothing(method, name, samples, questions, tmp_path):
    method, augment = METHODS[method](Hyperparameters(batch=8, epochs=2)), AUGMENTS[name]
    whole, first, second = (new_learner(method, augment=augment, network="mlp:width=12") for _ in range(3))
    feed(whole, samples)
    feed(first, samples, stop=25)
    torch.rand(5)  # the generator of the program that goes on is elsewhere
    first.predict(questions)
    checkpoint.save(tmp_path, first.state_dict(), at=25)
    second.load_state_dict(checkpoint.load_latest(tmp_path).state)
    feed(second, samples, start=25)
    assert_same_state(second.state_dict(), whole.state_dict())
    assert torch.equal(second.logits(questions), whole.logits(questions))


@pytest.mark.quick("er", "gdumb")
@pytest.mark.parametrize("method", ["er", "mir", "agem", "gdumb"])
def test_every_one_makes_a_difference(method, samples, questions):
    method = METHODS[method](Hyperparameters(batch=8, epochs=2))
    answers = []
    for augment in AUGMENTS.values():
        learner = new_learner(method, augment=augment, network="mlp:width=12")
        feed(learner, samples)
        answers.append(learner.logits(questions))
    assert not any(torch.equal(a, b) for i, a in enumerate(answers) for b in answers[:i])


@pytest.mark.slow
def test_runs_side_by_side_are_as_alone(tmp_path):
    experiments = [small("er", samples=30, augment=augment) for augment in AUGMENTS.values()]
    alone = [kept(run(one, tmp_path / "alone").folder) for one in experiments]
    config = LaunchConfig(out=tmp_path / "packed", pack=len(experiments), jobs=1)
    assert [kept(result.folder) for result in run_all(experiments, config)] == alone


@pytest.mark.slow
def test_worker_processes_get_what_is_wrapped(tmp_path):
    experiments = [small("er", samples=30, augment=TorchTransform(Speckle()), seed=seed) for seed in (1, 2)]
    alone = [kept(run(one, tmp_path / "alone").folder) for one in experiments]
    results = run_all(experiments, LaunchConfig(out=tmp_path / "workers", jobs=2))
    assert [kept(result.folder) for result in results] == alone


# --------------------------------------------------------------------------------------------- the page


def call(*words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


@pytest.mark.slow
def test_the_commands_of_the_page(invert, tmp_path, capsys):
    for command in commands(PAGE):
        words = command.replace("er clib", "er").split()[1:]
        assert call(*words, "--seeds", "1", "--samples", "60", "--jobs", "1", "--figure", "one.svg") == 0
    files = tmp_path.glob("runs/*/experiment.json")
    experiments = [Experiment.from_json(json.loads(file.read_text())["experiment"]) for file in files]
    made, usual = invert(), Experiment.of("er").augment
    assert {one.augment for one in experiments} == {(usual, made(p=0.1)), made(), ()}
    capsys.readouterr()
    assert call("show", "runs") == 0
    shown = capsys.readouterr().out
    assert {"augment=Augment,Invert", "augment=Invert", "augment=none"} <= set(shown.split())


def test_the_python_of_the_page(invert, tmp_path, capsys):
    exec(compile(USE, "use.py", "exec"), {"__name__": "__main__"})
    assert "a_auc=0." in capsys.readouterr().out


def test_torchvision_as_on_the_page(monkeypatch):
    try:
        from torchvision.transforms import v2  # noqa: F401
    except (ImportError, RuntimeError):  # RuntimeError: built for another version of torch
        stand_in = types.SimpleNamespace(RandomErasing=Speckle)
        monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
        transforms = types.ModuleType("torchvision.transforms")
        transforms.v2 = stand_in
        monkeypatch.setitem(sys.modules, "torchvision.transforms", transforms)
    defined = {}
    exec(compile(VISION, "transforms.md", "exec"), defined)
    Experiment.of("er", augment=defined["augment"]).check(load("digits"))
    assert len([line for line in VISION.splitlines() if line]) <= 3


def test_rows_and_commands(invert):
    made = invert()
    usual = Experiment.of("er")
    rows = [usual, *(Experiment.of("er", augment=(usual.augment, made(p=p))) for p in (0.1, 0.2))]
    assert name_rows(rows) == [
        "er",
        "er augment=Augment,Invert augment.1.p=0.1",
        "er augment=Augment,Invert augment.1.p=0.2",
    ]
    command = run_command(rows[1:2])
    assert command.endswith("invert.py --set augment=Augment,Invert --set augment.1.p=0.1")
    wrapped = Experiment.of("er", augment=TorchTransform(Speckle()))
    assert "built in Python" in describe_command("er", [wrapped])

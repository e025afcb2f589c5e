"""Parts and transforms of a user's own, those of the pages on them, too: they obey the laws and do what they say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from iblurry import Augment, Experiment, LaunchConfig, TorchTransform, run, run_all
from iblurry.analysis.describe import name_rows, run_command
from iblurry.cli.main import main
from iblurry.methods import Hyperparameters, agem, clib, er, gdumb, mir
from iblurry.parts import CrossEntropy, Distil
from iblurry.parts.context import Forward
from iblurry.storage import checkpoint
from tests.experiment.small import kept, small
from tests.laws.lawful import assert_same_state, new_learner
from tests.laws.test_laws import feed
from tests.printed import commands, python

DOCS = Path(__file__).parent.parent / "docs"
SMALL = Hyperparameters(batch=8, epochs=2)


class Speckle(nn.Module):
    """As torchvision's: draws from torch's own generator, whether at all and how much."""

    def __init__(self, p=0.5):
        super().__init__()
        self.p = p

    def forward(self, image):
        return torch.where(torch.rand(image.shape) < 0.1, 255 - image, image) if torch.rand(1) < self.p else image


SPECKLE = (Augment(pad=1), TorchTransform(Speckle()))
BATCHES = TorchTransform(Speckle(), per_image=False)


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """What the pages define, in modules of a user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("parts.py").write_text("\n\n".join(python(DOCS / "parts.md")))
    Path("invert.py").write_text(python(DOCS / "transforms.md")[0])
    defined = vars(importlib.import_module("parts")) | vars(importlib.import_module("invert"))
    return lambda name, **fields: defined[name](**fields)


CASES = {  # a method and the learner's transforms
    "oldest": lambda own: (clib(SMALL, admission=own("Oldest")), Augment(pad=1, cutmix=0)),
    "ace": lambda own: (er(SMALL, terms=own("OwnClassesOnly")), Augment(pad=1, cutmix=0)),
    "average": lambda own: (clib(SMALL, readout=own("MovingAverage")), Augment(pad=1, cutmix=0)),
    "shared average": lambda own: (
        er(SMALL, terms=(CrossEntropy(), Distil()), readout=own("MovingAverage", decay=0.9), name="distilled"),
        Augment(pad=1, cutmix=0),
    ),
    "invert": lambda own: (er(SMALL), own("Invert")),
    "torch": lambda own: (er(SMALL), SPECKLE),
    "torch, projected": lambda own: (agem(SMALL), SPECKLE),
    "torch, whole batches": lambda own: (mir(SMALL), BATCHES),
    "torch, refitted": lambda own: (gdumb(SMALL), BATCHES),
    "none": lambda own: (er(SMALL), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_it_resumes_exactly_and_queries_change_nothing(case, pages, samples, questions, tmp_path):
    method, augment = CASES[case](pages)
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


def test_the_oldest_sample_leaves(pages, samples):
    learner = new_learner(clib(SMALL, admission=pages("Oldest")))
    memory = learner.context.memory
    for image, label in samples[:40]:
        before = memory.written_at[:-1].clone()
        was_full = memory.full
        learner.observe(image, label)
        if was_full:
            changed = (memory.written_at[:-1] != before).nonzero().flatten()
            assert changed.tolist() == [int(before.argmin())]


def test_streamed_samples_compete_among_their_own_classes(pages):
    logits, labels = torch.randn(5, 4), torch.tensor([0, 2, 2, 1, 3])
    forward = Forward(None, logits, labels, None, torch.ones(1), 3, torch.zeros(2), logits)
    stream = F.cross_entropy(logits[:3][:, [0, 2]], torch.tensor([0, 1, 1]))
    expected = stream + F.cross_entropy(logits[3:], labels[3:])
    torch.testing.assert_close(pages("OwnClassesOnly").loss(forward), expected)


def test_answers_come_from_the_average(pages, samples, questions):
    learner = new_learner(clib(SMALL, readout=pages("MovingAverage")))
    feed(learner, samples)
    asked, average = torch.from_numpy(questions), learner.context.shadow("average").network
    assert torch.equal(learner.logits(questions), learner.context.logits(asked, average))
    assert not torch.equal(learner.logits(questions), learner.context.logits(asked))


@pytest.mark.slow
@pytest.mark.parametrize("config", [{"jobs": 1, "pack": 3}, {"jobs": 2}], ids=["side by side", "in worker processes"])
def test_many_runs_are_as_alone(config, tmp_path):
    experiments = [small("er", samples=30, augment=augment) for augment in (SPECKLE, BATCHES, ())]
    alone = [kept(run(one, tmp_path / "alone").folder) for one in experiments]
    results = run_all(experiments, LaunchConfig(out=tmp_path / "together", **config))
    assert [kept(result.folder) for result in results] == alone


@pytest.mark.slow
def test_the_commands_of_the_page(pages, tmp_path, capsys):
    called = [command.replace("er clib", "er").split()[1:] for command in commands(DOCS / "transforms.md")]
    fast = ("--seeds", "1", "--samples", "60", "--jobs", "1", "--figure", "one.svg")
    for words in [*([*words, *fast] for words in called), ["show", "runs"]]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert not ended.value.code
    files = tmp_path.glob("runs/*/experiment.json")
    experiments = [Experiment.from_json(json.loads(file.read_text())["experiment"]) for file in files]
    usual = Experiment.of("er").augment
    assert {one.augment for one in experiments} == {(usual, pages("Invert", p=0.1)), pages("Invert"), ()}
    shown = capsys.readouterr().out
    assert {"augment=Augment,Invert", "augment=Invert", "augment=none"} <= set(shown.split())


def test_rows_and_commands(pages):
    usual = Experiment.of("er")
    rows = [usual, *(Experiment.of("er", augment=(usual.augment, pages("Invert", p=p))) for p in (0.1, 0.2))]
    assert name_rows(rows) == [
        "er",
        "er augment=Augment,Invert augment.1.p=0.1",
        "er augment=Augment,Invert augment.1.p=0.2",
    ]
    command = run_command(rows[1:2])
    assert command.endswith("invert.py --set augment=Augment,Invert --set augment.1.p=0.1")
    wrapped = Experiment.of("er", augment=TorchTransform(Speckle()))
    assert run_command([wrapped]).startswith("# er ")

"""The command of an experiment: given to the program, it makes that experiment again."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from iblurry.analysis.describe import name_rows, run_command
from iblurry.cli.run import make_experiments, run
from iblurry.components.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.parts import Elastic
from iblurry.streams import Gaussian, Listed

SETS = Path(__file__).parent.parent / "streams" / "published"


def edited(experiment, *changes):
    for change in changes:
        experiment = edit(experiment, change)
    return experiment


def parsed(text):
    """The experiments that `iblurry run` would make of it."""
    program, verb, *words = shlex.split(text)
    assert (program, verb) == ("iblurry", "run")
    values = run.make_context("run", words).params
    made = make_experiments(values["methods"], values)
    return list(made.values())


@pytest.mark.parametrize(
    "experiment, text",
    [
        (Experiment.of("clib", "cifar10"), "iblurry run clib --dataset cifar10 --seeds 1"),
        (Experiment.of("rm-released", "cifar10"), "iblurry run rm-released --dataset cifar10 --seeds 1"),
        (
            Experiment.of("er", "cifar10", disjoint=0, blur=30, memory=200, validate=0.2),
            "iblurry run er --dataset cifar10 --seeds 1 --memory 200 --disjoint 0 --blur 30 --validate 0.2",
        ),
        (
            Experiment.of("er", "toy.npz", disjoint=50, blur=25, tasks=2, published=SETS),
            f"iblurry run er --dataset toy.npz --seeds 1 --stream Published:folder={SETS},tasks=2,blur=25 --memory 500 "
            "--query-every 100",
        ),
        (
            Experiment.of("clib", share=0.1, memory=20),
            "iblurry run clib --dataset digits --seeds 1 --memory 20 --share 0.1",
        ),
        (
            edited(Experiment.of("ewc"), "schedule=Constant"),
            "iblurry run ewc --dataset digits --seeds 1 --set schedule=Constant",
        ),
        (
            edited(Experiment.of("er"), "admission=Importance", "admission.step=0.5", "augment.flip=true"),
            "iblurry run er --dataset digits --seeds 1 --set augment.flip=true --set admission=Importance "
            "--set admission.step=0.5",
        ),
        (
            edited(Experiment.of("gdumb"), "refit.optimizer.momentum=0.5", "readout.epochs=3"),
            "iblurry run gdumb --dataset digits --seeds 1 --set readout.epochs=3 --set refit.optimizer.momentum=0.5",
        ),
        (
            edited(Experiment.of("er", samples=90), "gradient=Clip", "pace.updates_per_sample=1/2", "optimizer=SGD"),
            None,
        ),
    ],
)
def test_it_makes_the_experiment_again(experiment, text):
    made = run_command([experiment])
    assert text is None or made == text
    assert parsed(made) == [experiment]


def test_all_seeds_in_one():
    experiments = [Experiment.of("er", seed=seed) for seed in (3, 1, 2)]
    assert run_command(experiments) == "iblurry run er --dataset digits --seeds 1,2,3"


def test_what_only_python_can_build():
    experiment = Experiment.of("er")
    mine = replace(experiment, method=replace(experiment.method, name="mine"))
    assert run_command([mine]) is None
    many = replace(experiment, method=replace(experiment.method, terms=(Elastic(),)))
    refit = Experiment.of("gdumb").method
    odd = replace(experiment, method=replace(experiment.method, readout=refit.readout, refit=refit.refit))
    assert parsed(run_command([many])) == [many]
    assert run_command([odd]) is None  # a readout that refits is none before it is told how
    assert run_command([replace(experiment, stream=Listed(indices=range(50)))]) is None
    gradual = replace(experiment, stream=Gaussian(sigma=0.2))
    assert parsed(run_command([gradual])) == [gradual]


def test_rows_that_differ_in_the_refit_alone_have_names():
    kinds = [Experiment.of("gdumb"), edited(Experiment.of("gdumb"), "refit.optimizer.momentum=0.5")]
    assert name_rows(kinds) == ["gdumb", "gdumb refit.optimizer.momentum=0.5"]


def test_rows_with_the_same_parts_are_told_apart_by_their_fields():
    plain = Experiment.of("er")
    clipped = edited(plain, "gradient=Clip")
    harder = edited(clipped, "gradient.0.norm=1")
    names = ["er gradient=Clip gradient.0.norm=10", "er gradient=Clip gradient.0.norm=1"]
    assert name_rows([clipped, harder]) == names
    assert name_rows([plain, clipped, harder]) == ["er", *names]
    assert name_rows([plain, harder]) == ["er", "er gradient=Clip"]


def test_rows_without_a_later_field_are_told_apart_from_a_recipe_that_sets_it():
    balm = Experiment.of("balm", "digits")
    even = replace(balm.method.pace, early_samples=0, early_updates=1)
    plain = replace(balm, method=replace(balm.method, pace=even))
    assert name_rows([balm, plain]) == ["balm", "balm pace.early_samples=0 pace.early_updates=1"]
    assert "early_samples" not in plain.to_json()["method"]["pace"]

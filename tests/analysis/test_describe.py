"""Rows have names that tell them apart; a command, given to the program, makes its experiment again."""

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
ER, GDUMB = Experiment.of("er"), Experiment.of("gdumb")


def parsed(text):
    """The experiments that `iblurry run` would make of it."""
    program, verb, *words = shlex.split(text)
    assert (program, verb) == ("iblurry", "run")
    values = run.make_context("run", words).params
    return list(make_experiments(values["methods"], values).values())


@pytest.mark.parametrize(
    "experiment",
    [
        Experiment.of("clib", "cifar10"),
        Experiment.of("rm-released", "cifar10"),
        Experiment.of("er", "cifar10", disjoint=0, blur=30, memory=200, validate=0.2),
        Experiment.of("er", "toy.npz", disjoint=50, blur=25, tasks=2, published=SETS),
        Experiment.of("clib", share=0.1, memory=20),
        edit(Experiment.of("ewc"), "schedule=Constant"),
        edit(ER, "admission=Importance", "admission.step=0.5", "augment.flip=true"),
        edit(GDUMB, "refit.optimizer.momentum=0.5", "readout.epochs=3"),
        edit(Experiment.of("er", samples=90), "gradient=Clip", "pace.updates_per_sample=1/2", "optimizer=SGD"),
        replace(ER, method=replace(ER.method, terms=(Elastic(),))),
        replace(ER, stream=Gaussian(sigma=0.2)),
    ],
)
def test_a_command_makes_the_experiment_again(experiment):
    assert parsed(run_command([experiment])) == [experiment]


def test_a_command_as_a_person_would_write_it():
    many = [Experiment.of("er", seed=seed, memory=50) for seed in (3, 1, 2)]
    assert run_command(many) == "iblurry run er --dataset digits --seeds 1,2,3 --set memory=50"


def test_what_only_python_can_build_is_a_comment():
    odd = replace(ER, method=replace(ER.method, readout=GDUMB.method.readout, refit=GDUMB.method.refit))
    mine = replace(ER, method=replace(ER.method, name="mine"))
    for experiment in (mine, odd, replace(ER, stream=Listed(indices=range(50)))):
        assert run_command([experiment]).startswith(f"# {experiment.method.name} ")


CLIPPED = edit(ER, "gradient=Clip")
HARDER = edit(CLIPPED, "gradient.0.norm=1")
NAMES = ["er gradient=Clip gradient.0.norm=10", "er gradient=Clip gradient.0.norm=1"]
BALM = Experiment.of("balm", "digits")
PLAIN = replace(BALM, method=replace(BALM.method, pace=replace(BALM.method.pace, early_samples=0, early_updates=1)))


@pytest.mark.parametrize(
    "rows, names",
    [
        ([GDUMB, edit(GDUMB, "refit.optimizer.momentum=0.5")], ["gdumb", "gdumb refit.optimizer.momentum=0.5"]),
        ([CLIPPED, HARDER], NAMES),
        ([ER, CLIPPED, HARDER], ["er", *NAMES]),
        ([ER, HARDER], ["er", "er gradient=Clip"]),
        ([BALM, PLAIN], ["balm", "balm pace.early_samples=0 pace.early_updates=1"]),  # fields that JSON leaves out
    ],
    ids=["refit", "parts alike", "and without", "one with", "later fields"],
)
def test_rows_are_told_apart_by_what_differs(rows, names):
    assert name_rows(rows) == names

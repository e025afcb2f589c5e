from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from iblurry.engine.optimizer import SGD
from iblurry.errors import InputError
from iblurry.experiment.settings import setting
from iblurry.methods import METHODS, clib, er, gdumb, method, ncm
from iblurry.methods.method import Head, Method, Pace, Training
from iblurry.methods.recipe import recipe
from iblurry.parts import Adaptive, Discard, Elastic, Importance, Nothing, Refit, Uniform


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Method(admission=Uniform()), "admission takes a Admission"),
        (lambda: Method(terms=()), "terms is empty"),
        (lambda: Method(pace=Pace(train_stream=False), rehearsal=Nothing()), "the batch would be empty"),
        (lambda: Pace(stream_batch=4, updates_per_sample="1/8"), "stream_batch of at least 8"),
        (lambda: Pace(stream_batch=0), "stream_batch=0"),
        (lambda: Pace(updates_per_sample="much"), "'much' is not a number or fraction"),
        (lambda: Pace(store_when="never"), "'before' or 'after'"),
        (lambda: Head(moments="lose"), "'rebuild'"),
        (lambda: Head(redraw="some"), "'all'"),
        (lambda: Pace(count_waiting="none"), "'all' or"),
        (lambda: Method(readout=Refit()), "Refit trains on the memory but `refit` does not say how"),
        (lambda: Method(refit=Training()), "Plain never trains"),
        (lambda: gdumb(refit=Training(rehearsal=Nothing())), "a refit learns nothing"),
        (lambda: gdumb(refit=Training(schedule=Adaptive())), "Adaptive at refit.schedule needs the stream"),
        (lambda: gdumb(refit=Training(terms=(Elastic(),))), "Elastic at refit.terms.0 needs the stream"),
        (lambda: clib(admission=Discard()), "Uniform reads memory rows"),
        (lambda: gdumb(admission=Discard()), "Discard"),
        (lambda: clib(admission=Importance(decrease="running"), pace=Pace(measure_rows=64)), "measure_rows=64"),
        (lambda: SGD(momentum=1.0), r"momentum=1\.0"),
        (lambda: SGD(momentum=0.0), "nesterov=False"),
        (lambda: Method.from_json({"optimizer": {"Sgd": {}}}), "Did you mean 'SGD'"),
        (lambda: Method.from_json({"optimizer": {"SGD": {"momentun": 0.5}}}), "Did you mean 'momentum'"),
        (lambda: Method.from_json({"optimizer": "SGD"}), "'SGD'"),
        (lambda: Method.from_json({"refit": {"pace": {}}}), "no field of a course|pace"),
        (lambda: clib(admision=Nothing()), "Did you mean 'admission'"),
        (lambda: Method.from_json({"nmae": "x"}), "Did you mean 'name'"),
    ],
)
def test_illegal_methods_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_what_keeps_no_sample_may_learn_from_the_stream():
    assert er(admission=Discard(), rehearsal=Nothing()).capacity(100) == 0
    ncm().check_budget(1)


def test_what_only_a_recipe_knows_of_the_released_program():
    assert method("clib-exponential-released").schedule.per == "round"
    assert method("er-released").schedule.per == "update"
    assert method("rm-released").readout.frozen_norm
    assert not method("rm-released", setting("imagenet").hyperparameters).readout.frozen_norm


def test_a_method_named_like_another_is_refused():
    with pytest.raises(InputError, match="'er'"):

        @recipe(paper="mine")
        def er(hyperparameters):
            """Not the ER one knows."""

    assert METHODS["er"].paper != "mine"


@pytest.mark.parametrize(
    "pace",
    [Pace(measure_rows=256), Pace(early_updates=3), Pace(early_samples=5, early_updates=3), Pace(early_samples=5)],
)
def test_later_fields_come_back(pace):
    given = dataclasses.replace(er(), pace=pace, head=Head(train=False))
    assert Method.from_json(json.loads(json.dumps(given.to_json()))) == given
    assert not {*er().to_json()["pace"], *er().to_json()["head"]} & {
        "measure_rows",
        "early_samples",
        "early_updates",
        "train",
    }


@pytest.mark.parametrize("before", ["import iblurry.learner.learner", "iblurry.er"])
def test_the_methods_are_listed_by_the_package_s_own_name(before):
    """In a process of its own: `iblurry.methods` is a package, too, and what is imported first must not matter."""
    code = f"import iblurry\n{before}\nprint(*iblurry.methods()); from iblurry.methods import clib; print(clib().name)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert out == [*METHODS, "clib"]

"""Values of wrong types, in Python: refused where they are given, by an error that names them; or understood."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.data.load import load
from iblurry.engine.eager import Eager
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all
from iblurry.learner.learner import Learner
from iblurry.methods import er
from iblurry.methods.method import Method
from iblurry.parts import Constant, CrossEntropy, Distil, Project, Reservoir
from tests.experiment.small import small

BLACK = np.zeros((1, 8, 8), np.uint8)


def learner(**changes):
    options = {"image": (1, 8, 8), "classes": 3, "memory": 20, "network": "mlp"} | changes
    return Learner(options.pop("method", er()), **options)


def test_one_part_or_a_list_is_a_tuple():
    assert er(terms=CrossEntropy()) == er(terms=[CrossEntropy()]) == er(terms=(CrossEntropy(),))
    assert Method(gradient=Project()).gradient == (Project(),)
    assert hash(Method(terms=[CrossEntropy(), Distil()])) == hash(Method(terms=(CrossEntropy(), Distil())))


SLOTS = {
    "head": [None, "own"],
    "pace": [None, 3],
    "name": [None],
    "refit": [er],
    "terms": [None, (), CrossEntropy, 3],
    "gradient": [None],
    "schedule": [None, (Constant(),)],
    "admission": [Reservoir],
    "optimizer": [None, "adam", 3, torch.nn.Linear],
}
ARGUMENTS = {
    "method": [er, None, "clip"],
    "image": [(8, 8), 8, (1, 8.0, 8), (0, 8, 8), "abc"],
    "classes": [None, 0, True, 2.5, [], "abc", ["cat", "dog", "cat"], [1, np.int64(1)]],
    "memory": [2.5, "20", None, True, 0],
    "seed": ["x", 1.5, -1],
    "mean": [(0.5, 0.5), 0.5, ["a"], [float("nan")]],
    "std": [(0.0,), ()],
    "engine": ["cpu"],
    "device": [0, "cpu:x", "tpu"],
    "precision": ["float16", 32],
    "freeze": [None, np.zeros(2), np.array("body"), 3],
}


def cases(table):
    return [(name, value) for name, values in table.items() for value in values]


@pytest.mark.parametrize("slot, value", cases(SLOTS))
def test_a_method_refuses_what_does_not_fit_a_slot(slot, value):
    with pytest.raises(InputError, match=slot):
        Method(**{slot: value})
    with pytest.raises(InputError, match=slot):
        er(**{slot: value})


@pytest.mark.parametrize("name, value", cases(ARGUMENTS))
def test_a_learner_refuses_what_does_not_fit(name, value):
    with pytest.raises(InputError, match=name):
        learner(**{name: value})


def test_a_frozen_network_cannot_be_frozen_by_anything_but_text():
    with pytest.raises(InputError, match="freeze"):
        learner(network="frozen:mlp", freeze=3)


def test_a_learner_takes_the_name_of_a_method_and_a_device_or_an_engine():
    assert learner(method="clib-released").method.name == "clib-released"
    made = learner(device="cpu", precision="bfloat16")
    assert (made.engine.device.type, made.engine.precision) == ("cpu", "bfloat16")
    with pytest.raises(InputError, match="engine"):
        learner(device="cpu", engine=Eager())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused():
    with pytest.raises(InputError, match="'cuda'"):
        learner(device="cuda")


@pytest.mark.parametrize("label", [True, False, np.True_, torch.tensor(True), 1.5, None, (1,), torch.zeros(2)])
def test_a_label_is_text_or_a_whole_number(label):
    """True equals 1, so it would be taken for that class."""
    one = learner()
    one.observe(BLACK, 1)
    with pytest.raises(InputError, match="label"):
        one.observe(BLACK, label)
    assert one.labels == [1]
    assert one.context.seen == 1
    with pytest.raises(InputError, match="label"):
        learner(classes=["cat", label])


def test_numbers_of_numpy_and_torch_are_numbers():
    one = learner(
        image=np.array([1, 8, 8]),
        classes=np.array([4, 7]),
        memory=np.int64(20),
        seed=np.uint8(3),
        mean=np.array([0.5]),
        std=torch.tensor([0.25]),
    )
    for label in (np.int32(4), torch.tensor(7), torch.tensor([4])):
        one.observe(BLACK, label)
    assert one.labels == [4, 7]
    assert [type(label) for label in one.labels] == [int, int]


@pytest.mark.parametrize("images", [None, "picture", [[1], [1, 2]], 3, BLACK.astype(int)])
def test_images_are_arrays_of_bytes(images):
    one = learner()
    with pytest.raises(InputError, match="observe"):
        one.observe(images, 1)
    one.observe(BLACK, 1)
    with pytest.raises(InputError, match="predict"):
        one.predict(images)


def test_the_name_of_a_method_stands_for_its_experiment(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr("iblurry.launch.launch._run_queue", lambda queue, *_: begun.extend(queue.jobs))
    run_all(["er", Experiment.of("clib")], LaunchConfig(out=tmp_path))
    assert [job.experiment for job in begun] == [Experiment.of("er"), Experiment.of("clib")]
    with pytest.raises(UnknownNameError, match="'er'"):
        run("err", tmp_path)


def test_a_name_and_a_data_set_are_an_experiment(tmp_path):
    tiny = load("shapes:classes=10,train=12,test=5,size=8,channels=1")
    done = run("er", str(tmp_path), dataset=tiny)
    assert done.experiment == Experiment.of("er", tiny)
    assert done.summary["samples"] == 120


@pytest.mark.parametrize(
    "call",
    [
        lambda out: run(None, out),
        lambda out: run(3, out),
        lambda out: run([small()], out),
        lambda out: run(small(), 3),
        lambda out: run(small(), out, dataset="digits"),
        lambda out: run(small(), out, callback=print),
        lambda out: run(small(), out, checkpoints=30),
        lambda out: run(small(), out, hardware="cpu"),
        lambda out: run_all("er", LaunchConfig(out=out)),
        lambda out: run_all(small(), LaunchConfig(out=out)),
        lambda out: run_all(None, LaunchConfig(out=out)),
        lambda out: run_all([small()], out),
        lambda out: run_all([small()], LaunchConfig(out=out), [None, None]),
        lambda out: LaunchConfig(out=3),
        lambda out: LaunchConfig(out=out, jobs="2"),
        lambda out: LaunchConfig(out=out, pack=None),
        lambda out: LaunchConfig(out=out, threads=1.5),
        lambda out: LaunchConfig(out=out, checkpoints=30),
        lambda out: LaunchConfig(out=out, on=None),
        lambda out: Hardware(threads=0),
        lambda out: Hardware(device=None),
    ],
)
def test_runs_refuse_what_does_not_fit_and_write_nothing(call, tmp_path):
    with pytest.raises(InputError):
        call(tmp_path)
    assert not list(tmp_path.iterdir())


def test_paths_may_be_texts(tmp_path):
    assert LaunchConfig(out=str(tmp_path)) == LaunchConfig(out=tmp_path)
    assert LaunchConfig().out.name == "runs"
    assert CheckpointPolicy() == LaunchConfig().checkpoints

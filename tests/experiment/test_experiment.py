"""The experiment as data: its text, its name, its checks, its order."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from iblurry.augment.pipeline import Augment
from iblurry.data.dataset import Dataset, take
from iblurry.data.load import load
from iblurry.data.sources.arrays import save
from iblurry.errors import DataError, InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.settings import SETTINGS
from iblurry.methods import METHODS, Hyperparameters, clib, er
from iblurry.methods.method import Head, Method, Pace
from iblurry.parts import Balanced, Clip, Constant, Cosine, Importance, Uniform
from iblurry.streams import published
from iblurry.streams.order import i_blurry
from iblurry.streams.stream import IBlurry, Published
from tests.experiment.small import DATA, small

RESULTS = Path(__file__).parents[2] / "results"
CHANGED = {  # every field, each to something else
    "method": er(Hyperparameters(batch=8), schedule=Constant(initial_lr=1e-3)),
    "dataset": "digits",
    "network": "convnet",
    "memory": 25,
    "stream": IBlurry(tasks=4),
    "augment": Augment(pad=0),
    "query_every": 8,
    "samples": 50,
    "share": 0.5,
    "initialise": "keep",
    "freeze": "body",
    "validate": 0.5,
    "seed": 2,
}


@pytest.mark.parametrize("name", [*METHODS, "clib-released", "er-released"])
def test_json_and_back(name):
    one = Experiment.of(name, DATA, stream=Published(folder="sets", content="these", disjoint=12.5), samples=3)
    again = Experiment.from_json(json.loads(json.dumps(one.to_json())))
    assert again == one
    assert (again.digest, again.name) == (one.digest, one.name)


def test_the_digest_is_the_same_however_it_is_written():
    one = small()
    shuffled = dict(reversed(json.loads(json.dumps(one.to_json())).items()))
    shuffled["method"] = dict(reversed(shuffled["method"].items()))
    assert Experiment.from_json(shuffled).digest == one.digest
    assert small(disjoint=50, blur=10).digest == small(disjoint=50.0, blur=np.float64(10)).digest == one.digest
    assert small(seed=np.int64(1), memory=np.int32(24)) == one
    rates = [Experiment.of(er(schedule=Constant(initial_lr=rate))) for rate in (1, 1.0)]
    assert rates[0] == rates[1]
    assert rates[0].digest == rates[1].digest
    assert small(augment=Augment(cutmix=1)).digest == small(augment=Augment(cutmix=1.0)).digest


def test_every_field_changes_the_digest():
    assert set(CHANGED) == {f.name for f in dataclasses.fields(Experiment)}
    digests = {dataclasses.replace(small(), **{name: value}).digest for name, value in CHANGED.items()}
    assert len(digests | {small().digest}) == len(CHANGED) + 1


def test_every_field_of_a_method_and_its_refit_changes_the_digest():
    base, rm = small("clib").method, small("rm").method
    changes = {
        "name": "mine",
        "pace": Pace(stream_batch=1, train_stream=False, updates_per_sample=Fraction(1, 2), store_when="before"),
        "admission": Importance(step=0.2),
        "gradient": (Clip(),),
        "schedule": Constant(),
        "head": Head(moments="forget"),
        "optimizer": dataclasses.replace(base.optimizer, weight_decay=0.1),
    }
    refits = {
        "readout": dataclasses.replace(rm.readout, epochs=4),
        "refit": dataclasses.replace(rm.refit, schedule=Cosine(floor=1e-5)),
    }
    names = {field.name for field in dataclasses.fields(Method)}
    assert {*changes, *refits} | {"rehearsal", "terms"} == names
    methods = [base, rm, *(dataclasses.replace(base, **{name: value}) for name, value in changes.items())]
    methods += [dataclasses.replace(rm, **{name: value}) for name, value in refits.items()]
    assert len({Experiment.of(method).digest for method in methods}) == len(methods)


@pytest.mark.parametrize(
    "method, dataset, start",
    [
        ("clib", "digits", "clib-digits-1-"),
        ("clib-released", "shapes:classes=20", "clib-released-shapes-1-"),
        ("er", "/data/my set.v2.npz", "er-my-set-v2-1-"),
        ("er", "cifar10:/some/where.tar.gz", "er-cifar10-1-"),
        (er(name="../../etc"), "..", "er-------etc"),
        (er(name="é/ü" * 90), "x" * 300, "er"),
    ],
)
def test_the_name_is_a_file_name(method, dataset, start):
    one = Experiment.of(method, dataset, tasks=5, memory=500, query_every=100)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", one.name)
    assert len(one.name) < 120
    assert one.name.endswith(f"-1-{one.digest}")
    if isinstance(method, str):
        assert one.name.startswith(start)


def test_of_takes_the_settings_of_the_data_set():
    one = Experiment.of("er", "cifar100:/some/where")
    assert (one.network, one.memory, one.stream.tasks, one.query_every) == ("resnet34", 2000, 5, 100)
    assert one.method.pace.updates_per_sample == 3
    assert Experiment.of("er", "cifar100", memory=7).memory == 7
    for name in SETTINGS:
        Experiment.of("clib", name)


def test_unknown_fields():
    with pytest.raises(UnknownNameError, match=r"memroy.*memory"):
        Experiment.of("er", memroy=5)
    with pytest.raises(UnknownNameError, match="Did you mean 'seed'"):
        Experiment.from_json(small().to_json() | {"sed": 5})
    with pytest.raises(UnknownNameError, match="Did you mean 'clib'"):
        Experiment.of("clibb")
    with pytest.raises(InputError, match=r"strikt.*strict"):
        small(mode="strikt")


@pytest.mark.parametrize("broken", [{}, {"method": {"name": "er"}}, small().to_json() | {"augment": {"pod": 1}}])
def test_what_is_no_experiment(broken):
    with pytest.raises(InputError, match=r"to_json|pod"):
        Experiment.from_json(broken)


@pytest.mark.parametrize(
    "changes",
    [
        *({"memory": 0}, {"memory": "200"}, {"query_every": None}, {"seed": -1}, {"seed": True}, {"samples": 0}),
        *({"tasks": 2.5}, {"disjoint": 101}, {"blur": "10"}, {"blur": float("nan")}, {"augment": {"pad": 1}}),
        *({"method": 3}, {"network": None}, {"initialise": "again"}),
        *({"share": share} for share in (0, -0.1, 1.5, True, "half", float("nan"), None)),
        *({"validate": share} for share in (-0.1, 1, True, None)),
    ],
)
def test_bad_values(changes):
    ((name, value),) = changes.items()
    with pytest.raises(InputError, match=f"{name}.*{re.escape(repr(value))}"):
        Experiment.of(**{"method": er(), "dataset": DATA} | changes)


def test_numbers_that_have_no_text_have_no_name():
    class Endless(Uniform):
        patience: float = float("inf")

    with pytest.raises(InputError, match="patience=inf"):
        Endless()


def test_the_order_is_that_of_the_labels_and_the_seed(data):
    one = small(disjoint=50, blur=20, seed=3)
    assert one.order(data) == i_blurry(data.train.labels, tasks=2, disjoint=50, blur=20, seed=3)


@pytest.mark.parametrize("samples", [1, 39, 40, 41, 80])
def test_samples_cut_the_order(samples, data):
    whole, cut = small(query_every=1).order(data), small(samples=samples, query_every=1).order(data)
    assert cut.indices.tolist() == whole.indices[:samples].tolist()
    assert cut.ends == ((samples,) if samples <= 40 else (40, samples))
    assert cut.classes == whole.classes


def test_more_samples_than_there_are(data):
    with pytest.raises(InputError, match="samples=81"):
        small(samples=81).order(data)


def test_each_class_needs_a_row_of_the_memory(data):
    with pytest.raises(InputError, match=r"memory=7 .* er stores 3 .* 4 classes .*--memory 8"):  # four wait outside
        small("er", memory=7).check(data)
    small("er", memory=8).check(data)
    with pytest.raises(InputError, match="memory=3"):
        small("clib", memory=3).check(data)


def test_published_orders(data, tmp_path):
    order = i_blurry(data.train.labels, tasks=2, disjoint=50, blur=20, seed=5)
    published.export(order, data, tmp_path, seed=5, n=50, m=20)
    one = small(published=tmp_path, disjoint=50, blur=20, seed=5)
    assert one.order(data) == order
    shutil.copytree(tmp_path, tmp_path / "elsewhere" / "sets")
    assert small(published=tmp_path / "elsewhere" / "sets", disjoint=50, blur=20, seed=5).digest == one.digest
    (tmp_path / "elsewhere" / "sets" / "other_split2_n50_m20_rand5_task0.json").write_text("[]")  # of another data set
    assert small(published=tmp_path / "elsewhere" / "sets", disjoint=50, blur=20, seed=5).digest == one.digest
    (file, *_) = (tmp_path / "elsewhere" / "sets").glob("shapes_*_task0.json")
    file.write_text(json.dumps(json.loads(file.read_text())[::-1]))
    assert small(published=tmp_path / "elsewhere" / "sets", disjoint=50, blur=20, seed=5).digest != one.digest
    assert dataclasses.replace(one, samples=30).order(data).indices.tolist() == order.indices[:30].tolist()
    with pytest.raises(DataError, match="shapes_split2_n50_m20_rand6_task0"):
        dataclasses.replace(one, seed=6).order(data)
    with pytest.raises(InputError, match=r"share=0\.5"):
        dataclasses.replace(one, share=0.5)


def test_a_data_set_without_questions():
    none = load("shapes:classes=4,train=20,test=0,size=8,channels=1")
    with pytest.raises(InputError, match="sample 7"):
        small().check(none)
    with pytest.raises(InputError, match="has no test image"):
        small().order(none)


def test_tasks_classes_and_blur_of_a_share_are_as_usual(data):
    part, whole = (small(share=share, blur=50).order(data) for share in (0.5, 1))
    labels = data.train.labels
    assert part.classes == whole.classes
    assert part.disjoint == whole.disjoint
    assert np.bincount(labels[part.indices]).tolist() == [10] * 4
    assert [len(task) for task in part.tasks] == [20, 20]
    counts = part.counts(labels)
    assert (counts[:2] > 0).sum(axis=1).tolist() == [1, 1]  # disjoint
    assert counts[2:].sum() == 20


def test_a_share_and_so_many_samples_of_it(data):
    one = small(share=0.5, samples=30)
    assert one.order(data).indices.tolist() == small(share=0.5).order(data).indices[:30].tolist()
    with pytest.raises(InputError, match="samples=50"):
        small(share=0.5, samples=50).order(data)


def test_what_keeps_everything_keeps_the_share(data):
    assert small("joint", share=0.5).budget(data) == 40


def test_the_whole_is_not_worth_a_word():
    one = small()
    assert one == small(share=1) == small(share=np.float64(1)) == Experiment.from_json(one.to_json() | {"share": 1})
    assert one.digest == small(share=1).digest != small(share=0.5).digest


def test_collected_results_stay_readable():
    paths = sorted(RESULTS.rglob("experiment.json"))
    assert paths
    for path in paths:
        experiment = RunFolder(path.parent).experiment()
        assert Experiment.from_json(experiment.to_json()) == experiment
        assert path.parent.name.startswith(experiment.method.name)


def test_a_path_is_a_data_set(tmp_path):
    assert Experiment.of("er", tmp_path / "mine.npz").dataset == str(tmp_path / "mine.npz")
    assert Experiment.of(clib(), tmp_path / "mine.npz").name.startswith("clib-mine-1-")


def test_of_takes_parts_of_the_method_too_and_keeps_the_tuning():
    one = Experiment.of("clib", "cifar100", name="mine", admission=Balanced(), memory=100)
    assert (one.method.name, one.method.admission, one.memory) == ("mine", Balanced(), 100)
    assert one.method.pace.updates_per_sample == 3  # CIFAR-100's


def own(classes, each, tested=1):
    """Grey images of 8 x 8 pixels: so many training and test images of each class."""
    train, test = (np.repeat(np.arange(classes), count) for count in (each, tested))
    images = np.random.default_rng(0).integers(0, 256, (len(train) + len(test), 8, 8), dtype=np.uint8)
    return Dataset.from_arrays(images[: len(train)], train, images[len(train) :], test, name="own")


@pytest.mark.parametrize(
    "classes, each, changes, expected",
    [
        (10, 300, {}, (5, "strict", 500, 100)),  # what fits is not changed
        (4, 8, {}, (2, "strict", 20, 3)),
        (4, 8, {"disjoint": 0}, (4, "strict", 20, 3)),
        (4, 8, {"tasks": 1, "memory": 18, "query_every": 5}, (1, "strict", 18, 5)),
        (4, 8, {"share": 0.5, "validate": 0.25}, (2, "strict", 20, 1)),
        (7, 20, {}, (5, "uneven", 70, 14)),
        (7, 20, {"samples": 50}, (5, "uneven", 25, 5)),
        (2, 50, {}, (2, "uneven", 50, 10)),
        (3, 2, {}, (3, "uneven", 19, 1)),
        (300, 8, {}, (5, "strict", 600, 100)),
    ],
)
def test_it_fits_the_users_data(classes, each, changes, expected, tmp_path):
    data = own(classes, each)
    one = Experiment.of("er", data, **changes)
    assert (one.stream.tasks, one.stream.mode, one.memory, one.query_every) == expected
    one.check(data)
    save(data, tmp_path / "own.npz")
    assert Experiment.of("er", tmp_path / "own.npz", **changes).stream == one.stream


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_work_with_what_is_chosen(name):
    data = own(4, 8)
    Experiment.of(name, data).check(data)


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("classes, tested", [(4, 1), (7, 2), (10, 3)])
def test_a_test_set_smaller_than_a_query_is_asked(classes, tested, seed):
    data = dataclasses.replace(all_ := own(classes, 10), test=take(all_.test, np.arange(tested)))
    one = Experiment.of("er", data, seed=seed)
    assert (one.stream.tasks, one.query_every) == (1, 5 * classes)
    one.check(data)


def test_it_fits_data_that_have_changed_and_refuses_one_class(tmp_path):
    for each, memory in ((8, 20), (20, 40)):
        save(own(4, each), tmp_path / "own.npz")
        assert Experiment.of("er", tmp_path / "own.npz").memory == memory
    with pytest.raises(InputError, match="1 class"):
        Experiment.of("er", own(1, 20))
    assert Experiment.of("er", own(1, 20), tasks=1, memory=5, query_every=2).memory == 5


def test_a_share_has_at_least_one_of_each_class(data):
    order = small(share=0.001).order(data)
    assert sorted(data.train.labels[order.indices].tolist()) == [0, 1, 2, 3]

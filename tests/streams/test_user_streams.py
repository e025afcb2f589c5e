"""A stream of a user's own obeys the laws of the package's: exact resume, the same bytes packed, data as JSON."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from iblurry import (
    Experiment,
    Gaussian,
    IBlurry,
    LaunchConfig,
    Listed,
    SiBlurry,
    Sigmoid,
    Stream,
    load,
    run,
    run_all,
)
from iblurry.analysis.formats import runs_to_markdown
from iblurry.analysis.table import tabulate_runs
from iblurry.components.edit import component
from iblurry.errors import DataError, InputError, UnknownNameError
from iblurry.experiment.metrics import NO_BOUNDARIES
from iblurry.streams.order import held_out
from tests.experiment.small import DATA, At, CrashError, crash, kept, small
from tests.laws.user_streams import Brightest, Drifting, Yearly

STREAMS = [
    Yearly(years=2),
    Brightest(),
    Listed(indices=range(0, 80, 2), ends=[10, 40]),
    Gaussian(),
    SiBlurry(tasks=2),
    Sigmoid(tasks=2),
]


@pytest.fixture(scope="module")
def data():
    return load(DATA)


@pytest.fixture(params=STREAMS, ids=lambda stream: type(stream).__name__)
def stream(request):
    return request.param


@pytest.mark.quick("Gaussian", "Yearly")
def test_resume(stream, tmp_path):
    experiment = small("clib", stream=stream)
    whole = kept(run(experiment, tmp_path / "whole").folder)
    with pytest.raises(CrashError):
        run(experiment, tmp_path / "cut", callback=At(21, crash))
    assert kept(run(experiment, tmp_path / "cut").folder) == whole


def test_a_stream_without_boundaries_is_one_task(data, tmp_path):
    assert not Gaussian.has_boundaries
    assert not Sigmoid.has_boundaries
    whole, drifting = (small(stream=stream(years=2)).order(data) for stream in (Yearly, Drifting))
    assert (len(whole.tasks), len(drifting.tasks)) == (2, 1)
    assert (whole.indices == drifting.indices).all()
    with pytest.raises(InputError, match="ewc"):
        run(small("ewc", stream=Drifting()), tmp_path)
    done = run(small(stream=Drifting()), tmp_path)
    assert done.metrics.a_last is not None
    assert (done.metrics.a_avg, done.metrics.f_last) == (None, None)
    assert "A_avg" in done.summary["undefined"]
    written = runs_to_markdown(tabulate_runs({"er": [done]}))
    assert (written.count("| – "), written.count(NO_BOUNDARIES)) == (2, 1)
    other = run(small(stream=Yearly()), tmp_path)
    assert "undefined" not in other.summary
    assert NO_BOUNDARIES not in runs_to_markdown(tabulate_runs({"er": [other]}))


def test_packed(tmp_path):
    both = [small("er", stream=stream) for stream in STREAMS[:2]]
    alone = [kept(run(one, tmp_path / "alone").folder) for one in both]
    assert [kept(one.folder) for one in run_all(both, LaunchConfig(out=tmp_path / "packed", pack=2))] == alone


def test_json_and_identity(stream):
    experiment = small(stream=stream)
    again = Experiment.from_json(json.loads(json.dumps(experiment.to_json())))
    assert again == experiment
    assert again.digest == experiment.digest != small().digest
    assert small(stream=Yearly(years=3)).digest != small(stream=Yearly(years=2)).digest


@pytest.mark.parametrize("stream", [IBlurry(tasks=2), *STREAMS], ids=lambda stream: type(stream).__name__)
def test_validation_images_are_asked_about_and_never_learnt(stream, data):
    experiment = small(stream=stream, validate=0.2)
    rows = held_out(data.train.labels, 0.2, seed=1)
    assert len(rows) == 16
    assert not set(rows) & set(experiment.order(data).indices.tolist())
    asked = experiment.questions(data)
    assert np.array_equal(asked.test.images[:], data.train.images[rows])
    assert asked.test.labels.tolist() == data.train.labels[rows].tolist()


def test_a_run_with_validation_never_looks_at_the_test_set(data, tmp_path):
    other = dataclasses.replace(data, test=dataclasses.replace(data.test, labels=(data.test.labels + 1) % 4))
    results = [run(small(validate=0.2), tmp_path / str(n), dataset=one) for n, one in enumerate((data, other))]
    assert results[0].records == results[1].records
    assert run(small(), tmp_path / "test").records != results[0].records


def test_share_of_what_is_not_held_out(data):
    experiment = small(stream=Yearly(), validate=0.2, share=0.5)
    assert len(experiment.order(data)) == 32
    with pytest.raises(InputError, match=r"share=0\.5"):
        small(stream=STREAMS[2], share=0.5)


def test_a_list_from_a_file(tmp_path, data):
    path = tmp_path / "order.json"
    path.write_text(json.dumps({"indices": [3, 1, 2], "ends": [1, 3]}))
    read = component(Listed, f"Listed:path={path}")
    assert read == Listed(indices=[3, 1, 2], ends=[1, 3])
    assert [task.tolist() for task in read.order(data, 1).tasks] == [[3], [1, 2]]
    path.write_text("[]")
    with pytest.raises(DataError, match="indices"):
        Listed(path=str(path))


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: Listed(indices=[0, 1], ends=[1]), "ends"),
        (lambda: Listed(indices=[]), "at least one"),
        (lambda: Listed(indices=[0.5]), "whole numbers"),
        (lambda: Listed(indices="ab"), "whole numbers"),
        (lambda: Listed(indices=[0, 0]).order(load(DATA), 1), "at most once"),
        (lambda: Listed(indices=[80]).order(load(DATA), 1), "80"),
        (lambda: small(stream="IBlurry"), "'IBlurry'"),
        (lambda: small(stream=Yearly), "Yearly"),
        (lambda: small(stream=IBlurry(), published="x"), "published='x'"),
        (lambda: component(Stream, "IBlurry:tasks"), "'tasks'"),
        (lambda: component(Stream, "Yearly:years=two"), "'two'"),
        (lambda: component(Stream, "Published"), "folder"),
    ],
)
def test_bad_input(make, word):
    with pytest.raises(InputError, match=word):
        make()


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="Did you mean 'IBlurry'"):
        component(Stream, "IBlury")
    with pytest.raises(UnknownNameError, match="field of Yearly"):
        Experiment.of("er", stream=Yearly(), blur=30)

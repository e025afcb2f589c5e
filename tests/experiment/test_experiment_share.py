"""An experiment on a share of the images: its stream, its name, and that nothing else changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from iblurry.analysis.describe import describe_settings, find_departures, name_rows
from iblurry.components.edit import edit
from iblurry.data.load import load
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Start, read
from iblurry.launch.launch import run
from iblurry.streams.stream import Published
from tests.experiment.small import DATA, At, CrashError, crash, kept, small

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def data():
    return load(DATA)


def test_tasks_classes_and_blur_are_as_usual(data):
    part, whole = (small(share=share, blur=50).order(data) for share in (0.5, 1))
    labels = data.train.labels
    assert part.classes == whole.classes
    assert part.disjoint == whole.disjoint
    assert np.bincount(labels[part.indices]).tolist() == [10] * 4
    assert [len(task) for task in part.tasks] == [20, 20]
    counts = part.counts(labels)
    assert (counts[:2] > 0).sum(axis=1).tolist() == [1, 1]  # disjoint
    assert counts[2:].sum() == 20


def test_at_least_one_of_each_class(data):
    order = small(share=0.001).order(data)
    assert sorted(data.train.labels[order.indices].tolist()) == [0, 1, 2, 3]


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


def test_json_and_back():
    one = small(share=0.1)
    again = Experiment.from_json(json.loads(json.dumps(one.to_json())))
    assert again == one
    assert again.digest == one.digest
    assert edit(small(), "share=0.1") == one


@pytest.mark.parametrize("share", [0, -0.1, 1.5, True, "half", float("nan"), None])
def test_what_is_no_share(share):
    with pytest.raises(InputError, match="is not a fraction of the images"):
        small(share=share)


def test_published_orders_are_whole():
    stream = Published(folder="sets", content="of these files", tasks=2)
    assert small(stream=stream, share=1).stream == stream
    with pytest.raises(InputError, match=r"share=0\.5"):
        small(stream=stream, share=0.5)


def test_it_is_named_where_it_differs():
    whole, part = Experiment.of("clib"), Experiment.of("clib", share=0.1)
    assert find_departures(part, whole) == {"share": 0.1}
    assert find_departures(whole, part) == {"share": 1.0}
    assert name_rows([whole, part]) == ["clib", "clib share=0.1"]
    assert describe_settings([part, Experiment.of("er", share=0.1)]).startswith(
        "digits, 10 % of the images, i-Blurry-50-10"
    )
    assert (
        describe_settings([whole]) == describe_settings([whole, part]) == "digits, i-Blurry-50-10, 5 tasks, memory 100"
    )


def test_it_goes_on_where_it_was_stopped(tmp_path):
    one = small(share=0.5)
    straight = run(one, tmp_path / "straight").folder
    with pytest.raises(CrashError):
        run(one, tmp_path / "stopped", callback=At(20, crash))
    stopped = run(one, tmp_path / "stopped").folder
    assert kept(straight) == kept(stopped)
    start = read(straight / "journal.jsonl")[0]
    assert isinstance(start, Start)
    assert (start.samples, start.ends) == (40, (20, 40))

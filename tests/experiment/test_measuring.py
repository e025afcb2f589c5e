"""Callbacks that measure: prequential accuracy, counted by hand, and answers for KLR and KGR."""

from __future__ import annotations

import numpy as np
import pytest

from iblurry import CheckpointPolicy, KnowledgeRatios, OnlineAccuracy, StreamIterator, load, run
from iblurry.errors import InputError
from iblurry.experiment.journal import Answers, Logged, Query, Spent
from iblurry.experiment.metrics import klr
from iblurry.parts import Constant
from tests.experiment.small import DATA, At, CrashError, crash, kept, small

OFTEN = CheckpointPolicy(samples=3)


def by_hand(experiment):
    """Whether each sample was answered right; None for the first of a class."""
    data, right = load(DATA), []
    learner = experiment.learner(data)
    for sample in StreamIterator(data, experiment.order(data)):
        is_known = sample.label in learner.labels
        right.append(learner.predict(sample.image[None]) == [sample.label] if is_known else None)
        learner.observe(sample.image, sample.label)
        if sample.last_of_task:
            learner.end_task()
    return right


def online(**changes):
    return small(schedule=Constant(initial_lr=0.01), **changes)


def without(records):
    return [one for one in records if not isinstance(one, Logged | Spent)]


@pytest.mark.parametrize("every", [1, 3])
def test_it_is_what_was_right_before_it_was_learnt(every, tmp_path):
    right = by_hand(online())
    result = run(online(), tmp_path, callback=OnlineAccuracy(window=30, every=every))
    asked = np.arange(80) % every == 0
    points = [(at, np.mean([bool(one) for one in np.array(right)[:at][asked[:at]]])) for at in (30, 60, 80)]
    windows = [
        (at, np.mean([bool(one) for one in np.array(right)[at - 30 : at][asked[at - 30 : at]]])) for at in (30, 60)
    ]
    assert np.array(result.logged["online_acc"]) == pytest.approx(np.array(points))
    assert np.array(result.logged["online_acc_window"]) == pytest.approx(np.array(windows))
    assert 0 < result.metric("online_acc") < 1


def test_it_learns_the_same_and_its_answers_are_queries(tmp_path):
    plain, watched = (run(online(), tmp_path / str(n), callback=one) for n, one in enumerate((None, OnlineAccuracy())))
    assert without(watched.records) == without(plain.records)
    before, after = (
        next(one for one in reversed(result.records) if isinstance(one, Spent)) for result in (plain, watched)
    )
    asked = sum(one is not None for one in by_hand(online()))
    assert after.forward == before.forward | {"queries": before.forward["queries"] + asked}
    assert (after.backward, after.updates, after.bytes) == (before.backward, before.updates, before.bytes)


@pytest.mark.quick("er", "ratios")
@pytest.mark.parametrize(
    "name, callback",
    [
        pytest.param("er", OnlineAccuracy(window=9, every=2), id="er"),
        pytest.param("rm", OnlineAccuracy(window=9, every=2), id="rm"),
        pytest.param("bic", OnlineAccuracy(window=9, every=2), id="bic"),
        pytest.param("er", KnowledgeRatios(every=10), id="ratios"),
    ],
)
def test_interrupted_it_has_the_same_bytes(name, callback, tmp_path):
    whole = run(small(name), tmp_path / "whole", callback=callback, checkpoints=OFTEN)
    for sample in (20, 60):
        with pytest.raises(CrashError):
            run(small(name), tmp_path / "cut", callback=[callback, At(sample, crash)], checkpoints=OFTEN)
    assert kept(run(small(name), tmp_path / "cut", callback=callback, checkpoints=OFTEN).folder) == kept(whole.folder)


def test_who_answers_only_at_the_end_is_refused(tmp_path):
    with pytest.raises(InputError, match="joint"):
        run(small("joint"), tmp_path, callback=OnlineAccuracy())


@pytest.mark.parametrize("changes", [{}, {"validate": 0.25}])
def test_answers_are_journalled_at_queries(changes, tmp_path):
    experiment = small(query_every=20, schedule=Constant(initial_lr=0.01), **changes)
    plain, result = (
        run(experiment, tmp_path / str(n), callback=one) for n, one in enumerate((None, KnowledgeRatios(every=20)))
    )
    found = [one for one in result.records if isinstance(one, Answers)]
    assert [one for one in result.records if not isinstance(one, Answers)] == plain.records
    questions = experiment.questions(load(DATA))
    queries = {one.at: one for one in result.records if isinstance(one, Query)}
    for one in found:
        assert one.at in queries
        assert list(one.total) == np.bincount(questions.test.labels, minlength=4).tolist()
        right = np.bincount(one.targets, one.chosen == one.targets, 4)
        assert right[list(one.known)].tolist() == list(queries[one.at].correct)
    assert [at for at, _ in result.curve("kgr_released")][-1] == found[-1].at
    assert len(result.curve("klr")) <= len(result.curve("kgr")) <= len(found) == len(queries)
    assert result.metric("klr:mean") == pytest.approx(np.mean([value for _, value in klr(result.records)]))
    assert plain.metric("klr") is None


def test_joint_is_asked_at_the_end_alone(tmp_path):
    result = run(small("joint"), tmp_path, callback=KnowledgeRatios(every=20))
    assert [one.at for one in result.records if isinstance(one, Answers)] == [80]

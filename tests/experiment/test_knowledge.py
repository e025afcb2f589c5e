"""KLR and KGR: golden arithmetic over the whole joint table, and the callback that journals answers."""

from __future__ import annotations

import numpy as np
import pytest

from iblurry import CheckpointPolicy, KnowledgeRatios, load, run
from iblurry.errors import InputError
from iblurry.experiment.journal import Answers, Query, decode, encode
from iblurry.experiment.metrics import kgr, klr
from iblurry.parts import Constant
from tests.experiment.small import DATA, At, CrashError, crash, kept, small

N, TOTAL = 4, (30, 20, 25, 15)


def answers(at, known, seed, skill=0.6):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(N), TOTAL)
    guess = rng.choice(known, len(y))
    chosen = np.where((rng.random(len(y)) < skill) & np.isin(y, known), y, guess)
    return Answers.of(at, chosen, TOTAL, tuple(known))


FIRST, SECOND = answers(10, [2, 0], 1), answers(20, [2, 0, 3], 2)


def counted(then, now):
    table = np.zeros((N, N, N))
    for cell in zip(now.targets, then.chosen, now.chosen, strict=True):
        table[cell] += 1
    return table / table.sum()


def modelled(then, now):
    """As released: cell by cell, and the cells of right answers at both moments at last."""
    y, eps = now.targets, 1e-10
    p1, p2 = (np.bincount(one.chosen, minlength=N) / len(y) for one in (then, now))
    table = np.zeros((N, N, N))
    for i in range(N):
        right1, right2 = (one.chosen[y == i] == i for one in (then, now))
        both, only1, only2 = (right1 & right2).mean(), (right1 & ~right2).mean(), (~right1 & right2).mean()
        none = max(1 - (right1 | right2).mean(), eps)
        u, v = (p1 / (1 - p1[i]), p2 / (1 - p2[i]))
        if i in then.known:
            u[i] = only1 / none
        if i in now.known:
            v[i] = only2 / none
        table[i] = (y == i).mean() * none * np.outer(u, v)
        if i in then.known and i in now.known:
            table[i, i, i] = (y == i).mean() * both
    return table


def ratios(table, met):
    """By the definition, cell by cell."""
    y_a, y_b, a_b = table.sum(2), table.sum(1), table.sum(0)
    y, a, b = y_a.sum(1), y_a.sum(0), y_b.sum(0)
    lost = gained = before = 0.0
    for i, j, k in np.argwhere(table > 0):
        p = table[i, j, k]
        lost += p * np.log(b[k] * p / (a_b[j, k] * y_b[i, k]))
        gained += p * np.log(a[j] * p / (a_b[j, k] * y_a[i, j]))
    for i, j in np.argwhere(y_a > 0):
        before += y_a[i, j] * np.log(y_a[i, j] / (y[i] * a[j]))
    n = np.log(N)
    return (lost / n) / (before / n), (gained / n) / (np.log(met) / n - before / n)


@pytest.mark.parametrize("rule, joint", [("counted", counted), ("released", modelled)])
def test_golden(rule, joint):
    lost, gained = ratios(joint(FIRST, SECOND), 3)
    assert joint(FIRST, SECOND).sum() == pytest.approx(1)
    ((at, value),) = klr([FIRST, SECOND], rule)
    assert (at, value) == (20, pytest.approx(lost, abs=1e-7))
    (first, _), second = kgr([FIRST, SECOND], rule)
    assert (first, second) == (10, (20, pytest.approx(gained, abs=1e-7)))


def test_the_first_moment_gains_from_nothing():
    """KGR = I(y; b) / log C2."""
    y, b = FIRST.targets, FIRST.chosen
    table = np.histogram2d(y, b, bins=[range(N + 1), range(N + 1)])[0] / len(y)
    known = table > 0
    alone = np.outer(table.sum(1), table.sum(0))
    information = (table[known] * np.log(table[known] / alone[known])).sum()
    assert kgr([FIRST]) == [(10, pytest.approx(information / np.log(2)))]
    assert klr([FIRST]) == []


@pytest.mark.parametrize("rule", ["counted", "released"])
def test_extremes(rule):
    right, other = answers(10, [0, 1, 2, 3], 3, skill=1.0), answers(20, [0, 1, 2, 3], 4, skill=0.0)
    same = answers(30, [0, 1, 2, 3], 4, skill=0.0)
    (_, stayed), *_ = klr([right, answers(20, [0, 1, 2, 3], 5, skill=1.0)], rule)
    assert stayed == pytest.approx(0, abs=1e-9)
    assert klr([right, other], rule)[0][1] > 0.9
    assert klr([other, same], "counted")[0][1] == pytest.approx(0, abs=1e-9)  # the same answers know the same
    one = Answers.of(10, np.full(sum(TOTAL), 2), TOTAL, (2,))
    assert klr([one, other], rule) == kgr([one], rule) == []  # who knows one class knows nothing


def test_a_record_of_answers_is_a_line():
    line = encode(FIRST)
    assert decode(line.rstrip()) == FIRST
    assert len(line) < 2 * sum(TOTAL) + 100
    many = Answers.of(5, np.full(300, 299), (1,) * 300, (0, 299))
    assert decode(encode(many).rstrip()).chosen.tolist() == [299] * 300
    for wrong in ({"answers": "AAA="}, {"answers": "?"}, {"known": (1,)}, {"total": (90, 1)}):
        with pytest.raises(InputError, match="answers"):
            Answers(**{"at": 10, "total": TOTAL, "known": FIRST.known, "answers": FIRST.answers} | wrong)


@pytest.mark.parametrize("changes", [{}, {"validate": 0.25}])
def test_in_a_run(changes, tmp_path):
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


def test_interrupted_it_has_the_same_bytes(tmp_path):
    often, callback = CheckpointPolicy(samples=3), KnowledgeRatios(every=10)
    whole = run(small(), tmp_path / "whole", callback=callback, checkpoints=often)
    with pytest.raises(CrashError):
        run(small(), tmp_path / "cut", callback=[callback, At(40, crash)], checkpoints=often)
    assert kept(run(small(), tmp_path / "cut", callback=callback, checkpoints=often).folder) == kept(whole.folder)


def test_joint_is_asked_at_the_end_alone(tmp_path):
    result = run(small("joint"), tmp_path, callback=KnowledgeRatios(every=20))
    assert [one.at for one in result.records if isinstance(one, Answers)] == [80]

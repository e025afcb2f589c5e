from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.errors import InputError
from iblurry.parts import Constant, Exponential
from iblurry.parts.workbench import Update

UPDATE = Update(torch.zeros(0, dtype=torch.int64), None, last_of_round=False)


def test_exponential_golden(golden, make_bench):
    case = golden["exp_reset"]
    schedule = Exponential(rate=case["lr0"], gamma=case["gamma"]).attach(make_bench(2))
    used = []
    for event in case["events"]:
        if event == "n":
            schedule.on_class(0)
        else:
            used.append(schedule.now)
            schedule.advance(UPDATE)
    np.testing.assert_allclose(used, case["lr_used"], atol=1e-12)
    for gamma, updates, expected in (
        (case["gamma"], 1000, case["lr_after_1000_updates"]),
        (case["gamma"], 10000, case["lr_after_10000_updates"]),
        (0.99995, 10000, case["lr_gamma_99995_after_10000"]),
    ):
        schedule = Exponential(rate=case["lr0"], gamma=gamma).attach(make_bench(2))
        for _ in range(updates):
            schedule.advance(UPDATE)
        assert schedule.now == pytest.approx(expected, rel=1e-9)


def test_exponential_without_restart_and_per_round(make_bench):
    steady = Exponential(gamma=0.5, restart_on_class=False).attach(make_bench(2))
    rounds = Exponential(gamma=0.5, per="round").attach(make_bench(2))
    for schedule in (steady, rounds):
        schedule.advance(UPDATE)
        schedule.advance(UPDATE._replace(last_of_round=True))
        schedule.on_class(1)
    assert steady.now == 3e-4 / 4
    assert rounds.now == 3e-4  # one decay, then a new class
    rounds.advance(UPDATE)
    assert rounds.now == 3e-4
    rounds.advance(UPDATE._replace(last_of_round=True))
    assert rounds.now == 1.5e-4


def test_constant_stays(make_bench):
    schedule = Constant(rate=0.1).attach(make_bench(2))
    schedule.advance(UPDATE)
    schedule.on_class(0)
    assert schedule.now == schedule.head_now == 0.1


@pytest.mark.parametrize(
    "make", [lambda: Constant(rate=0), lambda: Exponential(gamma=1.1), lambda: Exponential(per="epoch")]
)
def test_bad_fields(make):
    with pytest.raises(InputError):
        make()

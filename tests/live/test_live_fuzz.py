"""The fuzz run itself: it reaches the service, counts what it is told, and sees when something is wrong."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tests.live.toy import Toy

pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
from benchmarks.live import fuzz
from benchmarks.live.attacks import Target, attacks

TOKEN = "sesame-0123456789"


@pytest.fixture(scope="module")
def toy():
    return Toy((3, 8, 8))


@pytest.fixture(scope="module")
def target(running, toy):
    return Target(f"http://127.0.0.1:{running(toy, token=TOKEN)[0]}", TOKEN)


def test_a_hundred_attacks(target, toy):
    fuzz._teach(target)
    assert len(toy.samples) == 2
    tally = fuzz.Tally()
    for kind, attack in islice(attacks(target, np.random.default_rng(5)), 100):
        tally.note(kind, attack())
    assert not tally.wrong
    assert len(tally) == 100
    assert {kind for kind, _ in tally.counts} == {"picture", "body", "head", "stranger"}
    assert {outcome for kind, outcome in tally.counts if kind == "stranger"} == {401}
    assert {400, 413, 422, 431} <= {outcome for _, outcome in tally.counts}
    assert fuzz._get(target, "/healthz") == 200


def test_a_mistake_of_the_service_is_wrong(target, toy):
    toy.failure = RuntimeError("on purpose")
    tally = fuzz.Tally()
    tally.note("honest", target.tell(target.head("GET", "/v1/status")))
    tally.note("honest", target.tell(target.head("GET", "/v1/status")))
    assert tally.counts == {("honest", 500): 1, ("honest", 200): 1}
    assert tally.wrong == ["honest: an answer of 500"]


def test_growth_is_wrong():
    before = fuzz.Vitals(files=9, threads=4, megabytes=100)
    assert not fuzz._growth(before, fuzz.Vitals(files=25, threads=8, megabytes=164))
    grown = fuzz._growth(before, fuzz.Vitals(files=26, threads=9, megabytes=165))
    assert grown == ["17 more files, 16 may be", "5 more threads, 4 may be", "65 more megabytes, 64 may be"]

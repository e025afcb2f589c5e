"""Fuzzing: the service keeps to its own description, and the fuzz run sees when something is wrong."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from benchmarks.live import fuzz
from benchmarks.live.attacks import Target, attacks
from iblurry.live.quota import Limits
from tests.live.toy import Toy

HERE = "http://127.0.0.1"
CASES = 30  # of each endpoint, as many valid as invalid
TOKEN = "sesame-0123456789"


@pytest.fixture(scope="module")
def toy():
    return Toy((3, 8, 8), Limits(seconds=2))  # a body that is claimed and not sent is waited for so long


@pytest.fixture(scope="module")
def target(running, toy):
    return Target(f"http://127.0.0.1:{running(toy, token=TOKEN)[0]}", TOKEN)


@pytest.mark.slow
def test_a_hundred_attacks(target, toy):
    fuzz._teach(target)
    assert len(toy.samples) == 2
    outcomes = fuzz.Outcomes()
    for kind, attack in islice(attacks(target, np.random.default_rng(5)), 100):
        outcomes.note(kind, attack())
    assert not outcomes.wrong
    assert len(outcomes) == 100
    assert {kind for kind, _ in outcomes.counts} == {"picture", "body", "head", "stranger"}
    assert {outcome for kind, outcome in outcomes.counts if kind == "stranger"} == {401}
    assert {400, 413, 422} <= {outcome for _, outcome in outcomes.counts}
    assert fuzz._get(target, "/healthz") == 200


def test_a_mistake_of_the_service_is_wrong(target, toy):
    toy.failure = RuntimeError("on purpose")
    outcomes = fuzz.Outcomes()
    outcomes.note("honest", target.tell(target.head("GET", "/v1/status")))
    outcomes.note("honest", target.tell(target.head("GET", "/v1/status")))
    assert outcomes.counts == {("honest", 500): 1, ("honest", 200): 1}
    assert outcomes.wrong == ["honest: an answer of 500"]


def test_growth_is_wrong():
    before = fuzz.Vitals(files=9, threads=4, megabytes=100)
    assert not fuzz._growth(before, fuzz.Vitals(files=25, threads=8, megabytes=164))
    grown = fuzz._growth(before, fuzz.Vitals(files=26, threads=9, megabytes=165))
    assert grown == ["17 more files, 16 may be", "5 more threads, 4 may be", "65 more megabytes, 64 may be"]


@pytest.mark.slow
def test_answers_are_as_described():
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install '.[dev]'")
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    from iblurry.live.http.app import create_app

    app = create_app(Toy((1, 2, 2)))
    rejections = {"negative_data_rejection": {"expected-statuses": ["4xx"]}}  # 413 is one: too many samples
    config = schemathesis.Config.from_dict({"checks": rejections})
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=config, headers={"Host": "127.0.0.1"})
    told = Counter()
    right = schema["/v1/learn"]["POST"].Case(
        body={"samples": [{"label": "a", "array": [[[0, 1], [2, 3]]]}]}, media_type="application/json"
    )
    told[right.call_and_validate(base_url=HERE).status_code] += 1
    for operation in (result.ok() for result in schema.exclude(path="/v1/events").get_all_operations()):
        for mode in GenerationMode:

            @settings(
                max_examples=CASES,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(mode))
            def ask(case):
                response = case.call(base_url=HERE)
                told[response.status_code] += 1
                # an arbitrary text is no picture, so what fits the description may still be refused
                case.validate_response(response, excluded_checks=[positive_data_acceptance])

            try:
                ask()
            except Unsatisfiable:
                assert not operation.query  # it takes nothing that could be wrong
                assert not operation.body
    assert sum(told.values()) > 150
    assert not [status for status in told if status >= 500]
    assert {200, 202, 400, 422} <= set(told)

"""The service keeps to its own description, whatever it is sent: schemathesis makes up requests from it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.live.toy import Toy

pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install '.[dev]'")
HERE = "http://127.0.0.1"
CASES = 30  # of each endpoint, as many right ones as wrong ones


@pytest.mark.slow
def test_answers_are_as_described():
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    from iblurry.live.http.app import create_app

    app = create_app(Toy((1, 2, 2)))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "127.0.0.1"})
    told = Counter()
    right = schema["/v1/learn"]["POST"].Case(
        body={"samples": [{"label": "a", "array": [[[0, 1], [2, 3]]]}]}, media_type="application/json"
    )
    told[right.call_and_validate(base_url=HERE).status_code] += 1
    for operation in (result.ok() for result in schema.exclude(path="/v1/events").get_all_operations()):
        for mode in GenerationMode:

            @settings(
                max_examples=CASES,
                deadline=None,
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

"""The metrics: every line is in Prometheus' format, and says what the service says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from iblurry.live.exchange import Labelled
from iblurry.live.http.prometheus import BUCKETS, CLASS, KIND, STATUS, Requests, metrics

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
LINE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def read(text):
    """{(name, labels): value}, and the kinds; fails where the format does."""
    values, kinds = {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert len(line.split(" ", 3)) == 4
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        else:
            match = LINE.fullmatch(line)
            assert match, line
            key = match[1], match[2] or ""
            assert key not in values
            values[key] = float(match[3])
            family = re.sub(r"_(bucket|sum|count)$", "", match[1]) if "request_seconds" in match[1] else match[1]
            assert family in kinds, line
            assert match[1].startswith("iblurry_")
    return values, kinds


@pytest.fixture
def taught(toy):
    toy.samples = [Labelled(label, np.zeros((3, 4, 4), np.uint8)) for label in ("cat", 'a "b"\\c', "cat")]
    return toy


def test_every_number_of_the_service_is_there(taught):
    text = metrics(taught.status(), taught.classes(), Requests([]), listeners=3)
    values, kinds = read(text)
    assert values["iblurry_samples_accepted_total", ""] == 3
    assert values["iblurry_learning_rate", ""] == 0.0003
    assert values["iblurry_listeners", ""] == 3
    assert values["iblurry_class_samples_total", 'label="cat"'] == 2
    assert values["iblurry_class_samples_total", 'label="a \\"b\\"\\\\c"'] == 1
    assert values["iblurry_class_accuracy_ratio", 'label="cat"'] == 0
    assert ("iblurry_class_accuracy_ratio", 'label="a \\"b\\"\\\\c"') not in values  # not known yet
    assert ("iblurry_accuracy_ratio", "") not in values
    assert kinds["iblurry_samples_accepted_total"] == "counter"
    assert kinds["iblurry_queue_samples"] == "gauge"
    for name, kind, *_ in (*STATUS, *CLASS):
        assert name.endswith("_total") == (kind == "counter")


def test_every_key_is_one_of_the_status(taught):
    assert {key for _, _, key, _ in STATUS} <= set(taught.status())
    assert {key for _, _, key, _ in CLASS} <= set(taught.classes()[0])


def test_a_loss_without_bounds_is_still_a_number(taught):
    taught.loss = float("inf")
    values, _ = read(metrics(taught.status(), [], Requests([]), listeners=0))
    assert values["iblurry_loss", ""] == float("inf")


def test_requests_are_counted_in_buckets():
    requests = Requests(["/v1/learn"])
    for seconds in (0.0005, 0.001, 0.02, 3, 100):
        requests.note("/v1/learn", 202, seconds)
    requests.note("/v1/learn", 429, 0.01)
    for path in ("/a", "/b", "/v1/learn/x" * 100):
        requests.note(path, 404, 0.01)
    values, _ = read("\n".join([*requests.lines(), ""]))
    learn = 'endpoint="/v1/learn",status="202"'
    counts = [values["iblurry_request_seconds_bucket", f'{learn},le="{bound}"'] for bound in (*BUCKETS, "+Inf")]
    assert counts == [sum(s <= b for s in (0.0005, 0.001, 0.02, 3, 100)) for b in (*BUCKETS, float("inf"))]
    assert values["iblurry_request_seconds_count", learn] == 5
    assert values["iblurry_request_seconds_sum", learn] == pytest.approx(103.0215)
    assert values["iblurry_request_seconds_count", 'endpoint="other",status="404"'] == 3
    assert len(requests.counts) == 3


def test_over_http(call, taught):
    assert call("GET", "/v1/status").status_code == 200
    assert call("GET", "/v1/nothing").status_code == 404
    answer = call("GET", "/v1/metrics")
    assert answer.headers["content-type"] == KIND
    values, _ = read(answer.text)
    assert values["iblurry_request_seconds_count", 'endpoint="/v1/status",status="200"'] == 1
    assert values["iblurry_request_seconds_count", 'endpoint="other",status="404"'] == 1

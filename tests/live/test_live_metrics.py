"""The metrics: in Prometheus' format, and the numbers of the service."""

from __future__ import annotations

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from iblurry.live.http.metrics import BUCKETS, CONTENT_TYPE, ServiceMetrics
from iblurry.live.messages import IncomingSample


def read(text):
    """{(name, values of its labels by their names): value}, and the types by family."""
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    assert all(sample.name.startswith("iblurry_") for sample in samples)
    values = {(sample.name, *sample.labels.values()): sample.value for sample in samples}
    assert len(values) == len(samples)
    return values, {family.name: family.type for family in families}


def scrape(service):
    return read(ServiceMetrics(service).to_text().decode())


@pytest.fixture
def taught(toy):
    toy.samples = [IncomingSample(label, np.zeros((3, 4, 4), np.uint8)) for label in ("cat", 'a "b"\\c', "cat")]
    return toy


def test_every_number_of_the_service_is_there(taught):
    values, types = scrape(taught)
    assert values["iblurry_samples_accepted_total",] == 3
    assert values["iblurry_learning_rate",] == 0.0003
    assert values["iblurry_listeners",] == 0
    assert values["iblurry_info", "cpu", "0.1.0", "clib", "convnet"] == 1
    assert values["iblurry_class_samples_total", "cat"] == 2
    assert values["iblurry_class_samples_total", 'a "b"\\c'] == 1
    assert values["iblurry_class_accuracy_ratio", "cat"] == 0
    assert ("iblurry_class_accuracy_ratio", 'a "b"\\c') not in values  # not known yet
    assert ("iblurry_accuracy_ratio",) not in values
    assert types["iblurry_samples_accepted"] == "counter"
    assert types["iblurry_queue_samples"] == "gauge"
    assert not [name for name, *_ in values if name.endswith("_created")]


def test_requests_are_counted_in_buckets(toy):
    metrics, seconds = ServiceMetrics(toy), (0.0005, 0.001, 0.02, 3, 100)
    metrics.endpoints = {"/v1/learn"}
    for each in seconds:
        metrics.record_request("/v1/learn", 202, each)
    metrics.record_request("/v1/learn", 429, 0.01)
    for path in ("/a", "/b", "/v1/learn/x" * 100):
        metrics.record_request(path, 404, 0.01)
    values, _ = read(metrics.to_text().decode())
    for bound in (*BUCKETS, float("inf")):
        name = "+Inf" if bound == float("inf") else str(bound)
        count = values["iblurry_request_seconds_bucket", "/v1/learn", name, "202"]
        assert count == sum(each <= bound for each in seconds)
    assert values["iblurry_request_seconds_count", "/v1/learn", "202"] == 5
    assert values["iblurry_request_seconds_sum", "/v1/learn", "202"] == pytest.approx(103.0215)
    assert values["iblurry_request_seconds_count", "other", "404"] == 3
    assert len([name for name, *_ in values if name.endswith("_count")]) == 3


def test_over_http(call, taught):
    assert call("GET", "/v1/status").status_code == 200
    assert call("GET", "/v1/nothing").status_code == 404
    answer = call("GET", "/v1/metrics")
    assert answer.headers["content-type"] == CONTENT_TYPE
    values, _ = read(answer.text)
    assert values["iblurry_request_seconds_count", "/v1/status", "200"] == 1
    assert values["iblurry_request_seconds_count", "other", "404"] == 1

"""The real learner behind the real server: what it says is as its description says."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest

from iblurry.live.http import answers
from iblurry.live.quota import Limits
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from tests.live.test_live_metrics import read

TOKEN = "sesame-0123456789"


@pytest.fixture(scope="module")
def ask(running, tmp_path_factory):
    settings = Settings(network="mlp", image=(1, 4, 4), memory=6, max_classes=3, batch=4)
    port, _ = running(Service(tmp_path_factory.mktemp("live"), settings, Limits(queue=300)), token=TOKEN)

    def send(path, body=None):
        kind = {"Content-Type": "application/octet-stream", "Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=kind)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode()

    return send


def test_everything_it_says_is_described(ask):
    for number in range(12):
        receipt = json.loads(ask(f"/v1/learn?label={'ab'[number % 2]}", bytes([number * 20] * 16)))
        assert receipt == {"accepted": 1, "first": number + 1, "last": number + 1, "repeated": False}
    until = time.monotonic() + 30
    while json.loads(ask("/v1/status"))["model"] < 12:
        assert time.monotonic() < until, "it does not learn"
        time.sleep(0.1)
    for path, model in (
        ("status", answers.StatusResponse),
        ("classes", answers.ClassesResponse),
        ("history", answers.HistoryResponse),
        ("confusion", answers.ConfusionResponse),
        ("memory", answers.MemoryResponse),
    ):
        told = json.loads(ask(f"/v1/{path}"))
        assert model.model_validate(told, strict=True).model_dump() == told, path
    answer = json.loads(ask("/v1/predict?top=1", bytes(32)))
    assert answers.PredictResponse.model_validate(answer, strict=True).model == 12
    assert [len(one["top"]) for one in answer["answers"]] == [1, 1]
    values, _ = read(ask("/v1/metrics"))
    assert values["iblurry_samples_learnt_total",] == 12
    assert values["iblurry_class_samples_total", "a"] == 6
    assert json.loads(ask("/readyz")) == {"ok": True}

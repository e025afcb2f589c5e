"""Every endpoint: what it gives, as its description says, and how it says no."""

from __future__ import annotations

import base64
import gzip
import logging
import re

import numpy as np
import pytest

from iblurry import Client
from iblurry.errors import InputError, ServiceError
from iblurry.live.http import answers, pictures
from iblurry.live.http.answers import format_predictions
from iblurry.live.http.bodies import ONE_PIXEL
from iblurry.live.messages import IncomingSample, Predictions
from iblurry.live.quota import BATCH, Refusal

DARK, LIGHT = bytes(48), bytes([200]) * 48  # of 3 x 4 x 4
RAW = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def taught(toy):
    toy.samples = [
        IncomingSample(label, np.full((3, 4, 4), shade, np.uint8)) for label, shade in (("night", 0), ("day", 200))
    ]
    return toy


def said(response, status, code):
    """Whether it is a refusal as it should be."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    body = response.json()
    assert set(body) == {"error", "message"}
    assert body["error"] == code
    assert body["message"].endswith(".")
    return body["message"]


def test_learn(call, toy):
    first = call("POST", "/v1/learn?label=night", content=DARK, headers=RAW)
    assert (first.status_code, first.json()) == (202, {"accepted": 1, "first": 1, "last": 1, "repeated": False})
    day = base64.b64encode(LIGHT).decode()
    entries = [{"label": "day", "pixels": day}, {"label": "day", "image": ONE_PIXEL}]
    more = call("POST", "/v1/learn", json={"samples": entries})
    assert more.json() == {"accepted": 2, "first": 2, "last": 3, "repeated": False}
    assert [sample.label for sample in toy.samples] == ["night", "day", "day"]
    assert toy.samples[1].pixels.tobytes() == LIGHT
    assert (toy.samples[2].pixels.reshape(3, -1) == np.array([[200], [120], [40]])).all()


@pytest.mark.parametrize(
    "entry, index, field",
    [
        ({"label": "b", "image": base64.b64encode(b"no picture").decode()}, 1, "image"),
        ({"label": "b", "pixels": "AAAA"}, 1, "pixels"),
        ({"label": "b", "array": [1]}, 1, "array"),
        ({"label": "", "image": ONE_PIXEL}, 1, "label"),
        ({"label": "b"}, 1, None),
    ],
)
def test_the_entry_at_fault_is_named_by_fields(entry, index, field, call, toy):
    good = {"label": "a", "image": ONE_PIXEL}
    body = call("POST", "/v1/learn", json={"samples": [good, entry, good]}).json()
    assert (body["index"], body.get("field")) == (index, field)
    if field in ("image", "pixels", "array"):
        del entry["label"]
        body = call("POST", "/v1/predict", json={"images": [{"image": ONE_PIXEL}, entry]}).json()
        assert (body["index"], body["field"]) == (index, field)
    assert not toy.samples


def test_too_many_pixels_together_are_the_fault_of_no_entry(call, monkeypatch):
    monkeypatch.setattr(pictures, "REQUEST_PICTURES", 0)
    answer = call("POST", "/v1/learn", json={"samples": [{"label": "a", "image": ONE_PIXEL}]})
    said(answer, 413, "too_many_pixels")


def test_a_label_in_the_address_is_decoded(call, toy):
    for given in ("caf%C3%A9", "a+b", "a%2Bb", "%20a", "a&label2=b"):
        assert call("POST", f"/v1/learn?label={given}", content=DARK, headers=RAW).status_code == 202
    assert [sample.label for sample in toy.samples] == ["café", "a b", "a+b", "a", "a"]
    said(call("POST", "/v1/learn?label=%ff", content=DARK, headers=RAW), 400, "bad_address")
    said(call("POST", "/v1/learn?label=%ED%A0%80", content=DARK, headers=RAW), 400, "bad_address")
    said(call("POST", "/v1/learn?label=", content=DARK, headers=RAW), 422, "bad_label")
    said(call("POST", "/v1/learn?label=a%0Ab", content=DARK, headers=RAW), 422, "bad_label")


def test_a_request_sent_again_counts_once(call, toy):
    def send(body, key):
        return call("POST", "/v1/learn?label=a", content=body, headers={**RAW, "Idempotency-Key": key})

    assert send(DARK, "one").json()["repeated"] is False
    assert send(DARK, "one").json() == {"accepted": 1, "first": 1, "last": 1, "repeated": True}
    said(send(LIGHT, "one"), 422, "key_reused")
    said(send(DARK, "two words"), 422, "bad_key")
    said(send(DARK, ""), 422, "bad_key")
    said(send(DARK, "x" * 201), 422, "bad_key")
    assert len(toy.samples) == 1


def test_a_compressed_body_is_not_read(call, taught):
    squeezed = {**RAW, "Content-Encoding": "gzip"}
    said(call("POST", "/v1/learn?label=a", content=gzip.compress(DARK), headers=squeezed), 415, "unknown_kind")
    said(call("POST", "/v1/predict", content=gzip.compress(DARK), headers=squeezed), 415, "unknown_kind")
    assert call("POST", "/v1/predict", content=DARK, headers={**RAW, "Content-Encoding": "identity"}).status_code == 200


def test_predict(call, taught):
    answer = call("POST", "/v1/predict?top=1", content=LIGHT + DARK, headers=RAW).json()
    assert answer["model"] == 2
    assert [(one["label"], len(one["top"])) for one in answer["answers"]] == [("day", 1), ("night", 1)]
    both = call("POST", "/v1/predict", json={"images": [{"pixels": base64.b64encode(DARK).decode()}]}).json()
    (one,) = both["answers"]
    assert [guess["label"] for guess in one["top"]] == ["night", "day"]
    assert one["probability"] == one["top"][0]["probability"]
    assert sum(guess["probability"] for guess in one["top"]) == pytest.approx(1)
    answers.PredictResponse.model_validate(both)


def test_predict_is_the_same_with_and_without_a_query(call, taught):
    """Without one, the request takes a shorter way to the handler."""
    ways = ("/v1/predict", "/v1/predict?top=5", "/v1/predict?")
    answers = [call("POST", way, content=DARK, headers=RAW) for way in ways]
    tops = [answer.json()["answers"][0]["top"] for answer in answers]
    assert tops[0] == tops[1] == tops[2]
    assert [dict(answer.headers) for answer in answers] == [dict(answers[0].headers)] * 3
    for way in ways:
        said(call("POST", way, content=DARK[1:], headers=RAW), 422, "wrong_size")
        assert call("GET", way).headers["Allow"] == "POST"
    assert 'seconds_count{endpoint="/v1/predict",status="200"} 3.0' in call("GET", "/v1/metrics").text


@pytest.mark.parametrize("top", ["0", "-1", "1001", "x", "1.5", "", "9" * 400, "NaN"])
def test_a_top_that_is_none(call, taught, top):
    message = said(call("POST", f"/v1/predict?top={top}", content=DARK, headers=RAW), 422, "bad_parameter")
    assert message.startswith("top")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_an_answer_that_is_no_number_is_not_given(call, taught, number):
    async def diverged(pixels):
        return Predictions(7, ("night", "day"), np.array([[0.5, 0.5], [1.0, number]], np.float32))

    taught.predict = diverged
    answer = call("POST", "/v1/predict?top=1", content=DARK + LIGHT, headers=RAW)
    assert "see /v1/status" in said(answer, 503, "not_finite")
    spec = call("GET", "/openapi.json").json()
    assert "its model has diverged" in spec["paths"]["/v1/predict"]["post"]["responses"]["503"]["description"]


def test_a_loss_that_is_no_number_is_null(call, toy):
    toy.loss = float("nan")
    assert call("GET", "/v1/status").json()["loss"] is None


def test_memory_shows_the_most_important_first(call, toy):
    toy.samples = [IncomingSample("ab"[i % 2], np.full((3, 4, 4), i, np.uint8)) for i in range(10)]
    shown = call("GET", "/v1/memory?each=3").json()
    assert (shown["capacity"], shown["size"]) == (500, 10)
    a, b = shown["classes"]
    assert (a["label"], a["count"], len(a["items"])) == ("a", 5, 3)
    assert [item["row"] for item in b["items"]] == [9, 7, 5]  # by importance
    assert [item["row"] for item in a["items"]] == [8, 6, 4]  # none is known: the newest
    assert b["items"][0]["importance"] == 0.9
    assert b["items"][0]["thumbnail"].startswith("data:image/png;base64,iVBOR")
    said(call("GET", "/v1/memory?each=0"), 422, "bad_parameter")


def test_an_answer_below_the_threshold_is_unknown():
    predictions = Predictions(3, ("b", "a"), np.array([[0.5, 0.5], [0.2, 0.8]]), ("x", "y"), threshold=0.8)
    found = format_predictions(predictions, 2).model_dump()
    assert (found["threshold"], [answer["unknown"] for answer in found["answers"]]) == (0.8, [True, False])
    assert [guess["label"] for guess in found["answers"][0]["top"]] == ["b", "a"]  # of equals the one met first
    with pytest.raises(Refusal) as refused:  # where all classes were deleted
        format_predictions(predictions._replace(labels=("", "")), 2)
    assert refused.value.status == 409


def test_health_and_readiness(call, toy):
    assert call("GET", "/healthz").json() == {"ok": True}
    assert call("GET", "/readyz").json() == {"ok": True}
    toy.reason = "It is being recovered; wait."
    not_yet = call("GET", "/readyz")
    assert said(not_yet, 503, "not_ready") == toy.reason
    assert not_yet.headers["retry-after"] == "1"
    assert call("GET", "/healthz").status_code == 200


@pytest.mark.parametrize(
    "refusal, retry",
    [
        (Refusal(429, "queue_full", "Wait a little.", retry_after=2.3), "3"),
        (Refusal(429, "queue_full", "Wait a little.", retry_after=0.01), "1"),
        (Refusal(409, "too_many_classes", "There is no room."), None),
        (Refusal(507, "disk_full", "Make room."), None),
        (Refusal(503, "stopping", "It is stopping.", retry_after=5), "5"),
    ],
)
def test_the_service_says_no(call, toy, refusal, retry):
    toy.failure = refusal
    answer = call("POST", "/v1/learn?label=a", content=DARK, headers=RAW)
    assert said(answer, refusal.status, refusal.code) == str(refusal)
    assert answer.headers.get("retry-after") == retry


def test_a_mistake_of_ours_is_in_the_log_and_not_in_the_answer(call, toy, caplog):
    toy.failure = RuntimeError("a secret detail")
    with caplog.at_level(logging.ERROR):
        answer = call("GET", "/v1/status")
    said(answer, 500, "mistake")
    assert "secret" not in answer.text
    assert "a secret detail" in caplog.text


def test_what_there_is_not(call):
    for path in ("/nothing", "/v1", "/v1/", "/v1/status/", "//v1/status", "/redoc", "/assets/", "/%00", "/%ff"):
        said(call("GET", path), 404, "not_found")
    for method, path, allowed in (("GET", "/v1/learn", "POST"), ("DELETE", "/v1/status", "GET"), ("PUT", "/", "GET")):
        answer = call(method, path)
        assert allowed in said(answer, 405, "wrong_method")
        assert answer.headers["allow"] == allowed
    assert call("HEAD", "/readyz").status_code == 200
    assert call("HEAD", "/v1/status").status_code == 405
    assert call("OPTIONS", "/v1/learn").status_code == 405
    assert call("BREW", "/v1/learn").status_code == 405


def test_the_description_says_what_is_there(call):
    spec = call("GET", "/openapi.json").json()
    assert spec["openapi"].startswith("3.1")
    names = (
        *("learn", "predict", "label", "correct", "status", "classes", "history", "memory", "model", "events"),
        *("metrics", "confusion", "held-out"),
    )
    assert set(spec["paths"]) == {*(f"/v1/{name}" for name in names), "/healthz", "/readyz"}
    assert "securitySchemes" not in spec["components"]
    for path in spec["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert "500" not in operation["responses"]
            assert "401" not in operation["responses"]
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorResponse")
    body = spec["paths"]["/v1/learn"]["post"]["requestBody"]
    assert spec["components"]["schemas"]["LearnRequest"]["properties"]["samples"]["maxItems"] == BATCH
    assert call("POST", "/v1/learn", json=body["content"]["application/json"]["example"]).status_code == 202


def test_the_description_knows_the_sizes_and_the_token(call):
    spec = call("GET", "/openapi.json", token="sesame", headers={"Authorization": "Bearer sesame"}).json()
    assert "3 x 4 x 4 = 48 bytes" in spec["info"]["description"]
    assert spec["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    learn = spec["paths"]["/v1/learn"]["post"]
    assert learn["security"] == [{"token": []}]
    assert "401" in learn["responses"]
    assert {one["name"] for one in learn["parameters"]} == {"label", "Idempotency-Key"}
    assert spec["paths"]["/healthz"]["get"].get("security") is None


def test_the_page_of_the_api_needs_nothing_from_elsewhere(call):
    page = call("GET", "/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "unsafe" not in page.headers["content-security-policy"]
    found = re.findall(r"(?:src|href)=\"([^\"]+)\"", page.text)
    assert {"assets/docs.js", "assets/docs.css"} <= set(found)
    for name in found:
        text = call("GET", name).text
        assert not re.findall(r"@import|url\(|innerHTML|eval\(|(?:src|href)=[\"']?(?:https?:)?//", text), name
    again = call("GET", "/docs", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_model_as_a_file(call, toy):
    said(call("GET", "/v1/model"), 409, "nothing_learnt")
    call("POST", "/v1/learn?label=a", content=DARK, headers=RAW)
    answer = call("GET", "/v1/model")
    assert (answer.status_code, answer.content) == (200, b"pt2" * 200_000)
    assert answer.headers["content-length"] == "600000"
    assert (answer.headers["etag"], answer.headers["x-samples"], answer.headers["x-accepted"]) == ('"1-pt2"', "1", "2")
    again = call("GET", "/v1/model", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", '"1-pt2"')
    for other in ("format=onnx", "format=safetensors"):
        assert call("GET", f"/v1/model?{other}", headers={"If-None-Match": '"1-pt2"'}).status_code == 200
    call("POST", "/v1/learn?label=a", content=DARK, headers=RAW)
    assert call("GET", "/v1/model", headers={"If-None-Match": '"1-pt2"'}).headers["etag"] == '"2-pt2"'
    said(call("GET", "/v1/model?format=pickle"), 422, "bad_parameter")
    described = call("GET", "/openapi.json").json()["paths"]["/v1/model"]["get"]
    assert described["responses"]["200"]["content"].keys() == {"application/octet-stream"}
    assert {"304", "409", "422"} <= described["responses"].keys()


def test_the_client_downloads_the_model(running, tmp_path, toy):
    port, _ = running(toy)
    with Client(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(ServiceError, match="Nothing has been learnt"):
            client.download_model(tmp_path / "model.pt2")
        client.learn(np.zeros(toy.settings.image, np.uint8), "a")
        assert client.download_model(tmp_path / "model.onnx") == 1
        with pytest.raises(InputError, match=r"\.pth"):
            client.download_model(tmp_path / "model.pth")
    assert (tmp_path / "model.onnx").read_bytes() == b"onnx" * 200_000
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_a_correction_says_what_stays(call, taught, toy):
    """Weights keep what they have learnt; closed forms have none."""
    sentences = set()
    for toy.trains in (True, False):
        answer = call("POST", "/v1/correct", json={"corrections": [{"action": "remove", "sample": 1}]})
        assert answer.status_code == 202
        sentences.add(answer.json()["sentence"])
    assert len(sentences) == 2

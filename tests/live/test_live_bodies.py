"""Bodies in every form become the same samples; what is wrong with one is said in a sentence."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from iblurry.live.http.bodies import BodyReader, known_label
from iblurry.live.quota import BATCH, LABEL, Limits, Refusal

SHAPE = (3, 4, 4)
PIXELS = np.arange(48, dtype=np.uint8).reshape(SHAPE)
JSON, RAW = "application/json", "application/octet-stream"


@pytest.fixture
def reader():
    return BodyReader(SHAPE, Limits())


def png():
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(PIXELS.transpose(1, 2, 0))).save(file, "PNG")
    return file.getvalue()


def text(raw):
    return base64.b64encode(raw).decode()


def learn(*entries):
    return json.dumps({"samples": list(entries)}).encode()


FORMS = [{"image": text(png())}, {"pixels": text(PIXELS.tobytes())}, {"array": PIXELS.tolist()}]


def test_every_form_is_the_same_sample(reader):
    given = [reader.read_samples(JSON, learn({"label": "cat", **form}), None) for form in FORMS]
    given += [reader.read_samples(kind, png(), "cat") for kind in ("image/png", "image/jpeg", "IMAGE/X; q=1")]
    given += [reader.read_samples(RAW, PIXELS.tobytes(), "cat")]
    for (one,) in given:
        assert one.label == "cat"
        assert one.pixels.dtype == np.uint8
        assert (one.pixels == PIXELS).all()


def test_pictures_are_never_read_where_others_wait(reader):
    def ask(entry):
        return json.dumps({"images": [entry]}).encode()

    quick = [reader.is_quick(JSON, ask(form)) for form in FORMS]
    assert quick == [False, True, True]
    assert not reader.is_quick(JSON, ask(FORMS[0]).replace(b'"image"', b'"\\u0069mage"'))
    assert reader.is_quick(RAW, PIXELS.tobytes())
    assert not reader.is_quick(RAW, bytes(2**16))
    assert not reader.is_quick("image/png", png())


def test_several_at_once_stay_in_order(reader):
    entries = [{"label": label, **form} for label, form in zip("abc", FORMS, strict=True)]
    assert [one.label for one in reader.read_samples(JSON, learn(*entries), None)] == ["a", "b", "c"]
    several = reader.read_samples(RAW, PIXELS.tobytes() + bytes(48), "cat")
    assert [(one.label, int(one.pixels.sum())) for one in several] == [("cat", int(PIXELS.sum())), ("cat", 0)]


def test_questions(reader):
    body = json.dumps({"images": FORMS}).encode()
    for kind, raw, count in ((JSON, body, 3), (RAW, PIXELS.tobytes() * 2, 2), ("image/png", png(), 1)):
        asked = reader.read_images(kind, raw)
        assert asked.shape == (count, *SHAPE)
        assert (asked == PIXELS).all()


@pytest.mark.parametrize("label", ["cat", "a b", "日本語", "🐈‍⬛", "می‌", "<b>", 'a"', "\\"])
def test_labels_are_taken_exactly_as_they_are(reader, label):
    (one,) = reader.read_samples(RAW, PIXELS.tobytes(), known_label(label))
    assert one.label == label
    (one,) = reader.read_samples(JSON, learn({"label": label, **FORMS[1]}), None)
    assert one.label == label


@pytest.mark.parametrize(
    "label",
    [
        *(None, "", " ", "\ufe0f", "x" * (LABEL + 1), "a\n", "\x85", "\ud800", "\u200da", 7, ["a"], True, {}),
        *(f"a{hidden}b" for hidden in "\u200b\u200d\u200c\u2060\ufeff\u00ad\u202e\u2066\u061c\u034f\u3164\U000e0041"),
    ],
)
def test_what_is_no_label(reader, label):
    if not isinstance(label, (int, list, dict)):
        with pytest.raises(Refusal) as no:
            reader.read_samples(RAW, PIXELS.tobytes(), known_label(label))
        assert (no.value.status, no.value.code) == (422, "bad_label")
    with pytest.raises(Refusal) as no:
        reader.read_samples(JSON, learn({"label": label, **FORMS[1]}), None)
    assert (no.value.status, no.value.code) in {(422, "bad_label"), (400, "bad_json")}  # half a character is no JSON


@pytest.mark.parametrize(
    "given, label",
    [
        ("e\u0301", "é"),
        (" a ", "a"),
        ("a \xa0 b", "a b"),
        ("\u3000a", "a"),
        ("\u2764\ufe0f", "\u2764"),
        ("\u212b", "Å"),
    ],
)
def test_labels_that_look_the_same_are_the_same(reader, given, label):
    (raw,) = reader.read_samples(RAW, PIXELS.tobytes(), known_label(given))
    (one,) = reader.read_samples(JSON, learn({"label": given, **FORMS[1]}), None)
    assert raw.label == one.label == label


@pytest.mark.parametrize("value, shown", [(1.0, "1.0"), (True, "true"), ("7", '"7"'), (None, "null"), ([1], r"\[1\]")])
def test_an_array_of_the_right_shape_and_another_type(reader, value, shown):
    array = PIXELS.tolist()
    array[2][1][3] = value
    with pytest.raises(Refusal, match=rf"^samples\.0\.array has {shown}, .*whole numbers from 0 to 255") as no:
        reader.read_samples(JSON, learn({"label": "a", "array": array}), None)
    assert (no.value.status, no.value.code, no.value.field) == (422, "wrong_type", "array")


def test_a_label_in_the_wrong_place(reader):
    with pytest.raises(Refusal, match="label"):
        reader.read_samples(JSON, learn({"label": "a", **FORMS[0]}), "a")
    with pytest.raises(Refusal, match=r"\?label="):
        reader.read_samples("image/png", png(), None)


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"\xff", b"{'samples': []}", b'{"samples": [NaN]}', b'{"samples": [1e999]}', b"[" * 5000),
        *(b"\xef\xbb\xbf{}", b'{"samples": [' + b"9" * 5000 + b"]}", b'{"a": "\xed\xa0\x80"}'),
        b'{"samples": [{"label": "\\ud800", "image": ""}]}',
    ],
)
def test_what_is_no_json(reader, raw):
    for read in (lambda: reader.read_samples(JSON, raw, None), lambda: reader.read_images(JSON, raw)):
        with pytest.raises(Refusal) as no:
            read()
        assert no.value.status in (400, 422)
        assert len(str(no.value)) < 300


@pytest.mark.parametrize(
    "body",
    [
        *(None, [], 7, "x", {}, {"images": FORMS}, {"samples": [{"label": "a", **FORMS[0]}], "more": 1}),
        *({"samples": samples} for samples in ([], None, {}, [1], [[]], [{"label": "a"}])),
        {"samples": [{"label": "a", "image": "", "array": []}]},
        {"samples": [{"label": "a", **FORMS[0], "more": 1}]},
    ],
)
def test_json_of_another_build(reader, body):
    with pytest.raises(Refusal) as no:
        reader.read_samples(JSON, json.dumps(body).encode(), None)
    assert (no.value.status, no.value.code) == (422, "bad_body")


@pytest.mark.parametrize(
    "entry",
    [
        '{"label": "a", "label": "b", "pixels": "P"}',
        r'{"label": "a", "lab\u0065l"  : "b", "pixels": "P"}',
        '{"label": "a", "pixels": "P"}], "samples": [{"label": "b", "pixels": "P"}',
    ],
)
def test_a_name_given_twice_is_refused(reader, entry):
    body = '{"samples": [' + entry.replace("P", text(PIXELS.tobytes())) + "]}"
    with pytest.raises(Refusal) as no:
        reader.read_samples(JSON, body.encode(), None)
    assert (no.value.status, no.value.code) == (400, "bad_json")


@pytest.mark.parametrize("label", [":", '":', 'a":'])
def test_texts_that_look_like_names(reader, label):
    (one,) = reader.read_samples(JSON, learn({"label": label, **FORMS[1]}), None)
    assert one.label == label


def test_the_place_of_a_mistake_is_named(reader):
    with pytest.raises(Refusal, match=r"^samples\.1\.image is not a readable picture"):
        reader.read_samples(JSON, learn({"label": "a", **FORMS[0]}, {"label": "a", "image": "QUJD"}), None)
    with pytest.raises(Refusal, match=r"^images\.0\.pixels has 3 bytes"):
        reader.read_images(JSON, b'{"images": [{"pixels": "QUJD"}]}')
    with pytest.raises(Refusal, match=r"^samples\.0\.label has 201 characters"):
        reader.read_samples(JSON, learn({"label": "x" * (LABEL + 1), **FORMS[0]}), None)
    with pytest.raises(Refusal, match=r"^samples\.0\.pixels holds 2 images"):
        reader.read_samples(JSON, learn({"label": "a", "pixels": text(bytes(96))}), None)


def test_too_many(reader):
    for read in (
        lambda: reader.read_samples(JSON, learn(*[{"label": "a", **FORMS[1]}] * (BATCH + 1)), None),
        lambda: reader.read_images(JSON, json.dumps({"images": FORMS[1:2] * (BATCH + 1)}).encode()),
        lambda: reader.read_images(RAW, bytes(48 * (BATCH + 1))),
        lambda: reader.read_images(JSON, b'{"images": [' + b"1," * 130_000 + b"1]}"),
    ):
        with pytest.raises(Refusal) as no:
            read()
        assert (no.value.status, no.value.code) == (413, "too_many")


def test_a_full_batch_of_arrays_with_commas_in_its_labels_is_not_too_much():
    reader = BodyReader(SHAPE, Limits())
    body = learn(*[{"label": ",,,,,", **FORMS[2]}] * 4)
    assert len(reader.read_samples(JSON, body, None)) == 4


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json", "image"]
)
def test_kinds_that_are_not_read(reader, kind):
    for read in (lambda: reader.read_samples(kind, png(), "a"), lambda: reader.read_images(kind, png())):
        with pytest.raises(Refusal, match="image/png") as no:
            read()
        assert no.value.status == 415


@pytest.mark.parametrize(
    "corrections, code",
    [
        ([{"action": "forget", "label": "a"}], "bad_body"),
        ([{"action": ["remove"], "sample": 1}], "bad_body"),
        ([{"action": "remove", "sample": 1, "label": "a"}], "bad_body"),
        ([{"action": "remove", "sample": True}], "bad_number"),
        ([{"action": "remove", "sample": 0}], "bad_number"),
        ([{"action": "relabel", "sample": 1, "label": "\u200b"}], "bad_label"),
        (["remove"], "bad_body"),
        ([], "bad_body"),
    ],
)
def test_corrections_of_another_build(reader, corrections, code):
    with pytest.raises(Refusal) as no:
        reader.read_corrections(JSON, json.dumps({"corrections": corrections}).encode())
    assert (no.value.status, no.value.code) == (422, code)

"""Corrections and delayed labels: in the log, in a learner, and through a service."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner

from iblurry import Client
from iblurry.cli.main import iblurry
from iblurry.errors import ServiceError
from iblurry.live import log as logs
from iblurry.live.learning import LiveLearner
from iblurry.live.log import LogEntry, LogReader, LogWriter, SampleLog
from iblurry.live.messages import Acceptance, Operation
from iblurry.live.quality import Quality
from iblurry.live.questions import QuestionStore
from iblurry.live.quota import Limits, Refusal
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from tests.live.lives import DIGITS

SMALL = Settings(network="mlp", image=(1, 8, 8), memory=40, max_classes=12, batch=8)


pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------------------------------------------- the log


@pytest.fixture
def log(tmp_path):
    made = SampleLog(tmp_path, max_classes=3, max_bytes=2**26)
    with made.transaction():
        made.add([Operation("sample", label=label, pixels=bytes(4)) for label in "aba"])
    yield made
    made.close()


def add(log, *operations, key=None):
    with log.transaction():
        return log.add(operations, key, logs.digest_of(operations))


def test_operations_are_kept_in_order_with_the_labels_there_are_after_them(log, tmp_path):
    assert add(log, Operation("rename", label="b", to="c"), key="k") == Acceptance(0, 0, operation=4)
    assert log.labels == ["a", "c"]
    add(log, Operation("relabel", 3, "d"), Operation("merge", label="a", to="d"))
    assert log.labels == ["c", "d"]
    add(log, Operation("delete", label="c"), Operation("remove", 1))
    assert (log.labels, log.operations, log.accepted, log.kept) == (["d"], 8, 3, 8)
    kinds = [entry.operation.kind for entry in LogReader(tmp_path).read_after(3, 10)]
    assert kinds == ["rename", "relabel", "merge", "delete", "remove"]
    again = SampleLog(tmp_path, max_classes=3, max_bytes=2**26)
    assert (again.labels, again.operations, again.accepted) == (["d"], 8, 3)
    digest = logs.digest_of([Operation("rename", label="b", to="c")])
    assert again.find_repeated("k", digest) == Acceptance(0, 0, repeated=True, operation=4)
    again.close()


@pytest.mark.parametrize(
    "operation, status, code",
    [
        (Operation("remove", 4), 404, "unknown_sample"),
        (Operation("relabel", 4, "a"), 404, "unknown_sample"),
        (Operation("rename", label="x", to="y"), 404, "unknown_class"),
        (Operation("rename", label="a", to="b"), 409, "class_exists"),
        (Operation("merge", label="a", to="x"), 404, "unknown_class"),
        (Operation("merge", label="a", to="a"), 422, "same_class"),
        (Operation("delete", label="x"), 404, "unknown_class"),
    ],
)
def test_what_cannot_be_applied_leaves_nothing_behind(operation, status, code, log):
    with pytest.raises(Refusal) as refused:
        add(log, Operation("relabel", 1, "new"), operation)
    assert (refused.value.status, refused.value.code) == (status, code)
    assert (log.labels, log.operations, log.accepted) == (["a", "b"], 3, 3)


def test_a_deleted_class_makes_room_for_another(log):
    add(log, Operation("relabel", 1, "c"))
    with pytest.raises(Refusal, match="no room for the label 'd': there are 3 classes"):
        add(log, Operation("relabel", 1, "d"))
    add(log, Operation("delete", label="a"), Operation("relabel", 1, "d"))
    assert log.labels == ["b", "c", "d"]


def test_a_step_of_rehearsal_never_stands_behind_what_came_meanwhile(log, tmp_path):
    writer = LogWriter(log, check=lambda count: None, on_new_labels=lambda labels: None)
    writer.start()

    def rehearse(after):
        return writer.rehearse(after, 5).result(20).operation

    assert (rehearse(3), log.rehearsed) == (4, 5)
    assert rehearse(3) == 4
    assert (rehearse(4), log.rehearsed) == (5, 10)
    add(log, Operation("remove", 1))
    assert log.rehearsed == 0
    log.kept = 2 * logs.SAVE_SAMPLES  # no checkpoint can be written: the log is for samples
    assert rehearse(6) == 6
    assert log.operations == 6
    writer.close()


# ---------------------------------------------------------------------------------------------------- the learner


def story():
    """Samples among all other operations."""
    found = [Operation("sample", n, DIGITS.classes[DIGITS.train.labels[n]], pixels=DIGITS.train.images[n].tobytes())
             for n in range(1, 61)]  # fmt: skip
    labels = list(dict.fromkeys(one.label for one in found[:40]))
    found[20:20] = [Operation("remove", 20), Operation("rehearse", 3), Operation("relabel", 19, "new")]
    found[24:24] = [held_out(number, labels[number % 4]) for number in range(25)]
    found[70:70] = [Operation("rename", label="new", to="newer"), Operation("merge", label=labels[0], to="newer")]
    found[75:75] = [Operation("delete", label=labels[1]), Operation("remove", 1), Operation("rehearse", 5)]
    return [LogEntry(at, operation, 1000.0 + at) for at, operation in enumerate(found, 1)]


def held_out(number, label):
    return Operation("hold", label=label, pixels=DIGITS.test.images[number].tobytes())


@pytest.mark.quick("er")
@pytest.mark.parametrize("method", ["clib", "er"])
def test_interrupted_among_operations_it_ends_with_the_same_bytes(method, tmp_path):
    settings = dataclasses.replace(SMALL, method=method)
    entries = story()
    ends = [0, 13, 20, 21, 22, 23, 30, 46, 50, 71, 72, 76, 78, len(entries)]
    for folder, parts in (("peace", [(0, len(entries))]), ("broken", pairwise(ends))):
        (tmp_path / folder).mkdir()
        for begin, end in parts:
            learning = LiveLearner(tmp_path / folder, settings)
            assert learning.recover() == []
            assert learning.at == begin
            for entry in entries[begin:end]:
                learning.apply(entry)
            learning.save()
    name = f"checkpoint-{len(entries):012d}.safetensors"
    assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "peace" / name).read_bytes()
    assert (learning.learnt, learning.report().learnt, learning.report().applied) == (60, 60, len(entries))
    assert not {one.since for one in learning.memory()} & {1, 20}
    assert "" not in {row["label"] for row in learning.report().classes}


def test_counts_follow_the_classes():
    quality = Quality(3, window=4)
    for row, answer in ((0, 0), (1, 1), (1, 2), (2, 0)):
        quality.record(row, answer)
    quality.close_class(1, into=2)
    assert quality.confusion(["a", "", "c"]) == [  # one that was taken for the other is right now
        {"label": "a", "answer": "a", "count": 1},
        {"label": "c", "answer": "a", "count": 1},
        {"label": "c", "answer": "c", "count": 2},
    ]
    assert quality.recent_accuracy == 0.75
    assert [one["first"] for one in quality.classes(["a", "", "c"])] == [1, None, 2]
    assert (quality.seen.tolist(), quality.tested.tolist(), quality.right.tolist()) == ([1, 0, 3], [1, 0, 3], [1, 0, 1])
    assert quality.classes(["a", "", "c"])[2]["recent_share"] == 0.75
    quality.close_class(2, into=None)
    assert (quality.accuracy, quality.recent_accuracy) == (1.0, 1.0)
    assert quality.classes(["a", "", ""])[0]["recent_share"] == 1.0
    quality.record(0, 2)  # the row is another class now
    quality.close_class(2, into=None)
    assert quality.confusion(["a", "", ""]) == [{"label": "a", "answer": None, "count": 1}]
    assert quality.recent_accuracy == 0
    assert quality.totals == [5, 2]  # as they were tested


# ---------------------------------------------------------------------------------------------------- questions


def test_images_are_kept_for_a_while(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("iblurry.live.questions.time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    store = QuestionStore((1, 2, 2), Limits(questions=3, question_seconds=10))
    images = np.arange(16, dtype=np.uint8).reshape(4, 1, 2, 2)
    ids = store.add(images)
    assert np.array_equal(store.take(ids[1]), images[1])

    def refused(question):
        with pytest.raises(Refusal) as raised:
            store.take(question)
        return raised.value.status, raised.value.code

    assert refused(ids[0]) == (410, "question_gone")  # one more than are kept
    assert refused(ids[1]) == (409, "labelled_before")
    store.put_back(ids[1], images[1])
    assert np.array_equal(store.take(ids[1]), images[1])
    start = ids[0].partition("-")[0]
    for unknown in (
        "",
        "x",
        f"{start}-",
        f"{start}-0",
        f"{start}-5",
        f"{start}-{'9' * 100}",
        "00000000-2",
        f"{start}-٣",
    ):
        assert refused(unknown) == (404, "unknown_question")
    now[0] += 11
    assert refused(ids[2]) == (410, "question_gone")
    assert QuestionStore((3, 4000, 4000), Limits()).limit == 1  # so many bytes at most


# ---------------------------------------------------------------------------------------------------- a service


@pytest.fixture
def client(running, tmp_path):
    port, _ = running(Service(tmp_path / "live", SMALL))
    with Client(f"http://127.0.0.1:{port}") as made:
        yield made


def held(client):
    """Numbers of the samples in the memory, by class."""
    return {row["label"]: {item["since"] for item in row["items"]} for row in client.memory(each=100)["classes"]}


def test_labels_that_come_later(client):
    client.learn(DIGITS.train.images[:20], ["a", "b"] * 10)
    client.wait()
    answers = client.predict(DIGITS.test.images[:3])
    assert len({answer.id for answer in answers}) == 3
    receipt = client.label([answers[0].id, answers[2].id], ["a", " new "], key="later")
    assert (receipt.accepted, receipt.first, receipt.last, receipt.repeated) == (2, 21, 22, 0)
    assert client.label([answers[0].id, answers[2].id], ["a", "new"], key="later").repeated == 2
    client.wait()
    assert held(client)["new"] == {22}
    with pytest.raises(ServiceError, match="relabel the sample") as refused:
        client.label([answers[1].id, answers[0].id], "b")
    assert refused.value.status == 409
    with pytest.raises(ServiceError, match="there are 12 classes"):
        client.learn(DIGITS.train.images[:13], [f"label {number}" for number in range(13)])
    client.learn(DIGITS.train.images[:9], [f"label {number}" for number in range(9)])
    with pytest.raises(ServiceError, match="there are 12 classes"):
        client.label(answers[1].id, "one too many")
    assert client.label(answers[1].id, "b").accepted == 1  # a refusal used nothing up
    with pytest.raises(ServiceError, match="send the picture itself to /v1/learn") as refused:
        client.label("00000000-1", "b")
    assert refused.value.status == 404


def test_the_command_line(client):
    client.learn(DIGITS.train.images[:6], ["cat", "cot"] * 3)
    client.wait()

    def call(*words):
        said = CliRunner().invoke(iblurry, ["live", "correct", *words, "--url", client.url])
        assert said.exit_code == 0, said.output
        return said.output

    assert call("remove", "1", "3").startswith("2 corrections applied. The weights keep what they learnt")
    call("relabel", "5", "dog")
    call("rename", "dog", "hound")
    assert json.loads(call("merge", "cot", "cat", "--json"))["accepted"] == 1
    assert held(client) == {"cat": {2, 4, 6}, "hound": {5}}
    call("delete", "hound", "--no-wait")
    client.wait()
    assert held(client) == {"cat": {2, 4, 6}}
    assert {answer.label for answer in client.predict(DIGITS.test.images[:9])} == {"cat"}
    first, again = (client.rename_class(" cat ", "dog", key="once") for _ in range(2))
    assert (first.repeated, again.repeated, again.operation) == (False, True, first.operation)


@pytest.mark.slow
def test_a_label_that_comes_later_at_the_command_line(client, tmp_path):
    client.learn(DIGITS.train.images[:2], ["cat", "dog"])
    client.wait()
    np.save(tmp_path / "picture.npy", DIGITS.test.images[0])
    asked = CliRunner().invoke(iblurry, ["live", "ask", str(tmp_path / "picture.npy"), "--url", client.url, "--json"])
    (answer,) = json.loads(asked.output)
    words = ["live", "correct", "label", answer["id"], "owl", "--url", client.url, "--json"]
    said = json.loads(CliRunner().invoke(iblurry, words).output)
    assert (said["accepted"], said["sample"]) == (1, 3)
    assert held(client)["owl"] == {3}
    again = CliRunner().invoke(iblurry, words)
    assert (again.exit_code, "relabel the sample" in str(again.exception)) == (1, True)

"""Samples that are held out: asked about in turn, kept, corrected with their classes, and never learnt."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
import torch
from click.testing import CliRunner

from iblurry import Client
from iblurry.cli.main import iblurry
from iblurry.live.learning import LiveLearner
from iblurry.live.log import LogEntry
from iblurry.live.messages import IncomingSample, Operation
from iblurry.live.quality import ASKED, PER_UPDATE, HeldOut
from iblurry.live.quota import Refusal
from iblurry.live.service import Service
from tests.live.lives import DIGITS, SMALL, serving, some, until


def sample(number):
    image, label = DIGITS.train.images[number], DIGITS.classes[DIGITS.train.labels[number]]
    return Operation("sample", number + 1, label, pixels=image.tobytes())


def held(number, label=None):
    image = DIGITS.test.images[number]
    return Operation("hold", label=label or DIGITS.classes[DIGITS.test.labels[number]], pixels=image.tobytes())


def applied(folder, operations, settings=SMALL):
    learning = LiveLearner(folder, settings)
    for at, operation in enumerate(operations, 1):
        learning.apply(LogEntry(at, operation))
    return learning


@pytest.mark.quick("clib", "slda")
@pytest.mark.parametrize("method", ["clib", "er", "slda"])
def test_nothing_of_them_is_learnt(method, tmp_path):
    settings = dataclasses.replace(SMALL, method=method, freeze="body" if method == "slda" else "none", memory=30)
    samples = [sample(number) for number in range(60)]
    plain = applied(tmp_path, samples, settings)
    tested = applied(tmp_path, samples[:20] + [held(number) for number in range(30)] + samples[20:], settings)
    assert tested.report().held_out == 30
    for first, second in zip(plain.learner.snapshot(), tested.learner.snapshot(), strict=True):
        assert torch.equal(first, second)
    assert [one.since for one in plain.memory()] == [one.since for one in tested.memory()]
    assert tested.report().learnt == 60


def test_the_accuracy_is_that_of_the_model(tmp_path):
    """Once all of them were asked about the model that is there now."""
    numbers = range(8)
    learning = applied(tmp_path, [sample(n) for n in range(80)] + [held(n) for n in numbers])
    answers = learning.learner.predict(DIGITS.test.images[:8])
    truth = [DIGITS.classes[DIGITS.test.labels[number]] for number in numbers]
    assert learning.report().held_out_accuracy == sum(map(str.__eq__, answers, truth)) / 8
    assert learning.quality.points[-1]["held_out_accuracy"] is None  # they came later
    for number in range(80, 90):
        learning.apply(LogEntry(learning.at + 1, sample(number)))
    assert learning.quality.points[-1]["held_out_accuracy"] == learning.held_out.accuracy


def test_a_class_that_is_not_known_does_not_count(tmp_path):
    learning = applied(tmp_path, [held(0), held(1, "later")])
    assert (learning.report().held_out, learning.report().held_out_accuracy) == (2, None)
    for operation in (sample(number)._replace(label="later") for number in range(2)):
        learning.apply(LogEntry(learning.at + 1, operation))
    assert learning.report().held_out_accuracy == 1.0  # there is one class, and one that has it
    assert [row["label"] for row in learning.report().classes] == ["later"]  # the other made none


def test_they_follow_their_classes(tmp_path):
    learning = applied(
        tmp_path,
        [
            *(sample(number)._replace(label="abc"[number % 3]) for number in range(12)),
            *(held(number, "abc"[number % 3]) for number in range(6)),
            Operation("rename", label="a", to="x"),
            Operation("merge", label="b", to="x"),
            Operation("delete", label="c"),
        ],
    )
    assert [one.label for one in learning.held_out.samples] == ["x"] * 4
    learning.apply(LogEntry(learning.at + 1, sample(12)._replace(label="x")))
    assert learning.report().held_out_accuracy == 1.0  # the only class there is


def test_they_are_asked_about_in_turn_and_the_oldest_leave():
    held_out = HeldOut(100)
    for number in range(120):
        held_out.add(torch.tensor([number]), "a")
        assert [int(one.image) for one in held_out.next(1)] == [number]
    assert [int(one.image) for one in held_out.samples] == [*range(20, 120)]
    asked = [[int(one.image) for one in held_out.due(1)] for _ in range(3 * ASKED // PER_UPDATE)]
    assert [number for some in asked for number in some] == [20 + place % 100 for place in range(3 * ASKED)]
    assert {len(one) for one in asked} == {0, ASKED}
    assert len(held_out.due(1000)) == 100  # none of them twice
    assert len(HeldOut(5).due(1000)) == 0


def test_the_bytes_are_bounded(tmp_path):
    learning = applied(tmp_path, [sample(0)] + [held(n % 300, "l" * 200) for n in range(400)])
    assert len(learning.held_out) == SMALL.memory
    learning.save()
    (path,) = tmp_path.glob("checkpoint-*")
    assert path.stat().st_size <= learning.checkpoint_most


@pytest.mark.slow
def test_a_service_keeps_them(tmp_path):
    folder = tmp_path / "live"
    tests = [IncomingSample(DIGITS.classes[DIGITS.test.labels[n]], DIGITS.test.images[n]) for n in range(20)]

    async def live():
        async with serving(folder) as service:
            await service.learn(some(0, 60), key="same")
            receipt = await service.hold_out(tests, key="tests")
            assert (receipt.first, receipt.operation) == (0, 80)
            assert (await service.hold_out(tests, key="tests")).repeated
            for reused in (service.hold_out(tests[:3], key="tests"), service.learn(tests, key="tests")):
                with pytest.raises(Refusal) as refused:
                    await reused
                assert refused.value.code == "key_reused"
            await until(lambda: service.status()["applied"] == 80)
            status = service.status()
            assert (status["accepted"], status["held_out"], status["rehearsed"]) == (60, 20, 0)
            return status

    async def again():
        async with serving(folder) as service:
            return service.status()

    first, second = asyncio.run(live()), asyncio.run(again())
    assert 0 < first["held_out_accuracy"] <= 1
    assert (second["held_out"], second["held_out_accuracy"]) == (20, first["held_out_accuracy"])


def test_by_client_and_command_line(tmp_path, running):
    port, _ = running(Service(tmp_path / "live", SMALL))
    with Client(f"http://127.0.0.1:{port}") as client:
        labels = [DIGITS.classes[label] for label in DIGITS.train.labels[:60]]
        client.learn(DIGITS.train.images[:60], labels)
        receipt = client.hold_out(DIGITS.test.images[:5], "zero")
        assert (receipt.accepted, receipt.first, receipt.last, receipt.operation) == (5, 0, 0, 65)
        assert client.wait(operation=receipt.operation)["held_out"] == 5
        counts = client.confusion()
        assert sum(one["count"] for one in counts) == client.status()["tested"]
        right = sum(one["count"] for one in counts if one["label"] == one["answer"])
        assert right / sum(one["count"] for one in counts) == client.status()["recent_accuracy"]
        words = ["live", "send", "digits", "--held-out", "--limit", "9", "--url", client.url]
        said = CliRunner().invoke(iblurry, words)
        assert said.exit_code == 0, said.output
        assert "9 samples held out; 14 are kept, " in said.output
        told = json.loads(CliRunner().invoke(iblurry, [*words, "--json"]).stdout)
        assert (told["accepted"], told["held_out"], told["learnt"]) == (9, 20, 60)  # as many as the memory has room for

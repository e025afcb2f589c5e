"""What a service measures of its answers: accuracy as it learns, a held-out set, and calibration."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks.live.calibration import ece
from iblurry import Client
from iblurry.cli.main import iblurry
from iblurry.live import quality as module
from iblurry.live.learning import LiveLearner
from iblurry.live.log import LogEntry
from iblurry.live.messages import Calibration, IncomingSample, Operation
from iblurry.live.predictor import SnapshotModel
from iblurry.live.quality import (
    ASKED,
    LEAST,
    NO_CLASS,
    PAIRS,
    PER_UPDATE,
    UNTESTED,
    Calibrator,
    HeldOut,
    Quality,
    fit_temperature,
    to_probabilities,
)
from iblurry.live.quota import Refusal
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from iblurry.network import FLOOR
from iblurry.storage import checkpoint
from tests.live.lives import DIGITS, SMALL, serving, some, until

LABELS = ["a", "b", "c"]


@pytest.fixture
def told():
    """A hundred samples of three classes: (row, answer)."""
    generator = np.random.default_rng(1)
    rows = np.concatenate([generator.integers(0, 2, 60), generator.integers(0, 3, 40)]).tolist()
    answers = [row if generator.random() < 0.7 else (row + 1) % 3 for row in rows]
    return [(row, answers[i] if row in rows[:i] else UNTESTED) for i, row in enumerate(rows)]


def noted(told, window=20):
    quality = Quality(3, window=window)
    for row, answer in told:
        quality.record(row, answer)
    return quality


def share(told):
    tested = [answer == row for row, answer in told if answer != UNTESTED]
    return sum(tested) / len(tested) if tested else None


@pytest.mark.parametrize("count", [1, 7, 20, 39, 40, 57, 100])
def test_against_plain_lists(told, count):
    some = told[:count]
    quality = noted(some)
    assert quality.accuracy == share(some)
    assert quality.recent_accuracy == share(some[-20:])
    recent, before = [row for row, _ in some[-20:]], [row for row, _ in some[-40:-20]]
    apart = sum(abs(recent.count(row) / 20 - before.count(row) / 20) for row in range(3)) / 2
    assert quality.drift == (pytest.approx(apart) if count >= 40 else None)
    for row, about in enumerate(quality.classes(LABELS)):
        mine = [one for one in some if one[0] == row]
        assert about["seen"] == len(mine)
        assert about["first"] == (some.index(mine[0]) + 1 if mine else None)
        assert about["accuracy"] == share(mine)
        assert about["recent_accuracy"] == share([one for one in some[-20:] if one[0] == row])
        assert about["recent_share"] == recent.count(row) / len(recent)
        assert about["before_share"] == (before.count(row) / 20 if count >= 40 else None)


def test_nothing_yet():
    quality = Quality(3)
    assert (quality.accuracy, quality.recent_accuracy, quality.drift) == (None, None, None)
    assert quality.classes([]) == []


def test_the_curve_is_thinned_evenly(monkeypatch):
    monkeypatch.setattr(module, "POINTS", 8)
    quality = Quality(1, window=4)
    points = []
    for i in range(1, 401):
        quality.record(0, 0 if i % 3 else NO_CLASS)
        if (point := quality.add_point(learning_rate=0.1 / i, classes=1, time=100.0 + i)) is not None:
            points.append(point)
    at = [point["at"] for point in quality.points]
    assert len(at) <= 8
    assert set(np.diff(at)) == {quality.every} == {80}
    assert points[0] == {
        "at": 10,
        "time": 110.0,
        "accuracy": 0.7,
        "recent_accuracy": 0.75,  # samples 7 to 10
        "tested": 10,
        "right": 7,
        "held_out_accuracy": None,
        "learning_rate": 0.01,
        "classes": 1,
    }
    assert all(point in points for point in quality.points)


def test_it_goes_on_where_it_was(told):
    whole, first = noted(told), noted(told[:33])
    other = Quality(3, window=20)
    other.load_state_dict({k: v.copy() if isinstance(v, np.ndarray) else v for k, v in first.state_dict().items()})
    for row, answer in told[33:]:
        other.record(row, answer)
    assert other.classes(LABELS) == whole.classes(LABELS)
    assert other.confusion(LABELS) == whole.confusion(LABELS)
    assert other.totals == whole.totals
    assert (other.accuracy, other.drift) == (whole.accuracy, whole.drift)


@pytest.mark.parametrize("count", [0, 1, 7, 20, 57, 100])
def test_confusion_against_plain_lists(told, count):
    recent = [(LABELS[row], LABELS[answer]) for row, answer in told[:count][-20:] if answer != UNTESTED]
    found = {(one["label"], one["answer"]): one["count"] for one in noted(told[:count]).confusion(LABELS)}
    assert found == Counter(recent)


def test_there_are_no_more_pairs_than_recent_samples():
    quality = Quality(300, window=50)
    for number in range(1000):
        quality.record(number % 300, (number * 7) % 300)
    found = quality.confusion([str(row) for row in range(300)])
    assert len(found) == sum(one["count"] for one in found) == 50


# held-out samples: asked about in turn, kept, corrected with their classes, and never learnt


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


# calibration: confidences that are shares of right answers, and unknown answers at a wished rate


RATE = 0.05
KNOWN = 7  # of the ten digits
SETTINGS = Settings(method="ncm", network="mlp", freeze="body", image=(1, 8, 8), memory=300, max_classes=12)


def entries(count):
    """The first samples of the known classes."""
    found = [one for one in zip(DIGITS.train.images, DIGITS.train.labels, strict=True) if one[1] < KNOWN][:count]
    for at, (image, label) in enumerate(found, 1):
        yield LogEntry(at, Operation("sample", at, DIGITS.classes[label], pixels=image.tobytes()))


def learnt(folder, count=700, **changes):
    learning = LiveLearner(folder, dataclasses.replace(SETTINGS, **changes))
    for entry in entries(count):
        learning.apply(entry)
    return learning


def answers(learning, images, calibration=None):
    model = SnapshotModel(learning.settings, RATE)
    snapshot = learning.snapshot()
    model.load(dataclasses.replace(snapshot, calibration=calibration or snapshot.calibration))
    return model.predict(np.stack(list(images)))


@pytest.mark.parametrize("scale", [0.01, 1.0, 40.0])
def test_the_temperature_that_made_the_labels_is_found(scale):
    rng = torch.Generator().manual_seed(1)
    shares = (2 * torch.randn(4000, 6, generator=rng)).log_softmax(1)
    rows = shares.exp().multinomial(1, generator=rng)[:, 0]
    logits = torch.cat([shares * scale + 3, torch.full((4000, 2), FLOOR)], 1)
    assert fit_temperature(logits, rows) == pytest.approx(scale, rel=0.05)
    found = to_probabilities(logits, scale)
    assert found[:, :6] == pytest.approx(shares.exp().numpy(), abs=1e-5)
    assert found[:, 6:].max() == 0


def test_a_record_without_a_mistake_is_not_certain():
    calibrator = Calibrator(3)
    for _ in range(40):
        calibrator.record(torch.tensor([2.0, -1.0, FLOOR]), 0)
    assert calibrator.fitted.confidences[0] == pytest.approx(1 - 0.5 / 42, abs=5e-3)  # half of the rest is its own


def test_a_model_that_began_by_guessing_is_not_flat():
    calibrator, rng = Calibrator(5), torch.Generator().manual_seed(1)
    for number in range(LEAST):
        calibrator.record(3 * torch.randn(5, generator=rng), number % 5)
    assert 3 < calibrator.fitted.temperature < 20
    assert 0.24 < np.mean(calibrator.fitted.confidences) < 0.5


def test_answers_that_could_not_be_right_do_not_count_and_the_oldest_leave():
    calibrator = Calibrator(3)
    for number in range(PAIRS + 130):
        calibrator.record(torch.tensor([1.0, -number / 100, FLOOR]), 2 if number % 10 == 0 else number % 2)
    assert sorted(set(calibrator.rows.tolist())) == [0, 1]
    assert calibrator.logits[:, 1].max() < -0.8
    assert len(calibrator.fitted.confidences) == PAIRS


@pytest.mark.parametrize("into", [0, None])
def test_a_class_that_was_closed_is_out_of_the_record(into):
    calibrator = Calibrator(4)
    for number in range(3 * LEAST):
        calibrator.record(torch.tensor([0.0, 1.0, 2.0, FLOOR]), number % 3)
    calibrator.close_class(2, into)
    assert [int((calibrator.rows == row).sum()) for row in range(3)] == [LEAST * (1 if into is None else 2), LEAST, 0]
    assert calibrator.logits[0].tolist() == [0.0 if into is None else 2.0, 1.0, FLOOR, FLOOR]
    assert len(calibrator.fitted.confidences) == LEAST * (2 if into is None else 3)


def test_the_threshold_is_the_wished_quantile():
    calibration = Calibration(1.0, tuple(number / 100 for number in range(1, 100)))
    assert [calibration.threshold(rate) for rate in (0.0, 0.009, 0.01, 0.05)] == [None, None, 0.01, 0.05]


@pytest.mark.parametrize("method, least", [("ncm", 0.5), ("slda", 0.0)])
def test_confidences_of_digits_are_calibrated_and_strangers_are_unknown(method, least, tmp_path):
    learning = learnt(tmp_path, method=method)
    known = DIGITS.test.labels < KNOWN
    images, labels = [DIGITS.test.images[row] for row in np.flatnonzero(known)], DIGITS.test.labels[known]
    before, after = (answers(learning, images, calibration) for calibration in (Calibration(), None))
    truth = [DIGITS.classes[label] for label in labels]
    right = np.array(
        [after.labels[row] == label for row, label in zip(after.probabilities.argmax(1), truth, strict=True)]
    )
    assert ece(before.probabilities.max(1), right) > least
    assert ece(after.probabilities.max(1), right) < 0.06
    assert (before.probabilities.argsort(1) == after.probabilities.argsort(1)).all()
    assert after.probabilities.sum(1) == pytest.approx(1)
    strangers = answers(learning, [DIGITS.test.images[row] for row in np.flatnonzero(~known)])
    alarms, caught = (np.mean(one.probabilities.max(1) < one.threshold) for one in (after, strangers))
    assert 0.02 < alarms < 0.09
    assert caught > (0.6 if method == "slda" else 0.25)


def test_a_restart_gives_the_same_answers(tmp_path):
    learning = learnt(tmp_path, 150)
    learning.save()
    again = LiveLearner(tmp_path, SETTINGS)
    assert again.recover() == []
    assert again.calibrator.fitted == learning.calibrator.fitted != Calibration()
    for entry in list(entries(200))[150:]:
        learning.apply(entry)
        again.apply(entry)
    for one in (learning, again):
        one.calibrator.close_class(3, 5)
    first, second = (answers(one, DIGITS.test.images[:20]) for one in (learning, again))
    assert (first.probabilities == second.probabilities).all()
    assert first.threshold == second.threshold is not None


def test_a_checkpoint_from_before_has_no_record(tmp_path):
    learning = learnt(tmp_path, 60)
    learning.save()
    state = checkpoint.load_latest(tmp_path).state
    del state["calibration"]
    checkpoint.save(tmp_path, state, at=60)
    again = LiveLearner(tmp_path, SETTINGS)
    assert again.recover() == []
    found = answers(again, DIGITS.test.images[:5])
    assert found.threshold is None
    plain = again.learner.probabilities(np.stack(list(DIGITS.test.images[:5])))
    assert found.probabilities == pytest.approx(plain.numpy(), abs=1e-6)

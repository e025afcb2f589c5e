"""Confidences that are shares of right answers, and answers that are unknown at a wished rate."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from benchmarks.live.calibration import ece
from iblurry.live.learning import LiveLearner
from iblurry.live.log import LogEntry
from iblurry.live.messages import Calibration, Operation
from iblurry.live.predictor import SnapshotModel
from iblurry.live.quality import LEAST, PAIRS, Calibrator, fit_temperature, to_probabilities
from iblurry.live.settings import Settings
from iblurry.network import FLOOR
from iblurry.storage import checkpoint
from tests.live.lives import DIGITS

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

"""Learning as a function of the samples: interrupted anywhere, it comes to the same bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from iblurry.augment import Augment
from iblurry.errors import CheckpointError, DataError, DivergedError, FolderError, InputError
from iblurry.live.http.answers import format_memory
from iblurry.live.learning import LiveLearner
from iblurry.live.messages import Calibration
from iblurry.live.predictor import Predictor, SnapshotModel
from iblurry.live.quality import to_probabilities
from iblurry.live.settings import FILE, Settings
from iblurry.methods import er, ncm
from iblurry.methods.recipe import recipe
from iblurry.network.shadow import ShadowNetwork
from iblurry.parts import Discriminant, NearestMean, Readout, Ridge
from iblurry.parts.part import scratch, state
from tests.live import lives
from tests.live.lives import DIGITS, SMALL

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def entries():
    return list(lives.entries(0, 60))


def small(method, freeze="none"):
    network = "mlp:width=64" if freeze == "body" else "mlp"
    return dataclasses.replace(SMALL, method=method, freeze=freeze, network=network)


def learnt(folder, settings, entries):
    folder.mkdir(exist_ok=True)
    learning = LiveLearner(folder, settings)
    for entry in entries:
        learning.apply(entry)
    learning.save()
    return learning


def checkpoint(folder, at=60):
    return (folder / f"checkpoint-{at:012d}.safetensors").read_bytes()


@pytest.fixture(autouse=True)
def own_methods():
    """Known in a test only, as in each of them."""

    @recipe(paper="of this test")
    def nearest_mean(hyperparameters):
        """ER that answers by the means of its memory."""
        return er(hyperparameters, name="nearest-mean", readout=NearestMean())

    @recipe(paper="of this test")
    def own_readout(hyperparameters):
        """ER with a readout that declares what it answers with and says nothing of the service."""
        return er(hyperparameters, name="own-readout", readout=Recent())

    @recipe(paper="of this test")
    def narrow_ranpac(hyperparameters):
        """RanPAC with few random features: sums of 1,000 would be most of this file's time."""
        return ncm(hyperparameters, name="narrow-ranpac", readout=Ridge(width=40))

    @recipe(paper="of this test")
    def narrow_randumb(hyperparameters):
        """RanDumb with few random features."""
        readout = Discriminant(of="pixels", expand="fourier", width=40)
        return ncm(hyperparameters, name="narrow-randumb", readout=readout)


class Recent(Readout):
    """The mean of the network's answer and that of a shadow, shifted by how often each class came."""

    counts: torch.Tensor = state(lambda part: torch.zeros(part.context.network.rows))
    shadow: ShadowNetwork = scratch(lambda part: part.context.shadow("recent"))
    shift: torch.Tensor = scratch(lambda part: torch.zeros(part.context.network.rows))

    def on_stored(self, row, sample):
        self.counts[sample.label] += 1

    def on_update(self, update):
        self.shadow.lerp_(0.1)

    def prepare(self):
        self.shift.copy_(self.counts.log1p() / 10)

    def logits(self, images):
        return (self.context.logits(images) + self.context.logits(images, self.shadow.network)) / 2 - self.shift


METHODS = ("clib", "er", "mir", "agem", "gss", "clib-balanced", "balm", "mkd")
READOUTS = ["ncm", "slda", "narrow-ranpac", "narrow-randumb", "nearest-mean", "own-readout"]


@pytest.mark.quick("clib-none", "er-body", "slda-body", "nearest-mean-none", "own-readout-none")
@pytest.mark.parametrize("freeze", ["none", "body"])
@pytest.mark.parametrize("method", [*METHODS, *READOUTS])
def test_interrupted_anywhere_it_ends_with_the_same_bytes(method, freeze, entries, tmp_path):
    """However often what it answers with was published in between."""
    settings = small(method, freeze)
    learnt(tmp_path / "peace", settings, entries)
    for begin, end in ((0, 13), (13, 14), (14, 47), (47, 60)):  # in the middle of ER's rounds, too
        (tmp_path / "broken").mkdir(exist_ok=True)
        learning = LiveLearner(tmp_path / "broken", settings)
        assert learning.recover() == []
        assert learning.at == begin
        for entry in entries[begin:end]:
            learning.apply(entry)
            if entry.at % 3 == 1:
                learning.snapshot()
        learning.save()
    assert checkpoint(tmp_path / "broken") == checkpoint(tmp_path / "peace")


def test_a_sample_is_tested_before_it_is_learnt(entries, tmp_path):
    learning = LiveLearner(tmp_path, SMALL)
    right = tested = 0
    for entry in entries:
        pixels = np.frombuffer(entry.operation.pixels, np.uint8).reshape(1, 1, 8, 8).copy()
        if entry.operation.label in learning.learner.labels:
            tested += 1
            right += learning.learner.predict(pixels) == [entry.operation.label]
        learning.apply(entry)
    report = learning.report()
    assert report.tested == tested == 60 - len(learning.learner.labels)
    assert report.accuracy == right / tested
    assert 0.2 < right / tested < 1
    assert [row["label"] for row in report.classes] == learning.learner.labels
    assert sum(row["held"] for row in report.classes) == report.held == 20
    assert [point["at"] for point in report.history] == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("method", ["slda", "nearest-mean"])
def test_slow_readouts_are_tested_by_what_they_knew_a_little_earlier(method, entries, tmp_path):
    learning = LiveLearner(tmp_path, small(method, "body"))
    readout, moments = learning.learner.method.readout, []
    prepare = type(readout).prepare
    readout.prepare = lambda: (moments.append(learning.at), prepare(readout))
    for entry in entries:
        learning.apply(entry)
    first = {entry.operation.label: entry.at for entry in reversed(entries)}
    assert len(moments) < 50
    for entry in entries[1:]:
        if entry.at > first[entry.operation.label]:
            last = max(at for at in moments if at < entry.at)
            assert entry.at - 1 - last < max(1, last // 8)
            assert all(at <= last for label, at in first.items() if at < entry.at)  # every class met is known
    assert learning.report().accuracy > 0.4


def test_stored_features_have_no_thumbnails(entries, tmp_path):
    learning = learnt(tmp_path, small("er", "body"), entries)
    kept = learning.memory()
    assert len(kept) == learning.learner.context.memory.size > 0
    assert {sample.pixels for sample in kept} == {None}
    (cell, *_) = format_memory(kept, 1)
    assert cell["items"][0]["thumbnail"] is None


def test_a_frozen_network_is_kept_as_one(tmp_path):
    settings = Settings.of(tmp_path, network="frozen:mlp:width=8", image=(1, 8, 8))
    assert (settings.network, settings.freeze) == ("mlp:width=8", "body")
    settings.save(tmp_path)
    assert Settings.of(tmp_path, network="frozen:mlp:width=8") == Settings.of(tmp_path) == settings
    with pytest.raises(FolderError, match="network"):
        Settings.of(tmp_path, network="frozen:mlp:width=9")
    with pytest.raises(InputError, match="augment"):
        dataclasses.replace(settings, augment=[Augment(pad=1).to_json()]).check()


def test_testing_changes_nothing(entries, tmp_path):
    learning = learnt(tmp_path, SMALL, entries)
    plain = SMALL.build_learner()
    for entry in entries:
        plain.observe(
            torch.frombuffer(bytearray(entry.operation.pixels), dtype=torch.uint8).view(1, 8, 8), entry.operation.label
        )
    for ours, theirs in zip(
        plain.context.network.parameters(), learning.learner.context.network.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_samples_are_learnt_in_order_only(entries, tmp_path):
    learning = LiveLearner(tmp_path, SMALL)
    with pytest.raises(CheckpointError, match="Operation 2 cannot follow operation 0"):
        learning.apply(entries[1])


def test_two_checkpoints_are_kept_and_say_what_is_droppable(entries, tmp_path):
    learning = LiveLearner(tmp_path, SMALL)
    ends = []
    for entry in entries[:30]:
        learning.apply(entry)
        if entry.at % 10 == 0:
            learning.save()
            learning.save()  # nothing new: nothing to do
            ends.append((learning.saved, learning.droppable))
    assert ends == [([10], 0), ([10, 20], 10), ([20, 30], 20)]
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2
    (tmp_path / "checkpoint-000000000030.safetensors").write_bytes(b"damaged")
    again = LiveLearner(tmp_path, SMALL)
    (sentence,) = again.recover()
    assert again.at == 20
    assert "checkpoint-000000000030.safetensors is damaged" in sentence


def test_what_is_no_number_is_not_saved(entries, tmp_path):
    learning = learnt(tmp_path, SMALL, entries[:20])
    learning.apply(entries[20])
    with torch.no_grad():
        next(iter(learning.learner.context.network.parameters())).fill_(float("nan"))
    with pytest.raises(DivergedError, match="infinite weights at sample 21"):
        learning.save()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-000000000020.safetensors"]


def test_the_memory_as_it_is(entries, tmp_path):
    learning = learnt(tmp_path, dataclasses.replace(SMALL, measure_every=5), entries)
    kept, memory = learning.memory(), learning.learner.context.memory
    assert [one.row for one in kept] == list(range(20))
    assert all(np.array_equal(one.pixels, memory.images[one.row].numpy()) for one in kept)
    assert [one.label for one in kept] == [learning.learner.labels[row] for row in memory.labels[:20].tolist()]
    assert len({one.importance for one in kept}) > 3
    plain = learnt(tmp_path / "er", small("er"), entries[:5])
    assert {one.importance for one in plain.memory()} <= {None}


# ---------------------------------------------------------------------------------------------------- answers


@pytest.mark.quick("clib-none", "slda-body", "own-readout-none")
@pytest.mark.parametrize("freeze", ["none", "body"])
@pytest.mark.parametrize("method", ["clib", *READOUTS, "balm", "mkd"])
def test_a_snapshot_answers_as_the_learner_does(method, freeze, entries, tmp_path):
    agree(small(method, freeze), entries, tmp_path)


def test_it_does_so_where_batch_norm_is_folded_once_for_each_snapshot(entries, tmp_path):
    agree(dataclasses.replace(SMALL, network="convnet:width=8"), entries, tmp_path, rtol=1e-4)


def agree(settings, entries, tmp_path, *, rtol=0.0):
    """An answer's bits are the learner's, unless other operations make it (rtol)."""
    learning, answering = LiveLearner(tmp_path, settings), SnapshotModel(settings)
    questions = DIGITS.test.images[:9]
    for count in (3, 30, 60):
        for entry in entries[learning.at : count]:
            learning.apply(entry)
        answering.load(dataclasses.replace(learning.snapshot(), calibration=Calibration()))
        answers = answering.predict(questions)
        assert (answers.model, list(answers.labels)) == (count, learning.learner.labels)
        logits = learning.learner.logits(questions)[:, : len(answers.labels)]
        np.testing.assert_allclose(answers.probabilities, to_probabilities(logits, 1.0), rtol=rtol)
        np.testing.assert_allclose(answers.probabilities, logits.double().softmax(1).numpy(), rtol=max(rtol, 1e-12))


# ---------------------------------------------------------------------------------------------------- settings


def test_settings_stay_with_their_folder(tmp_path):
    assert Settings.of(tmp_path, memory=30).memory == 30
    SMALL.save(tmp_path)
    assert Settings.of(tmp_path) == Settings.of(tmp_path, memory=20, image=(1, 8, 8)) == SMALL
    assert Settings.of(tmp_path, device="auto") == SMALL
    assert Settings.of(tmp_path / "new", device="auto").device == "cpu"  # the usual network is small
    with pytest.raises(FolderError, match="memory=20, not 30"):
        Settings.of(tmp_path, memory=30)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(DataError, match="damaged"):
        Settings.of(tmp_path)


def test_other_settings_do_not_go_on(entries, tmp_path):
    learnt(tmp_path, SMALL, entries[:5])
    other = LiveLearner(tmp_path, dataclasses.replace(SMALL, seed=2))
    with pytest.raises(CheckpointError, match="made with other settings"):
        other.recover()


@pytest.mark.parametrize(
    "given, why",
    [
        ({"method": "bic"}, "bic cannot serve: it needs the ends of tasks"),
        ({"method": "gdumb"}, "gdumb cannot serve: it trains a network"),
        ({"method": "clob"}, "no method called 'clob'. Did you mean 'clib'"),
        ({"network": "convnut"}, "no network called 'convnut'"),
        ({"memory": 3}, "memory=3 is too small"),
    ],
)
def test_what_cannot_serve_is_refused(given, why):
    with pytest.raises(InputError, match=why):
        Settings(**given).build_learner()


@pytest.mark.parametrize("given", [{"image": (2, 8, 8)}, {"image": (3, 0, 8)}, {"memory": 0}, {"threads": 0}])
def test_numbers_out_of_range(given):
    with pytest.raises(InputError, match=next(iter(given))):
        Settings(**given)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_large_weights_are_numbers_although_their_sum_is_none(tmp_path, wrong):
    learning = LiveLearner(tmp_path, SMALL)
    weight = learning.learner.context.network.head.weight.detach()
    weight.fill_(3e38)
    assert not weight.sum().isfinite()
    learning.check()
    weight.zero_()[1, 2] = wrong
    with pytest.raises(DivergedError, match=r"\(head.weight\) has NaN"):
        learning.check()


def test_a_quick_answer_is_given_at_once(entries, tmp_path):
    """In the asker's thread, as in its own; not where it may take long or another is being given."""
    learning, predictor = LiveLearner(tmp_path, SMALL), Predictor(SMALL, 0.05)
    for entry in entries[:20]:
        learning.apply(entry)
    images = np.stack([np.frombuffer(entry.operation.pixels, np.uint8).reshape(1, 8, 8) for entry in entries[20:40]])
    predictor.update(learning.snapshot())
    predictor.start()
    assert predictor.try_now(images) is None  # it is not known how long it takes
    answer = predictor.submit(images).result(20)
    predictor._seconds = 1e-6
    found = predictor.try_now(images)
    assert (found.model, found.labels) == (answer.model, answer.labels)
    np.testing.assert_array_equal(found.probabilities, answer.probabilities)
    predictor._seconds = 1e-6
    with predictor._lock:
        assert predictor.try_now(images) is None
    predictor._seconds = 0.001
    assert predictor.try_now(images) is None
    predictor.close()

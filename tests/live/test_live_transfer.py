"""Services that go on elsewhere: from a run, from another service, from a saved learner, and from a backup."""

from __future__ import annotations

import asyncio
import re
import stat
import tarfile

import numpy as np
import pytest
import torch

from iblurry import Experiment, Learner, run
from iblurry.errors import DataError, FolderError, InputError
from iblurry.learner.exported import load_exported
from iblurry.live import transfer
from iblurry.live.exporter import FOLDER
from iblurry.live.learning import LiveLearner
from iblurry.live.log import SampleLog, copy_log
from iblurry.live.messages import IncomingSample
from iblurry.live.quota import Refusal
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from iblurry.live.transfer import backup, begin_from, restore
from tests.live.lives import DIGITS, SMALL, entries, left_behind, operations, serving, some, taught, until


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run that has met some classes; its admission is not the usual."""
    from iblurry import Reservoir

    experiment = Experiment.of("clib", "digits", admission=Reservoir(), samples=120, memory=30)
    return run(experiment, out=tmp_path_factory.mktemp("runs")).folder


def test_a_service_goes_on_with_a_run(finished, tmp_path):
    folder = tmp_path / "deep" / "live"
    settings = begin_from(folder, finished, max_classes=15)
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    reference = Learner.load(finished, classes=15)
    assert (settings.memory, settings.max_classes, settings.image) == (30, 15, (1, 8, 8))
    assert settings.recipe["admission"] == reference.method.to_json()["admission"]

    async def live():
        async with serving(folder, settings) as service:
            status = service.status()
            assert (status["accepted"], status["learnt"], status["model"], status["queue"]) == (120, 120, 120, 0)
            assert status["classes"] == len(reference.labels)
            answers = await service.predict(DIGITS.test.images[:1])
            assert list(answers.labels) == reference.labels
            logits = reference.logits(DIGITS.test.images[:1])[:, : len(reference.labels)]
            np.testing.assert_array_equal(answers.probabilities, logits.double().softmax(1).numpy())
            samples = [IncomingSample("a new one", image) for image in DIGITS.train.images[:20]] + some(200, 210)
            acceptance = await service.learn(samples)
            assert (acceptance.first, acceptance.last) == (121, 150)
            await until(lambda: service.status()["learnt"] == 150)
            assert [point["at"] for point in service.report.history] == [130, 140, 150]
        return samples

    samples = asyncio.run(live())
    torch.set_num_threads(1)
    for label, pixels in samples:
        reference.observe(pixels, label)
    learnt = Learner.load(folder)
    assert learnt.labels == reference.labels
    assert torch.equal(learnt.logits(DIGITS.test.images), reference.logits(DIGITS.test.images))
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before

    assert begin_from(folder, finished) == settings  # the same command goes on


@pytest.mark.slow
def test_a_service_goes_on_with_another(tmp_path):
    async def first():
        async with serving(tmp_path / "one") as service:
            await taught(service, 0, 30, seen="checkpoint")
            settings = begin_from(tmp_path / "two", tmp_path / "one")  # while it runs
            async with serving(tmp_path / "two", settings) as other:
                answers = [await each.predict(DIGITS.test.images[:5]) for each in (service, other)]
                orders = [each.probabilities.argsort(1) for each in answers]
                np.testing.assert_array_equal(*orders)  # the temperature is of its own record, which begins anew
                for each in (service, other):
                    await taught(each, 30, 50)

    asyncio.run(first())
    one, two = (Learner.load(tmp_path / name) for name in ("one", "two"))
    assert torch.equal(one.logits(DIGITS.test.images), two.logits(DIGITS.test.images))


def test_what_no_service_goes_on_with(finished, tmp_path):
    new, learner = tmp_path / "new", tmp_path / "learner.safetensors"
    one = Learner("er", image=(1, 8, 8), network="mlp", classes=5)
    one.save(learner)
    with pytest.raises(InputError, match="has not learnt any sample"):
        begin_from(new, learner)
    for label, why in ((7, "cannot be sent"), ("a\x1bb", r"has U\+001B")):
        one = Learner("er", image=(1, 8, 8), network="mlp", classes=5)
        one.observe(DIGITS.train.images[0], label)
        one.save(learner)
        with pytest.raises(InputError, match=f"^{re.escape(f'{learner} has the label {label!r}')}, which {why}"):
            begin_from(new, learner)
    with pytest.raises(InputError, match="memory=99 cannot be chosen"):
        begin_from(new, finished, memory=99)
    with pytest.raises(InputError, match="classes=3 is less than the 10 rows"):
        begin_from(new, finished, max_classes=3)
    with pytest.raises(FolderError, match="has no checkpoint"):
        begin_from(new, tmp_path)
    boundaries = Learner("bic", image=(1, 8, 8), network="mlp", classes=5)
    boundaries.observe(DIGITS.train.images[0], "a")
    boundaries.save(learner)
    with pytest.raises(InputError, match="bic cannot serve"):
        begin_from(new, learner)
    assert [path.name for path in tmp_path.iterdir()] == ["learner.safetensors"]
    begin_from(new, finished)
    with pytest.raises(FolderError, match=re.escape(f"was started from {finished}")):
        begin_from(new, learner)
    with pytest.raises(FolderError, match="not empty"):
        begin_from(tmp_path, finished)


@pytest.mark.slow
def test_the_current_model_is_exported(tmp_path):
    """It has learnt what was accepted before; asked again, it is the same file until more is learnt."""
    left = tmp_path / "live" / FOLDER / "model.pt2"
    left.parent.mkdir(parents=True)
    left.touch()

    async def live():
        service = Service(tmp_path / "live", SMALL)
        await service.start()
        assert not left.exists()  # of a server that was killed
        with pytest.raises(Refusal, match="no model yet"):
            await service.model("pt2")
        await service.learn(some(0, 30))
        await until(lambda: service.status()["learnt"])
        found = await service.model("safetensors")
        assert (found.samples, found.accepted) == (30, 30)  # what was accepted is waited for
        with found.file as file:
            (tmp_path / "learner.safetensors").write_bytes(file.read())
        assert Learner.load(tmp_path / "learner.safetensors").context.seen == 30
        await until(lambda: service.status()["model"] == 30)
        model = await service.model("pt2")
        with model.file:
            (tmp_path / "model.pt2").write_bytes(model.file.read())
        assert (model.operation, model.samples) == (30, 30)
        assert await service.model("pt2", known=30) is None
        assert left.stat().st_size
        answers = await service.predict(DIGITS.test.images[:50])
        await service.learn(some(30, 31))
        await until(lambda: service.status()["learnt"] == 31)
        newer = await service.model("safetensors", known=30)
        newer.file.close()
        assert newer.samples == 31
        await service.close()
        return answers

    answers = asyncio.run(live())
    assert not left.parent.exists()
    model = load_exported(tmp_path / "model.pt2")
    assert tuple(model.labels) == answers.labels
    logits, said = model.logits(DIGITS.test.images[:50]).numpy(), np.log(answers.probabilities)
    logits, said = (values - values.mean(1, keepdims=True) for values in (logits, said))
    scale = (logits * said).sum() / np.square(logits).sum()  # 1 over the service's temperature
    np.testing.assert_allclose(said, scale * logits, atol=1e-3)


@pytest.mark.slow
def test_a_backup_of_a_service_that_runs(tmp_path):
    """Made while it learns, it has all that was accepted before, and goes on to the same bits."""
    backups = []

    async def live():
        async with serving(tmp_path / "live") as service:
            for begin in range(0, 200, 20):
                await service.learn(some(begin, begin + 20), key=str(begin))
                file = tmp_path / f"{begin}.tar"
                backups.append((begin + 20, file, await asyncio.to_thread(backup, tmp_path / "live", file)))
            await until(lambda: service.status()["learnt"] == 200)

    async def again(folder, accepted):
        async with serving(folder, Settings.of(folder)) as service:
            assert service.status()["accepted"] == accepted
            assert (await service.learn(some(0, 20), key="0")).repeated
            if accepted < 200:
                await service.learn(some(accepted, 200))
            await until(lambda: service.status()["learnt"] == 200 == service.status()["model"])
            return (await service.predict(DIGITS.test.images[:20])).probabilities

    asyncio.run(live())
    before = asyncio.run(again(tmp_path / "live", 200))
    for accepted, file, said in (backups[0], backups[4], backups[-1]):
        folder = tmp_path / f"restored-{accepted}"
        assert restore(file, folder) == said == accepted
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in (file, *folder.iterdir())} == {0o600}
        np.testing.assert_array_equal(asyncio.run(again(folder, accepted)), before)
        assert left_behind(folder, 200)


@pytest.mark.slow
def test_a_backup_between_checkpoints_that_are_too_close_is_made_again(tmp_path, monkeypatch):
    folder, copied = tmp_path / "live", []

    async def live():
        async with serving(folder) as service:
            await taught(service, 0, 10, seen="checkpoint")

    asyncio.run(live())

    def overtaken(source, to):
        if not copied:  # the log has dropped what follows the checkpoint that was copied
            log = SampleLog(source, max_classes=12, max_bytes=10**8)
            with log.transaction():
                log.add(list(operations(10, 20)))
                log.drop(15)
            log.close()
            learner = LiveLearner(source, SMALL)
            learner.recover()
            for entry in entries(10, 20):
                learner.apply(entry)
            learner.save()
        copied.append(to)
        copy_log(source, to)

    monkeypatch.setattr(transfer, "copy_log", overtaken)
    assert backup(folder, tmp_path / "b.tar") == 20
    assert len(copied) == 2
    assert restore(tmp_path / "b.tar", tmp_path / "again") == 20
    assert Learner.load(tmp_path / "again").context.seen == 20


def test_what_is_no_backup(finished, tmp_path):
    file, new = tmp_path / "b.tar", tmp_path / "new"
    with pytest.raises(FolderError, match="is the folder of a run"):
        backup(finished, file)
    with pytest.raises(FolderError, match="is not a service's folder"):
        backup(tmp_path, file)
    assert list(tmp_path.iterdir()) == []
    begin_from(tmp_path / "live", finished)
    backup(tmp_path / "live", file)
    with pytest.raises(FolderError, match="not empty"):
        restore(file, tmp_path / "live")
    whole = file.read_bytes()
    with tarfile.open(tmp_path / "strange.tar", "w") as strange:
        strange.add(file, "../b.tar")
    for damaged in (b"", b"x" * 10000, whole[: len(whole) // 2], (tmp_path / "strange.tar").read_bytes()):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match="is not a valid backup"):
            restore(file, new)
    place = whole.index(b"weight") + 20_000  # inside the checkpoint's tensors
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(DataError, match="checkpoint"):
        restore(file, new)
    assert {path.name for path in tmp_path.iterdir()} == {"b.tar", "live", "strange.tar"}

"""Files made to do harm: one line with the file's name, nothing written, and a good older checkpoint is used."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import tarfile

import numpy as np
import pytest
import torch

from iblurry.errors import CheckpointError, IblurryError
from iblurry.learner.learner import Learner
from iblurry.live.learning import LiveLearner
from iblurry.live.log import LogEntry, SampleLog
from iblurry.live.messages import Operation
from iblurry.live.settings import Settings
from iblurry.live.transfer import backup
from iblurry.storage import checkpoint, tensor_file as archive
from tests.cli.conftest import RUN

DEEP = "[" * 200_000 + "]" * 200_000
TEXTS = [DEEP, f'{{"format": {DEEP}}}', '{"format": 2, "format": 2}', '{"format": NaN}', "[]", "null", "", "{}"]
CHANGES = [  # path of a value, and what is put there
    ("experiment", None),
    ("experiment", []),
    ("experiment.method", None),
    ("experiment.method", {"surprise": 1}),
    ("experiment.method.pace", 7),
    ("experiment.method.pace.updates_per_sample", "1e999999999"),
    ("experiment.method.schedule", {"Exponential": {"surprise": 1}}),
    ("experiment.method.terms", {"CrossEntropy": None}),
    ("experiment.memory", 10**15),
    ("experiment.memory", "20"),
    ("experiment.stream.IBlurry.tasks", "x"),
    ("experiment.stream.IBlurry.blur", "1e999999999"),
    ("experiment.augment", {"Augment": {"pad": []}}),
    ("experiment.network", {}),
    ("experiment.seed", -1),
    ("digest", {}),
    ("format", 10**30),
    ("format", 1),
]


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def changed(path, place, value):
    content = json.loads(path.read_text())
    *names, last = place.split(".")
    inner = content
    for name in names:
        inner = inner[name]
    inner[last] = value
    write(path, content)


def hurt(path, change):
    """Either a text in its place, or a value in it."""
    if isinstance(change, str):
        write(path, change)
    else:
        changed(path, *change)


@pytest.mark.parametrize("change", [*TEXTS, *CHANGES], ids=range(len(TEXTS) + len(CHANGES)))
def test_experiment_json(begun, refused, call, change):
    hurt(begun / "experiment.json", change)
    assert begun.name in refused(*RUN)
    if change not in (("experiment.memory", 10**15), ("digest", {})):  # no other line of it is wrong
        assert begun.name in refused("show")


@pytest.mark.parametrize("name", ["summary.json", "environment.json"])
@pytest.mark.parametrize(
    "text", [*TEXTS[:-1], '{"threads": "x", "callbacks": 3, "seconds": "x", "a_auc": []}'], ids=range(8)
)
def test_summary_and_environment(begun, refused, call, name, text):
    write(begun / name, text)
    for line in (["show"], RUN):
        if text.startswith('{"threads') or (name == "environment.json" and line == ["show"]):
            said = call(*line)
            assert "Traceback" not in said.err
        else:
            assert name in refused(*line)


def forge(path, tree):
    """A checkpoint whose digest agrees, whatever its tree is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "_describe", lambda state, place, tensors: tree)
        path.write_bytes(archive.pack({}, {"at": int(checkpoint.NAME.fullmatch(path.name)[1]), "format": 2}))


def levels(number):
    tree = []
    for _ in range(number):
        tree = [tree]
    return tree


TREES = [
    *(None, 7, [], {"evil": 1}, {"dict": 3}, {"dict": [1]}, {"tensor": "nothing"}, {"dict": [["learner", {}]]}),
    *({"float": "abc"}, {"tuple": None}, {"dict": [[[], 1]]}, {"dict": [["a", {"array": []}]]}, levels(99), levels(98)),
]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_a_digest_that_agrees_with_a_wrong_tree(begun, call, tree):
    path = max(begun.glob("*.safetensors"))
    forge(path, tree)
    said = call(*RUN)
    assert said.code == 0, said.err
    assert re.search(rf"{path.name} (is damaged|does not fit) .*; the previous good one, checkpoint-0+20", said.err)
    assert "continues from sample 20 of 40" in said.err


def changed_state(path, change):
    state, about = archive.unpack(path.read_bytes(), format=2)
    change(state)
    path.write_bytes(archive.pack(state, {name: about[name] for name in ("at", "format")}))


def spoil_weights(state):
    state["learner"]["network"]["head.weight"][0, 0] = float("nan")


STATES = [
    spoil_weights,
    lambda state: state.pop("learner"),
    lambda state: state.update(learner=None, queries=[]),
    lambda state: state.update(journal={"bytes": "abc"}),
    lambda state: state["learner"].update(labels=3),
    lambda state: state["learner"]["counters"].update(seen="x", spent=None),
    lambda state: state["learner"]["memory"].update(images=torch.zeros(3)),
    lambda state: state["learner"]["network"].update({"head.weight": torch.zeros(1)}),
]


@pytest.mark.parametrize("change", STATES, ids=range(len(STATES)))
def test_a_state_that_cannot_be_used(begun, call, refused, change):
    older, newer = sorted(begun.glob("*.safetensors"))
    changed_state(newer, change)
    shutil.copytree(begun, begun.parent.parent / "kept")
    said = call(*RUN)
    assert said.code == 0, said.err
    assert "continues from sample 20 of 40" in said.err
    shutil.rmtree(begun)
    shutil.copytree(begun.parent.parent / "kept", begun)
    changed_state(older, change)
    assert "No checkpoint in" in refused(*RUN)  # and both are kept


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "learner.safetensors"
    learner = Learner("er", image=(1, 8, 8), memory=20, network="mlp:width=8", classes=3)
    for at in range(6):
        learner.observe(np.full((1, 8, 8), at, np.uint8), at % 2)
    learner.save(path)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda about, state: about["arguments"].update(method=None),
        lambda about, state: about["arguments"].update(surprise=1),
        lambda about, state: about["arguments"].update(memory=10**15),
        lambda about, state: about["arguments"].update(memory="many"),
        lambda about, state: about["arguments"].update(image=[1, 10**9, 10**9]),
        lambda about, state: about["arguments"].update(classes=10**12),
        lambda about, state: about["arguments"]["method"]["pace"].update(updates_per_sample="1e999999999"),
        lambda about, state: about["arguments"]["method"].update(surprise=1),
        lambda about, state: about.update(arguments=[1]),
        lambda about, state: about.pop("arguments"),
        lambda about, state: state.pop("state"),
        lambda about, state: state["state"]["network"]["head.weight"].fill_(float("nan")),
        lambda about, state: state["state"].update(labels=[[], {}]),
    ],
    ids=range(13),
)
def test_a_learner_of_others(saved, tmp_path, change):
    state, about = archive.unpack(saved.read_bytes(), format=1)
    change(about, state)
    about.pop("digest", None)
    path = tmp_path / "learner.safetensors"
    path.write_bytes(archive.pack(state, about))
    with pytest.raises(IblurryError) as no:
        Learner.load(path)
    assert str(path) in str(no.value)
    assert "\n" not in str(no.value)
    assert len(str(no.value)) < 700


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """The folder of a service that has learnt six samples."""
    folder = tmp_path_factory.mktemp("live")
    settings = Settings(method="er", network="mlp", memory=20, image=(1, 8, 8), max_classes=3)
    settings.save(folder)
    log, learner = SampleLog(folder, max_classes=3, max_bytes=2**24), LiveLearner(folder, settings)
    samples = [Operation("sample", at, "ab"[at % 2], pixels=bytes([at] * 64)) for at in range(1, 7)]
    with log.transaction():
        log.add(samples)
    log.close()
    for at, sample in enumerate(samples, 1):
        learner.apply(LogEntry(at, sample))
        if at > 4:
            learner.save()
    return folder


def sql(text):
    def change(folder):
        with sqlite3.connect(folder / "samples.sqlite") as database:
            database.execute(text)
        database.close()

    return change


def settings(place, value):
    return lambda folder: changed(folder / "service.json", f"settings.{place}", value)


LATER = [  # found when the service starts: a backup may be restored where its device or code is not
    *(settings("mean", ["x"]), settings("recipe", 7), settings("augment", [None]), settings("memory", 10**15)),
    settings("updates_per_sample", "1e999999999"),
]
SERVICES = [
    *(lambda folder, text=text: write(folder / "service.json", text) for text in TEXTS),
    *(settings("surprise", 1), settings("memory", "20"), settings("image", None), settings("image", [1, "a", 8])),
    *(settings("threads", 0.5), settings("method", None), *LATER),
]
LOGS = [
    *(sql("UPDATE total SET accepted = 'abc'"), sql("UPDATE total SET operations = 'abc'"), sql("DELETE FROM total")),
    *(sql("UPDATE total SET operations = 2"), sql("DROP TABLE operation")),
    lambda folder: (folder / "samples.sqlite").write_bytes(b"SQLite format 3\0" + bytes(5000)),
]


@pytest.mark.parametrize("change", [*SERVICES, *LOGS], ids=range(len(SERVICES) + len(LOGS)))
def test_a_service_of_others(live, call, refused, here, change):
    folder = shutil.copytree(live, here / "copy")
    change(folder)
    with tarfile.open(here / "hostile.tar", "w") as out:
        for path in sorted(folder.iterdir()):
            if path.suffix in (".json", ".sqlite", ".safetensors"):
                out.add(path, path.name)
    if change in SERVICES:
        pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
        said = call("live", "serve", "--data-dir", "copy", "--port", 0) if change in LATER else None
        last = said.err.splitlines()[-1] if said else refused("live", "serve", "--data-dir", "copy", "--port", 0)
        assert last.startswith("iblurry: copy/service.json")
        assert said is None or (said.code == 2 and "Traceback" not in said.err)
    if change not in LATER:
        assert "hostile.tar is not a valid backup" in refused("live", "restore", "hostile.tar", "new")


def test_the_backup_of_the_same_service_is_restored(live, call, here):
    assert backup(live, here / "good.tar") == 6
    assert call("live", "restore", "good.tar", "new").code == 0


@pytest.mark.parametrize("change", [*TREES, *STATES], ids=range(len(TREES) + len(STATES)))
def test_a_service_goes_on_from_the_checkpoint_before(live, tmp_path, change):
    folder = shutil.copytree(live, tmp_path / "copy")
    newest = max(folder.glob("*.safetensors"))
    forge(newest, change) if change in TREES else changed_state(newest, change)
    learner = LiveLearner(folder, Settings.load(folder))
    (sentence,) = learner.recover() or [None]
    if sentence is None:
        assert change is STATES[3]  # which a service does not have
    else:
        assert newest.name in sentence
        assert learner.at == 5
        min(folder.glob("*.safetensors")).unlink()
        with pytest.raises(CheckpointError, match="No checkpoint in"):
            LiveLearner(folder, Settings.load(folder)).recover()
        assert newest.exists()

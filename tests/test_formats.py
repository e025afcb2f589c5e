"""Files of earlier versions are read, those of later ones refused by their number, and the page lists all formats."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from iblurry import CheckpointError, DataError, IblurryError, Learner, load
from iblurry.experiment import folder as folders
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Start
from iblurry.experiment.result import read_result
from iblurry.learner import learner as learner_module
from iblurry.live import log, settings
from iblurry.live.log import SampleLog
from iblurry.live.settings import Settings
from iblurry.storage import checkpoint

ROOT = Path(__file__).parent.parent
WRITTEN = ROOT / "tests" / "formats" / "0.2.0"  # by that version
PAGE = (ROOT / "docs" / "reference" / "index.md").read_text("utf-8")
PROBABILITIES = [0.211434, 0.21114, 0.226902, 0.350524]  # of the first test image
FORMATS = {  # by the beginning of its row
    "a run's folder": folders.FORMAT,
    "`checkpoint-": checkpoint.FORMAT,
    "what `Learner.save`": learner_module.FORMAT,
    "`service.json`": settings.FORMAT,
    "`samples.sqlite`": log.FORMAT,
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_page_has_the_number(name):
    (written,) = re.findall(rf"^\| {re.escape(name)}[^|]*\| (\d+)", PAGE, flags=re.MULTILINE)
    assert int(written) == FORMATS[name]


def test_a_run_of_this_release_is_read():
    result = read_result(RunFolder(WRITTEN / "run"))
    assert result.experiment.method.name == "er"
    assert isinstance(result.records[0], Start)
    assert result.metrics.queries == 2
    assert result.metric("a_auc") == result.summary["a_auc"] == 0.25


@pytest.mark.parametrize("name", ["run", "learner.safetensors"])
def test_a_learner_of_this_release_is_read(name):
    learner = Learner.load(WRITTEN / name)
    assert learner.labels == ["ring", "cross", "bar", "disc"]
    images = load("shapes:classes=4,train=6,test=2,size=8,channels=1").test.images[:1]
    assert learner.probabilities(images)[0].tolist() == pytest.approx(PROBABILITIES, abs=1e-4)
    learner.observe(np.zeros((1, 8, 8), np.uint8), "ring")


def later_run(place):
    path = place / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": 9}))
    read_result(RunFolder(place))


def later_checkpoint(place):
    (path,) = place.glob("checkpoint-*")
    path.write_bytes(path.read_bytes().replace(rb"\"format\":2", rb"\"format\":9"))
    Learner.load(place)


def later_learner(place):
    path = place / "learner.safetensors"
    path.write_bytes((WRITTEN / path.name).read_bytes().replace(rb"\"format\":1", rb"\"format\":9"))
    Learner.load(path)


def later_settings(place):
    (place / settings.FILE).write_text('{"format": 9, "settings": {}}')
    Settings.load(place)


def later_log(place):
    database = sqlite3.connect(place / log.FILE)
    database.execute("PRAGMA user_version = 9")
    database.close()
    SampleLog(place, max_classes=3, max_bytes=2**26)


@pytest.mark.parametrize(
    "read, error",
    [
        (later_run, IblurryError),
        (later_checkpoint, CheckpointError),
        (later_learner, CheckpointError),
        (later_settings, DataError),
        (later_log, DataError),
    ],
)
def test_a_later_format_is_refused_by_its_number_with_a_remedy(read, error, tmp_path):
    place = shutil.copytree(WRITTEN / "run", tmp_path / "run")
    with pytest.raises(error, match=r"format (is )?9.*use the version that wrote it"):
        read(place)

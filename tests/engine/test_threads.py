"""How many threads torch has while a small network learns, and that it has its own number again afterwards."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import numpy as np
import pytest
import torch

from iblurry import Experiment, Hardware, Learner, run
from iblurry.data.images import usable_cores
from iblurry.engine import threads
from iblurry.engine.eager import Eager
from iblurry.learner.trainer import Trainer

OWN = max(2, usable_cores())  # what torch takes by itself, as if there were two cores at least
IMAGES = np.zeros((2, 1, 8, 8), dtype=np.uint8)


@pytest.fixture(autouse=True)
def _as_torch_starts(monkeypatch):
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_torch_defaults", lambda: {OWN})
    threads._say_once.cache_clear()
    before = torch.get_num_threads()
    torch.set_num_threads(OWN)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def seen(monkeypatch):
    """Torch's threads at each update."""
    found, update = [], Trainer.update
    monkeypatch.setattr(Trainer, "update", lambda *a, **k: (found.append(torch.get_num_threads()), update(*a, **k))[1])
    return found


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"network": "mlp"}, 1),
        ({"network": "convnet:width=4"}, 1),
        ({"network": "mlp", "threads": 3}, 3),
        ({"network": lambda image: torch.nn.Flatten()}, OWN),
        ({"network": "mlp", "engine": Eager()}, OWN),
    ],
    ids=["mlp", "convnet", "given", "own network", "engine"],
)
def test_a_learner_sets_them_while_it_works_only(seen, monkeypatch, options, expected):
    learner = Learner("clib", image=(1, 8, 8), memory=20, **options)
    answered, answers = [], learner.method.readout.logits
    spy = lambda images: (answered.append(torch.get_num_threads()), answers(images))[1]  # noqa: E731
    object.__setattr__(learner.method.readout, "logits", spy)
    learner.observe(IMAGES, [0, 1])
    assert torch.get_num_threads() == OWN
    learner.predict(IMAGES)
    assert torch.get_num_threads() == OWN
    assert (set(seen), set(answered)) == ({expected}, {expected})
    with pytest.raises(ValueError, match="shape"):
        learner.observe(IMAGES[0, 0], 0)
    assert torch.get_num_threads() == OWN


@pytest.mark.parametrize("how", ["torch", *threads.VARIABLES])
def test_a_number_that_the_user_chose_is_kept(seen, monkeypatch, how):
    chosen = OWN + 1 if how == "torch" else OWN
    if how == "torch":
        torch.set_num_threads(chosen)
    else:
        monkeypatch.setenv(how, str(chosen))
    Learner("clib", image=(1, 8, 8), memory=20, network="mlp").observe(IMAGES, [0, 1])
    assert set(seen) == {chosen}


def test_torch_s_own_number_is_known():
    """In a process that has not set any."""
    code = "import torch; from iblurry.engine import threads; print(torch.get_num_threads(), threads._torch_defaults())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    number, _, known = out.partition(" ")
    assert int(number) in eval(known)


@pytest.mark.parametrize("threads_given, expected", [(None, 1), (2, 2)])
def test_a_run_sets_records_and_undoes_them(tmp_path, seen, caplog, threads_given, expected):
    experiment = Experiment.of("er", "digits", memory=40, samples=40)
    with caplog.at_level(logging.INFO, logger="iblurry"):
        folder = run(experiment, tmp_path, hardware=Hardware(threads=threads_given)).folder
        Learner("clib", image=(1, 8, 8), memory=20, network="mlp").observe(IMAGES, [0, 1])
    assert json.loads((folder / "environment.json").read_text())["threads"] == expected
    assert set(seen[:-2]) == {expected}
    assert torch.get_num_threads() == OWN
    assert sum("1 thread" in record.message for record in caplog.records) == 1

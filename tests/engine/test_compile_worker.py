"""Processes that compile: when they are started, what they are asked, and what becomes of the asker without them."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

import pytest
import torch

from iblurry.engine import compile_worker
from iblurry.engine.compile_worker import CompileWorker, start_early, take_early


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """Real workers, of a program that waits a moment and then serves; all end with the test."""
    (tmp_path / "serving.py").write_text(
        "import time\nfrom iblurry.engine.compile_worker import serve\ntime.sleep(0.5)\nserve()\n"
    )
    (tmp_path / "work.py").write_text(
        "import os\n\n\ndef note(path):\n    print('not an answer')\n    path.write_text(str(os.getpid()))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compile_worker, "PROGRAM", "serving")
    monkeypatch.setattr(compile_worker, "_early", early := [])
    monkeypatch.setattr(compile_worker, "WORKERS", 2)
    monkeypatch.setattr(compile_worker, "start_workers", functools.cache(compile_worker.start_workers.__wrapped__))
    made = []

    def make(**options):
        made.append(CompileWorker(**options))
        return made[-1]

    yield make
    for worker in [*made, *early]:
        with contextlib.suppress(BrokenPipeError):  # of one that has ended
            worker._process.stdin.close()
        worker._process.wait(60)
        worker._process.stdout.close()


def note(path: Path):
    import work

    return functools.partial(work.note, path)


@pytest.mark.slow
def test_calls_are_made_in_the_worker(workers, tmp_path):
    worker = workers(is_early=True)
    assert worker.is_ready  # waits for it
    worker.compile(note(tmp_path / "first"))
    worker.compile(note(tmp_path / "second"))
    assert (tmp_path / "first").read_text() == (tmp_path / "second").read_text() != str(os.getpid())


@pytest.mark.slow
def test_nobody_waits_for_a_late_worker_or_an_ended_one(workers, tmp_path):
    worker = workers()
    assert not worker.is_ready
    worker.compile(functools.partial(os._exit, 3))  # its line says that it is ready; then it ends
    worker._process.wait(60)
    assert worker.has_ended
    worker.compile(note(tmp_path / "never"))
    assert not (tmp_path / "never").exists()


@pytest.fixture
def gpu(monkeypatch):
    """Says which capability there is, with Triton."""

    def there(capability):
        monkeypatch.setattr(compile_worker.importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)

    return there


@pytest.mark.slow
def test_workers_start_early_where_nothing_was_compiled(workers, gpu, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    gpu((8, 9))
    start_early(["resnet18"])
    gpu(compile_worker.HOPPER)
    start_early(["convnet", "mlp"])
    assert take_early() is None
    start_early(["mlp", "resnet34"])
    start_early(["resnet18"])
    taken = [take_early(), take_early()]
    assert take_early() is None
    compile_worker._early += taken  # ended by the fixture
    assert all(worker.is_ready for worker in taken)


def test_no_workers_where_triton_has_compiled_before(workers, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compile_worker.start_workers()
    assert take_early() is None

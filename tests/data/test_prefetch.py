"""Pictures decoded ahead are those of the plain stream, in its order, and nothing hangs or is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.data.images import PictureFiles, batches, decoders_for, default_workers, read_picture, usable_cores
from iblurry.errors import DataError, InputError, StoppedError
from iblurry.streams.iterator import StreamIterator
from iblurry.streams.order import i_blurry
from tests.data.lazy import COUNT, SHAPE, lazy_data

ORDER = i_blurry(np.arange(COUNT) % 4, tasks=2, seed=3)


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return lazy_data(tmp_path)


@pytest.fixture
def stream_of(data: Dataset) -> Iterator[Callable[..., StreamIterator]]:
    made = []

    def make(**options: int) -> StreamIterator:
        made.append(StreamIterator(data, ORDER, **options))
        return made[-1]

    yield make
    for stream in made:
        stream.close()


def in_memory(data: Dataset) -> StreamIterator:
    part = LabelledImages(np.asarray(data.train.images), data.train.labels)
    return StreamIterator(Dataset("whole", data.classes, part, part, data.mean, data.std), ORDER)


def same(some: list, others: list) -> bool:
    return len(some) == len(others) and all(
        a[1:] == b[1:] and np.array_equal(a.image, b.image) for a, b in zip(some, others, strict=True)
    )


def pids() -> list[int]:
    return [process.pid for process in multiprocessing.active_children()]


def file_at(stream: StreamIterator, position: int) -> Path:
    assert isinstance(stream.dataset.train.images, PictureFiles)
    return Path(stream.dataset.train.images.path(int(ORDER.indices[position])))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_so()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("options", [{"workers": 2}, {"workers": 2, "ahead": 1}, {"workers": 0}])
def test_samples_are_those_of_the_plain_stream(stream_of, data, options) -> None:
    stream = stream_of(**options)
    samples = list(stream)
    assert same(samples, list(in_memory(data)))
    assert all(s.image.flags.c_contiguous and s.image.flags.owndata and s.image.dtype == np.uint8 for s in samples)
    assert (stream.decoders is None) == (options["workers"] == 0)


def test_seek_break_and_look_back(stream_of, data) -> None:
    stream, plain = stream_of(workers=2, ahead=5), in_memory(data)
    whole = list(plain)
    for start, steps in ((0, 4), (4, 3), (20, 7), (2, 1), (2, 2), (39, 1), (33, 7), (40, 0), (0, 40)):
        stream.seek(start)
        if start:
            assert same([stream.last], whole[start - 1 : start])
        met = []
        for sample in stream:
            met.append(sample)
            assert same([stream.last], [sample])
            if len(met) == steps:
                break
        assert same(met, whole[start : start + steps])
        assert stream.position == start + steps


def test_closed_between_two_samples(stream_of, data) -> None:
    stream, whole = stream_of(workers=2, ahead=4), list(in_memory(data))
    samples = iter(stream)
    met = [next(samples) for _ in range(5)]
    before = pids()
    assert len(before) == 2
    stream.close()
    assert all(gone(pid) for pid in before)
    list(batches(data.train.images, np.arange(3), 2, stream.decoders))
    met += list(samples)
    assert same(met, whole)


def test_decoding_goes_on_while_a_sample_is_used_but_not_further_than_agreed(stream_of, data, monkeypatch) -> None:
    """Once the next eight are decoded their files may go; the ninth was never touched."""
    decoded = multiprocessing.get_context("fork").Value("i")

    def counted(*args, **options) -> np.ndarray:
        image = read_picture(*args, **options)
        with decoded.get_lock():
            decoded.value += 1
        return image

    stream, whole = stream_of(workers=2, ahead=7), list(in_memory(data))
    monkeypatch.setattr("iblurry.data.images.read_picture", counted)
    samples = iter(stream)
    met = [next(samples)]
    wait_until(lambda: decoded.value == 9)
    time.sleep(0.2)
    assert decoded.value == 9
    for position in range(1, COUNT):
        file_at(stream, position).unlink()
    met += [next(samples) for _ in range(8)]
    assert same(met, whole[:9])
    with pytest.raises(DataError, match=file_at(stream, 9).name):
        next(samples)


def test_a_damaged_file_is_named_when_it_is_due(stream_of, data) -> None:
    stream, whole = stream_of(workers=2), list(in_memory(data))
    good = file_at(stream, 6).read_bytes()
    file_at(stream, 6).write_bytes(good[:60])
    file_at(stream, 30).write_bytes(b"text")
    met = []
    with pytest.raises(DataError, match=file_at(stream, 6).name):
        met.extend(stream)
    assert same(met, whole[:6])
    file_at(stream, 6).write_bytes(good)  # mended: go on where it was
    stream.seek(6)
    with pytest.raises(DataError, match=file_at(stream, 30).name):
        met.extend(stream)
    assert same(met, whole[:30])


def test_a_killed_worker_is_an_error_with_a_remedy(stream_of, data) -> None:
    stream, whole = stream_of(workers=2, ahead=4), list(in_memory(data))
    samples = iter(stream)
    met = [next(samples) for _ in range(3)]
    first, second = pids()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: first not in pids())  # nothing is raised meanwhile
    with pytest.raises(StoppedError, match=f"{first}.*IBLURRY_DECODERS=N, now 2"):
        met.extend(samples)
    assert len(met) < 3 + 2 * 4
    assert gone(first)
    assert gone(second)
    stream.seek(len(met))
    assert same(met + list(stream), whole)  # and it can go on, with new ones


def test_workers_do_not_hear_ctrl_c(stream_of, data) -> None:
    stream, whole = stream_of(workers=2, ahead=2), list(in_memory(data))
    samples = iter(stream)
    met = [next(samples) for _ in range(3)]  # both have started
    for pid in pids():
        assert os.getpgid(pid) != os.getpgrp()  # nor what is sent to all of the group
        os.kill(pid, signal.SIGINT)
    assert same(met + list(samples), whole)


def test_an_interrupted_wait_leaves_nothing_half_read(stream_of, data, monkeypatch) -> None:
    def slow(path: str, *args, **options) -> np.ndarray:
        if path == str(file_at(stream, 1)):
            time.sleep(60)
        return read_picture(path, *args, **options)

    stream, whole = stream_of(workers=1, ahead=3), list(in_memory(data))
    with monkeypatch.context() as patch:
        patch.setattr("iblurry.data.images.read_picture", slow)
        samples = iter(stream)
        next(samples)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(samples)
    assert pids() == []
    stream.seek(1)
    assert same(list(stream), whole[1:])


def test_workers_end_with_the_stream_object(data) -> None:
    stream = StreamIterator(data, ORDER, workers=2)
    next(iter(stream))
    before = pids()
    assert len(before) == 2
    del stream
    assert all(gone(pid) for pid in before)


SCRIPT = """
import multiprocessing, sys, time
from pathlib import Path
import numpy as np
from iblurry.data.images import PictureFiles
from iblurry.data.images import Decoders

folder = Path(sys.argv[1])  # without the guard that other ways to start processes need
pictures = PictureFiles(folder, sorted(file.name for file in folder.iterdir()) * 50, (3, 224, 224))
images = Decoders(pictures.image, workers=2).read(pictures, np.arange(len(pictures)))
next(images)
print(*(process.pid for process in multiprocessing.active_children()), flush=True)
time.sleep(60)  # the pipe is full meanwhile
"""


def test_workers_end_with_a_killed_parent(data, tmp_path_factory) -> None:
    script = tmp_path_factory.mktemp("script") / "plain.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(data.train.images.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        parent.kill()
    wait_until(lambda: all(map(_ended, workers)))


def _ended(pid: int) -> bool:
    """Gone, or dead and waiting for whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return gone(pid)


def test_images_in_memory_need_no_process(data, monkeypatch) -> None:
    monkeypatch.setattr(os, "fork", None)
    stream = in_memory(data)
    assert stream.decoders is None
    first = next(iter(stream))
    assert np.shares_memory(first.image, stream.dataset.train.images)
    stream.close()


def test_two_readers_at_the_same_time(stream_of, data) -> None:
    stream, whole = stream_of(workers=2, ahead=3), list(in_memory(data))
    images, rows = np.asarray(data.test.images), np.arange(COUNT)[::-1]
    met, asked = [], []
    parts = batches(data.test.images, rows, 4, stream.decoders)
    for sample in stream:
        met.append(sample)
        if len(met) % 3 == 0:
            asked.append(next(parts, np.empty((0, *SHAPE), dtype=np.uint8)))
    assert same(met, whole)
    np.testing.assert_array_equal(np.concatenate(asked), images[rows])
    assert {len(part) for part in asked if len(part)} == {4}
    for decoders in (None, stream.decoders):
        parts = list(batches(data.test.images, rows[:7], 3, decoders))
        assert [len(part) for part in parts] == [3, 3, 1]
        np.testing.assert_array_equal(np.concatenate(parts), images[rows[:7]])


def test_how_many(data, monkeypatch) -> None:
    monkeypatch.delenv("IBLURRY_DECODERS", raising=False)
    assert default_workers() == max(1, usable_cores() - 1)
    monkeypatch.setattr("iblurry.data.images.usable_cores", lambda: 16)
    assert [default_workers(runs=runs) for runs in (1, 2, 5, 16, 99)] == [15, 7, 2, 1, 1]
    monkeypatch.setenv("IBLURRY_DECODERS", "3")
    assert decoders_for(data.train.images).workers == 3
    monkeypatch.setenv("IBLURRY_DECODERS", "0")
    assert decoders_for(data.train.images) is None
    assert decoders_for(data.train.images, workers=2).ahead == 64
    for wrong in ({"workers": -1}, {"workers": 1, "ahead": 0}):
        with pytest.raises(InputError, match=r"ahead=0|workers=-1"):
            decoders_for(data.train.images, **wrong)


def test_a_daemonic_process_decodes_by_itself(data) -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(decoders_for, (data.train.images,)) is None


def test_no_number_of_torch_is_drawn(stream_of) -> None:
    before = torch.get_rng_state()
    list(stream_of(workers=1))
    assert torch.equal(torch.get_rng_state(), before)

"""Worker processes that decode pictures into shared memory."""

from __future__ import annotations

import json
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iblurry.data.images import whole_number
from iblurry.data.pictures import Pictures, Shape, read_picture
from iblurry.errors import InputError, StoppedError

EACH = 32  # pictures ahead for each worker: enough to ride out a slow file, and 5 MB of 224 x 224 pixels
LANES = 2  # two may read at the same time: the stream, and an examiner
ALONE = {  # what a worker finds in its environment
    "OMP_NUM_THREADS": "1",
    # glibc otherwise gives memory back after each picture and asks for it again: 200 page faults, a sixth of the time
    "MALLOC_TRIM_THRESHOLD_": str(2**25),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}
DONE, FAILED = b"+", b"-"


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    jobs: IO[bytes]
    replies: IO[bytes]
    waiting: deque[int]  # slots it was given and has not reported yet, in that order


class Decoders:
    """Decode pictures into slots of memory that they share with this process; a slot holds one image.

    They start with the first picture and end with `close`, with this object or with this process, however it ends.
    They are plain programs with a pipe each: a main module is not run again, a killed one holds up nobody else, and a
    run that is itself a worker may have some.
    """

    def __init__(self, shape: Shape, *, workers: int, ahead: int | None = None) -> None:
        self.shape, self.workers = shape, workers
        self.ahead = EACH * workers if ahead is None else ahead  # slots of each lane
        for name, value in (("workers", self.workers), ("ahead", self.ahead)):
            if value < 1:
                raise InputError(f"{name}={value} is too small for processes that decode ahead; the least is 1.")
        self.closed = 0  # how often; what was begun before is lost
        self._running: list[_Worker] = []
        self._failed: set[int] = set()

    def begin(self, slot: int, pictures: Pictures, row: int) -> None:
        """Have a picture decoded into a slot; what the slot held is lost."""
        if not self._running:
            self._start()
        worker = self._running[slot % self.workers]
        if slot in worker.waiting:
            self.finish(slot)
        self._failed.discard(slot)
        job = json.dumps([slot, pictures.file(row), pictures.resized])  # ASCII, whatever the file is called
        with self._whole_or_closed():
            try:
                worker.jobs.write(job.encode() + b"\n")
                worker.jobs.flush()
            except BrokenPipeError:
                raise self._lost(worker) from None
            worker.waiting.append(slot)

    def finish(self, slot: int) -> NDArray[np.uint8] | None:
        """The image in a slot, once it is there, until the slot is used again; None where it could not be decoded."""
        worker = self._running[slot % self.workers]
        with self._whole_or_closed():
            while slot in worker.waiting:
                reply = worker.replies.read(1)
                if not reply:
                    raise self._lost(worker)
                done = worker.waiting.popleft()
                if reply == FAILED:
                    self._failed.add(done)
        return None if slot in self._failed else self._slots[slot]

    def close(self) -> None:
        """End the processes; the next picture starts new ones."""
        if self._running:
            self._running = []
            self.closed += 1
            self._end()

    @contextmanager
    def _whole_or_closed(self) -> Iterator[None]:
        """Nobody could tell which reply is for which slot after an exception, be it Ctrl-C, in between."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        shape = (LANES * self.ahead, *self.shape)
        self._failed = set()
        self._end = weakref.finalize(self, _end, self._running)
        with self._whole_or_closed(), _memory(math.prod(shape)) as file:
            self._slots = _mapped(file.fileno(), shape)
            for _ in range(self.workers):
                self._running.append(_worker(file.fileno(), shape))

    def _lost(self, worker: _Worker) -> StoppedError:
        code = worker.process.wait()
        how = f"was killed by {signal.Signals(-code).name}, often for lack of memory" if code < 0 else ""
        return StoppedError(
            f"A process that decodes pictures {how or f'ended with code {code}'}; begin again, with fewer of them "
            f"(IBLURRY_DECODERS=N, now {self.workers}; 0: decode without any) if it happens again."
        )


def usual_workers(*, runs: int = 1) -> int:
    """$IBLURRY_DECODERS, or one for each core but one, which learns; of each of so many runs that share the cores."""
    return whole_number("IBLURRY_DECODERS", max(1, cores() // runs - 1))


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def work(memory: int, shape: tuple[int, ...]) -> None:
    """A worker's whole life: decode what is asked for on the standard input until it ends, as it does with the parent.

    What cannot be decoded is only reported: who waits for it tries again and says what is wrong.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    slots = _mapped(memory, shape)
    replies = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no reply
    image: Shape = (shape[1], shape[2], shape[3])
    for line in sys.stdin.buffer:
        slot, path, resized = json.loads(line)
        try:
            slots[slot] = read_picture(path, image, resized=resized)
            reply = DONE
        except Exception:
            reply = FAILED
        try:
            os.write(replies, reply)
        except BrokenPipeError:
            return


def _worker(memory: int, shape: tuple[int, ...]) -> _Worker:
    code = f"import sys; sys.path[:] = {sys.path!r}; from iblurry.data.decoders import work; work({memory}, {shape!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[memory],
        env=os.environ | ALONE,
        process_group=0,  # Ctrl-C in a terminal and a signal to the group are for the parent, which may have to save
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return _Worker(process, process.stdin, process.stdout, deque())


def _end(running: list[_Worker]) -> None:
    for worker in running:
        worker.process.kill()  # they hold nothing worth saving
    for worker in running:
        with suppress(BrokenPipeError):  # a job it did not live to read
            worker.jobs.close()
        worker.replies.close()
        worker.process.wait()


def _memory(size: int) -> IO[bytes]:
    """A nameless file that is gone with the last who has it open."""
    if sys.platform == "linux":  # in memory, and not bound by the size of /dev/shm
        file: IO[bytes] = os.fdopen(os.memfd_create("iblurry"), "r+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115  whoever asked for it closes it
    file.truncate(size)
    return file


def _mapped(file: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(file, math.prod(shape)), dtype=np.uint8).reshape(shape)

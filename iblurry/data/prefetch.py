"""Decodes pictures ahead of their use, in worker processes that write into shared memory."""

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

from iblurry.data.images import ImageStore, PictureFiles, Shape, env_int, read_picture
from iblurry.errors import InputError, StoppedError

AHEAD = 32  # pictures decoded ahead per worker: enough to bridge a slow file, and 5 MB of 224 x 224 pixels
STREAM, TESTS = range(QUEUES := 2)  # who reads: the stream, and the evaluator at the same time
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # glibc otherwise gives memory back after each picture and asks for it again: 200 page faults, a sixth of the time
    "MALLOC_TRIM_THRESHOLD_": str(2**25),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}
DONE, FAILED = b"+", b"-"


class Prefetch:
    """Some rows of the pictures by position: reading one makes the next `decoders.ahead` be decoded meanwhile.

    Fast when read in order, correct in any order. At most `decoders.ahead` decoded images are kept.
    Position i is picture rows[i]. The decoders may be shared by one prefetch per `queue`, STREAM or TESTS.
    """

    def __init__(
        self, pictures: PictureFiles, rows: NDArray[np.int64], decoders: Decoders, *, queue: int = STREAM
    ) -> None:
        self.pictures, self.rows, self.decoders = pictures, rows, decoders
        self._first = queue * decoders.ahead
        self._next, self._submitted = 0, 0  # positions from _next up to _submitted are being decoded
        self._generation = decoders.generation
        self._last: tuple[int, NDArray[np.uint8]] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> NDArray[np.uint8]:
        """(C, H, W), a copy; DataError, which names the file, where it cannot be read."""
        if self._last is None or self._last[0] != at:
            self._last = at, self._take(at)
        return self._last[1]

    def _take(self, at: int) -> NDArray[np.uint8]:
        if at != self._next or self._generation != self.decoders.generation:
            self._submitted, self._generation = at, self.decoders.generation
        self._submit(at)
        decoded = self.decoders.result(self._slot(at))
        # what a worker could not decode is tried again here, for an error that names the file
        image = self.pictures[int(self.rows[at])] if decoded is None else decoded.copy()
        self._next = at + 1
        self._submit(at + 1)  # into the slot that was just read
        return image

    def _submit(self, at: int) -> None:
        while self._submitted < min(at + self.decoders.ahead, len(self)):
            self.decoders.submit(self._slot(self._submitted), self.pictures, int(self.rows[self._submitted]))
            self._submitted += 1

    def _slot(self, at: int) -> int:
        return self._first + at % self.decoders.ahead


def decoders_for(images: ImageStore, *, workers: int | None = None, ahead: int | None = None) -> Decoders | None:
    """Worker processes for these images; None where the images are in memory, or with workers=0."""
    if not isinstance(images, PictureFiles):
        return None
    workers = default_workers() if workers is None else workers
    if workers < 0:
        raise InputError(f"workers={workers} is not possible; give 0 to decode in this process, or more.")
    return Decoders(images.image, workers=workers, ahead=ahead) if workers else None


def prefetch(
    images: ImageStore, rows: NDArray[np.int64], decoders: Decoders | None, *, queue: int = STREAM
) -> Prefetch | None:
    """A Prefetch of these rows; None where the images are in memory or there are no workers."""
    return Prefetch(images, rows, decoders, queue=queue) if isinstance(images, PictureFiles) and decoders else None


def batches(
    images: ImageStore, rows: NDArray[np.int64], size: int, decoders: Decoders | None
) -> Iterator[NDArray[np.uint8]]:
    """`rows` of the images, `size` at a time: (size, C, H, W), contiguous; the last one may be smaller."""
    ahead = prefetch(images, rows, decoders, queue=TESTS)
    for start in range(0, len(rows), size):
        stop = min(start + size, len(rows))
        yield images[rows[start:stop]] if ahead is None else np.stack([ahead[at] for at in range(start, stop)])


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    jobs: IO[bytes]
    replies: IO[bytes]
    pending: deque[int]  # slots submitted and not reported yet, in order


class Decoders:
    """Worker processes that decode pictures into slots of shared memory; a slot holds one image.

    They start with the first picture and end with `close`, with this object or with this process, however it ends. They
    are plain subprocesses with a pipe each, not multiprocessing: the main module is not imported again, a killed worker
    does not block the others, and daemonic processes may have some.
    `ahead` is the number of slots per queue, 32 per worker unless given.
    """

    def __init__(self, shape: Shape, *, workers: int, ahead: int | None = None) -> None:
        self.shape, self.workers = shape, workers
        self.ahead = AHEAD * workers if ahead is None else ahead
        for name, value in (("workers", self.workers), ("ahead", self.ahead)):
            if value < 1:
                raise InputError(f"{name}={value} is too small; decoding ahead needs at least 1.")
        self.generation = 0  # grows with every close: what was submitted before is lost
        self._running: list[_Worker] = []
        self._failed: set[int] = set()

    def submit(self, slot: int, pictures: PictureFiles, row: int) -> None:
        """Starts decoding a picture into a slot, which is overwritten."""
        if not self._running:
            self._start()
        worker = self._running[slot % self.workers]
        if slot in worker.pending:
            self.result(slot)
        self._failed.discard(slot)
        job = json.dumps([slot, pictures.path(row), pictures.resized])  # ASCII, also for other file names
        with self._close_on_error():
            try:
                worker.jobs.write(job.encode() + b"\n")
                worker.jobs.flush()
            except BrokenPipeError:
                raise self._died(worker) from None
            worker.pending.append(slot)

    def result(self, slot: int) -> NDArray[np.uint8] | None:
        """Waits for the image of a slot, valid until the slot is used again; None where it could not be decoded."""
        worker = self._running[slot % self.workers]
        with self._close_on_error():
            while slot in worker.pending:
                reply = worker.replies.read(1)
                if not reply:
                    raise self._died(worker)
                done = worker.pending.popleft()
                if reply == FAILED:
                    self._failed.add(done)
        return None if slot in self._failed else self._slots[slot]

    def close(self) -> None:
        """Ends the processes; the next picture starts new ones."""
        if self._running:
            self._running = []
            self.generation += 1
            self._end()

    @contextmanager
    def _close_on_error(self) -> Iterator[None]:
        """After an exception (also Ctrl-C) in between, replies could no longer be matched to slots."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        shape = (QUEUES * self.ahead, *self.shape)
        self._failed = set()
        self._end = weakref.finalize(self, _end_workers, self._running)
        with self._close_on_error(), _shared_file(math.prod(shape)) as file:
            self._slots = _map_slots(file.fileno(), shape)
            for _ in range(self.workers):
                self._running.append(_start_worker(file.fileno(), shape))

    def _died(self, worker: _Worker) -> StoppedError:
        code = worker.process.wait()
        how = f"was killed by {signal.Signals(-code).name}, often for lack of memory" if code < 0 else ""
        return StoppedError(
            f"A process that decodes pictures {how or f'ended with code {code}'}; run again, with fewer of them "
            f"(IBLURRY_DECODERS=N, now {self.workers}; 0: decode without any) if it happens again."
        )


def default_workers(*, runs: int = 1) -> int:
    """Workers per run: $IBLURRY_DECODERS, or one per core but one, which trains, where so many runs share the cores."""
    return env_int("IBLURRY_DECODERS", max(1, usable_cores() // runs - 1))


def usable_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_main(memory: int, shape: tuple[int, ...]) -> None:
    """A worker's main loop: decodes what is requested on standard input until that ends, as it does with the parent.

    A picture that cannot be decoded is only reported: the parent decodes it again and raises the error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    slots = _map_slots(memory, shape)
    replies = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not be read as a reply
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


def _start_worker(memory: int, shape: tuple[int, ...]) -> _Worker:
    call = f"from iblurry.data.prefetch import worker_main; worker_main({memory}, {shape!r})"
    code = f"import sys; sys.path[:] = {sys.path!r}; {call}"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[memory],
        env=os.environ | WORKER_ENVIRONMENT,
        process_group=0,  # Ctrl-C in a terminal goes to the parent alone, which may have to save
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return _Worker(process, process.stdin, process.stdout, deque())


def _end_workers(running: list[_Worker]) -> None:
    for worker in running:
        worker.process.kill()
    for worker in running:
        with suppress(BrokenPipeError):  # a job that was never read
            worker.jobs.close()
        worker.replies.close()
        worker.process.wait()


def _shared_file(size: int) -> IO[bytes]:
    """A nameless file that vanishes when the last process closes it."""
    if sys.platform == "linux":  # in memory, and not bound by the size of /dev/shm
        file: IO[bytes] = os.fdopen(os.memfd_create("iblurry"), "r+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    file.truncate(size)
    return file


def _map_slots(file: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(file, math.prod(shape)), dtype=np.uint8).reshape(shape)

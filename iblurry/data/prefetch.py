"""Decodes pictures ahead of their use, in the worker processes of a torch DataLoader."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.images import ImageStore, PictureFiles, Shape, env_int, read_picture
from iblurry.errors import InputError, StoppedError

_AHEAD = 32  # pictures decoded ahead per worker: enough to bridge a slow file, and 5 MB of 224 x 224 pixels


class Decoders:
    """Worker processes that decode the pictures that one reader is about to need.

    They start with the first picture and end with `close`, with this object or with this process, however it ends.

    Parameters
    ----------
    shape : tuple of int
        (C, H, W) of the images.
    workers : int
        Number of processes.
    ahead : int, optional
        Pictures decoded ahead, rounded up to a multiple of the workers; 32 per worker unless given.
    """

    def __init__(self, shape: Shape, *, workers: int, ahead: int | None = None) -> None:
        self.shape, self.workers = shape, workers
        self.ahead = _AHEAD * workers if ahead is None else ahead
        for name, value in (("workers", self.workers), ("ahead", self.ahead)):
            if value < 1:
                raise InputError(f"{name}={value} is too small; decoding ahead needs at least 1.")
        self._due = _Due()
        self._loader: Any = None
        self._images: Any = None  # the loader's iterator, which owns the processes
        self._reader: object = None  # whose pictures it yields

    def read(self, pictures: PictureFiles, rows: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
        """Yields the image of each row, in order; DataError, which names the file, where one cannot be read.

        Another reader, or `close`, in between costs what was decoded ahead, and changes no image.
        """
        reader = object()
        for at, row in enumerate(rows.tolist()):
            with self._close_on_error():
                if self._reader is not reader:
                    self._start(pictures, rows[at:])
                    self._reader = reader
                image = next(self._images)
            # what a worker could not decode is tried again here, for an error that names the file
            yield pictures[row] if image is None else image

    def close(self) -> None:
        """Ends the processes; the next picture starts new ones."""
        images, self._images, self._loader, self._reader = self._images, None, None, None
        if images is not None:
            images._shutdown_workers()  # also where a traceback still holds the iterator

    def _start(self, pictures: PictureFiles, rows: NDArray[np.int64]) -> None:
        self._due.pictures, self._due.rows = pictures, rows
        if self._loader is None:
            from torch import Generator
            from torch.utils.data import DataLoader

            self._loader = DataLoader(
                _Pictures(self.shape),  # type: ignore[arg-type]  # it has all that a map-style data set needs
                sampler=self._due,
                batch_size=None,
                collate_fn=_as_it_is,  # an array goes through a pipe, a tensor would take the room of /dev/shm
                num_workers=self.workers,
                prefetch_factor=-(-self.ahead // self.workers),
                persistent_workers=True,
                multiprocessing_context="fork",  # the others import the user's main module again
                worker_init_fn=_prepare_worker,
                generator=Generator(),  # it would draw from torch's global numbers
            )
        with _own_child_signals(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks
            self._images = iter(self._loader)

    @contextmanager
    def _close_on_error(self) -> Iterator[None]:
        """After an exception (also Ctrl-C) in between, part of a picture may be left in the pipe."""
        try:
            yield
        except RuntimeError as error:
            self.close()
            raise StoppedError(
                f"A process that decodes pictures ended ({error}), often for lack of memory; run again, with fewer of "
                f"them (IBLURRY_DECODERS=N, now {self.workers}; 0: decode without any) if it happens again."
            ) from error
        except BaseException:
            self.close()
            raise


def decoders_for(images: ImageStore, *, workers: int | None = None, ahead: int | None = None) -> Decoders | None:
    """Worker processes for these images; None where the images are in memory, or with workers=0.

    There are `default_workers` unless given, and none in a daemonic process, which Python allows no children.
    """
    if not isinstance(images, PictureFiles):
        return None
    if workers is None:
        workers = 0 if multiprocessing.current_process().daemon else default_workers()
    if workers < 0:
        raise InputError(f"workers={workers} is not possible; give 0 to decode in this process, or more.")
    return Decoders(images.image, workers=workers, ahead=ahead) if workers else None


def batches(
    images: ImageStore, rows: NDArray[np.int64], size: int, decoders: Decoders | None
) -> Iterator[NDArray[np.uint8]]:
    """Yields `rows` of the images, `size` at a time: (size, C, H, W), contiguous; the last one may be smaller."""
    ahead = decoders.read(images, rows) if decoders and isinstance(images, PictureFiles) else None
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        yield images[part] if ahead is None else np.stack([*islice(ahead, len(part))])


def default_workers(*, runs: int = 1) -> int:
    """Workers per run: $IBLURRY_DECODERS, or one per core but one, which trains, where so many runs share the cores."""
    return env_int("IBLURRY_DECODERS", max(1, usable_cores() // runs - 1))


def usable_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Due:
    """The loader's sampler: path of each picture, and whether it is resized."""

    pictures: PictureFiles
    rows: NDArray[np.int64]

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        pictures = self.pictures
        return ((pictures.path(row), pictures.resized) for row in self.rows.tolist())


class _Pictures:
    """The loader's data set: images by what the sampler says, None for one that cannot be decoded."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def __getitem__(self, due: tuple[str, bool]) -> NDArray[np.uint8] | None:
        path, resized = due
        try:
            return read_picture(path, self.shape, resized=resized)
        except Exception:
            return None


def _as_it_is(image: Any) -> Any:
    return image


def _prepare_worker(_: int) -> None:
    """Makes a worker end with its parent, also when that is killed, and leave Ctrl-C to it, which may have to save."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgid(0, 0)
    gc.freeze()  # what the parent held, perhaps on a GPU, is not this process's to free


@contextmanager
def _own_child_signals() -> Iterator[None]:
    """Takes back torch's handler of SIGCHLD: it raises wherever this process is, also while it writes a file.

    A worker that died is found without it, when its picture is due.
    """
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)

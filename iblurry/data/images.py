"""Where a data set's images are: in an array, or in picture files, decoded when they are read or ahead by processes."""

from __future__ import annotations

import gc
import hashlib
import math
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from iblurry.data.picture import MODES, decode
from iblurry.errors import DataError, InputError, StoppedError

_LARGEST = 2**16  # pixels of a side
_EAGER_BYTES = 4 * 2**30  # images that take more stay on the disk; $IBLURRY_EAGER_BYTES changes it
_AHEAD = 32  # pictures decoded ahead per worker: enough to bridge a slow file, and 5 MB of 224 x 224 pixels

Shape = tuple[int, int, int]  # (C, H, W)


class ImageStore(Protocol):
    """(N, C, H, W) bytes by row: an int gives one image, an array of ints or a slice gives several."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> NDArray[np.uint8]: ...


class PictureFiles:
    """Indexed like an array of bytes (N, C, H, W), but each image is read from its file at that moment.

    `names` are paths relative to the root, `shape` is (C, H, W) of every image: pictures are decoded as
    iblurry.data.picture says and, if `resized`, resized to this square; otherwise each must have the shape.
    """

    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, root: Path | str, names: Sequence[str], shape: Shape, *, resized: bool = True) -> None:
        if resized and shape[1] != shape[2]:
            raise InputError(f"Pictures are resized to squares, not to {shape[2]} x {shape[1]} pixels; give one side.")
        self.root = Path(root).absolute()  # processes that read them may have another working directory
        self.names = tuple(names)
        self.image, self.resized = shape, resized

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.names), *self.image

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, rows: Any, /) -> NDArray[np.uint8]:
        if isinstance(rows, int | np.integer):
            return read_picture(self.path(int(rows)), self.image, resized=self.resized)
        chosen = np.arange(len(self))[rows]
        images = np.empty((len(chosen), *self.image), dtype=np.uint8)
        for at, row in enumerate(chosen.tolist()):
            images[at] = self[row]
        return images

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.uint8, copy=False)

    def path(self, row: int) -> str:
        """The path of one picture."""
        return os.path.join(self.root, self.names[row])

    def stat_digest(self) -> bytes:
        """A digest of all names, file sizes and modification times in whole seconds.

        Reading the pixels of a million files takes an hour, asking for their sizes takes seconds. Copies that keep the
        times (cp -p, rsync -a, tar) have the same digest.
        """
        digest = hashlib.blake2b(repr((self.image, self.resized)).encode(), digest_size=32)
        for row, name in enumerate(self.names):
            try:
                stat = os.stat(self.path(row))
            except (OSError, ValueError) as error:
                raise _unreadable(self.path(row), error) from error
            digest.update(f"{name}\0{stat.st_size}\0{int(stat.st_mtime)}\n".encode("utf-8", "surrogateescape"))
        return digest.digest()


def load_images(
    root: Path, train: list[str], test: list[str], *, size: int | None, channels: int, lazy: bool | None
) -> tuple[ImageStore, ImageStore]:
    """Training and test images of one shape, from files below a root: decoded now, or (lazy) when they are read.

    They are lazy, unless given, where all of them take more than `eager_bytes`.
    """
    check_form(size, channels)
    names, resized = train + test, size is not None
    if size is None:  # all must have the shape of the first
        first = os.path.join(root, names[0])
        _, height, width = decode(read_bytes(first), first, channels).shape
    else:
        height = width = size
    shape = (channels, height, width)
    if len(names) * math.prod(shape) > eager_bytes() if lazy is None else lazy:
        return PictureFiles(root, train, shape, resized=resized), PictureFiles(root, test, shape, resized=resized)
    files = [os.path.join(root, name) for name in names]
    images = decode_pictures(files, read_bytes, shape, resized=resized, title=f"Reading {root.name}")
    return images[: len(train)], images[len(train) :]


def check_form(size: Any, channels: Any) -> None:
    """InputError where images cannot have this side in pixels, or None, and this number of channels, or None."""
    for name, given, possible, what in (
        ("size", size, range(1, _LARGEST + 1), f"a number of pixels from 1 to {_LARGEST:,}"),
        ("channels", channels, MODES, "1 (grey) or 3 (colour)"),
    ):
        is_whole = isinstance(given, Integral) and not isinstance(given, bool)
        if given is not None and not (is_whole and given in possible):
            raise InputError(f"{name}={given!r:.60} is not possible; give {what}.")


def read_picture(path: str, shape: Shape, *, resized: bool) -> NDArray[np.uint8]:
    """One picture as bytes (C, H, W), contiguous."""
    return _decode_picture(read_bytes(path), path, shape, resized=resized)


def decode_pictures(
    names: Sequence[str], read: Callable[[str], bytes], shape: Shape, *, resized: bool, title: str
) -> NDArray[np.uint8]:
    """(N, C, H, W): every picture decoded; `read` gives the bytes of a name. A terminal shows a progress bar."""
    from rich.console import Console
    from rich.progress import track

    images = np.empty((len(names), *shape), dtype=np.uint8)
    console = Console(stderr=True)
    bar = track(names, description=title, console=console, transient=True, disable=not console.is_terminal)
    for row, name in enumerate(bar):
        images[row] = _decode_picture(read(name), name, shape, resized=resized)
    return images


def _decode_picture(raw: bytes, name: str, shape: Shape, *, resized: bool) -> NDArray[np.uint8]:
    """One picture as bytes (C, H, W), contiguous: resized to the shape, or refused if it has another."""
    channels, height, width = shape
    image = decode(raw, name, channels, size=(width, height) if resized else None)
    if image.shape != shape:
        raise DataError(
            f"{name} is {image.shape[2]} x {image.shape[1]} pixels but others are {width} x {height}; "
            "give size=... so that all are resized to one size."
        )
    return image


def read_bytes(path: str) -> bytes:
    """The content of a file; DataError, which names it, where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # also a name that no file can have
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError | ValueError) -> DataError:
    why = (isinstance(error, OSError) and error.strerror) or error
    return DataError(f"{path} cannot be read ({why}); put it back, or load the data again.")


def eager_bytes() -> int:
    """How many bytes of images may be in memory at once: $IBLURRY_EAGER_BYTES, or 4 GiB."""
    return env_int("IBLURRY_EAGER_BYTES", _EAGER_BYTES)


def env_int(variable: str, default: int) -> int:
    """An environment variable that is a whole number from 0, or the default where it is not set."""
    given = os.environ.get(variable, "")
    if given and not given.isdecimal():
        raise InputError(f"{variable}={given!r} is not a whole number; give one from 0, or leave it out for {default}.")
    return int(given) if given else default


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

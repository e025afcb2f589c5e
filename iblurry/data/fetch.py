"""Downloads the public data sets: continues where it was cut, trusts nothing but the checksum."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from iblurry.data.load import SOURCES, data_home, find_source, import_local, stored_path
from iblurry.errors import DataError, InputError
from iblurry.storage.files import write_errors

CHUNK = 1 << 16
_PATIENCE = 30  # seconds without a byte


def fetch(name: str, home: Path | None = None) -> Path:
    """Downloads what a source needs, checks it, imports it, and returns the place of the imported form.

    Nothing is downloaded twice: an imported set is left alone, and so is a whole file in <home>/downloads.
    """
    source = find_source(name)
    if not source.files:
        public = ", ".join(each.name for each in SOURCES.values() if each.files)
        raise InputError(f"There is nothing to fetch for {name!r}; it needs no download. Fetch is for {public}.")
    place = stored_path(name, home)
    if place.exists():
        return place
    folder = (home or data_home()) / "downloads" / name
    targets = {url: folder / url.rpartition("/")[2] for url in source.files}
    what = "the folder with these files" if len(targets) > 1 else next(iter(targets.values())).name
    remedy = (
        f"Run `iblurry data fetch {name}` again to continue; or, without a network here, get {' '.join(targets)} "
        f"elsewhere and run `iblurry data import {name} PATH`, where PATH is {what}."
    )
    for url, target in targets.items():
        download(url, target, md5=source.files[url], remedy=remedy)
    return import_local(name, folder if len(targets) > 1 else target, home)


def download(url: str, target: Path, *, md5: str, remedy: str) -> None:
    """Brings the file at `url` to `target`, as long as every attempt brings bytes; `remedy` ends the error messages."""
    if target.exists() and _md5(target) == md5:
        return
    part = target.with_name(target.name + ".part")
    with write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with _bar(target.name) as show:
        while True:
            before = _size(part)
            if _continue(url, part, show, remedy):
                break
            if _size(part) <= before:
                raise DataError(f"The connection to {url} was lost. {remedy}")
    found = _md5(part)
    if found != md5:
        part.unlink()
        raise DataError(
            f"{url} has the md5 {found} instead of {md5}: it is damaged or another file, and was removed. "
            f"Try again. {remedy}"
        )
    part.replace(target)


def _continue(url: str, part: Path, show: Callable[[int, int | None], None], remedy: str) -> bool:
    """Appends what is still missing; whether the end was reached."""
    have = _size(part)
    headers = {"User-Agent": "iblurry"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        reply = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return True  # nothing lies beyond what we have; the checksum says whether that is all
        raise DataError(f"{url} answered {error.code} {error.reason}. {remedy}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DataError(f"{url} could not be reached ({reason}). {remedy}") from error
    continues = reply.status == http.client.PARTIAL_CONTENT  # some servers always start again from the first byte
    with reply, write_errors(part), part.open("ab" if continues else "wb") as file:
        length = reply.headers.get("Content-Length")
        total = file.tell() + int(length) if length else None
        for chunk in _chunks(reply):
            file.write(chunk)
            show(file.tell(), total)
        return total is None or file.tell() == total


def _chunks(reply: IO[bytes]) -> Iterator[bytes]:
    while True:
        try:
            chunk = reply.read(CHUNK)
        except (OSError, http.client.HTTPException):
            return  # a cut; the caller sees it from the length and asks for the rest
        if not chunk:
            return
        yield chunk


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        # md5 is what the publishers state; it guards against accidents, not against attackers
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)

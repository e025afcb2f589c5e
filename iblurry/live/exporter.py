"""The current model as a file: made from the newest checkpoint, in a process of its own, one at a time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import IO, Any, NamedTuple

from iblurry.errors import IblurryError
from iblurry.launch.processes import end_with_parent
from iblurry.live import process
from iblurry.live.quota import Refusal
from iblurry.live.settings import Settings, UserCode, bring
from iblurry.storage.files import write_errors

FOLDER = "models"  # in the service's own: what a killed server left there, the next one removes
NICE = 10  # learning and answering come first


class ModelFile(NamedTuple):
    """An exported model that is open for reading."""

    operation: int  # the last one that is in it, or one before that
    samples: int  # that it had learnt
    accepted: int  # by the service, when it was asked for
    file: IO[bytes]


class ModelExporter:
    """Exports the newest checkpoint of a service; a file is kept until one of a newer checkpoint takes its place."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.close()  # what a server that was killed has left
        self._made: dict[str, tuple[int, int]] = {}  # operation and samples of the file of each format
        self._lock = asyncio.Lock()

    async def export(self, kind: str, at: int, accepted: int) -> ModelFile:
        """A file of this format with a model after operation `at` or a later one, which a checkpoint has."""
        path = self.folder / FOLDER / f"model.{kind}"
        async with self._lock:
            if self._made.get(kind, (-1, 0))[0] < at:
                self._made[kind] = at, await asyncio.to_thread(self._run, path)
            return ModelFile(*self._made[kind], accepted, path.open("rb"))

    def close(self) -> None:
        shutil.rmtree(self.folder / FOLDER, ignore_errors=True)

    def _run(self, path: Path) -> int:
        context: Any = multiprocessing.get_context(process.START_METHOD)
        with ProcessPoolExecutor(1, context) as pool:
            try:
                return pool.submit(_export_checkpoint, self.folder, path, self.settings.user_code()).result()
            except IblurryError as error:
                raise Refusal(409, "cannot_export", str(error)) from error
            except BrokenProcessPool as error:
                message = "The process that exports was lost; try again."
                raise Refusal(409, "cannot_export", message) from error


def _export_checkpoint(folder: Path, path: Path, user_code: UserCode) -> int:
    """Export the newest checkpoint; returns the samples that the model had learnt."""
    os.nice(NICE)
    end_with_parent()
    import torch

    from iblurry.learner.learner import Learner

    torch.set_num_threads(1)
    bring(user_code)
    learner = Learner.load(folder)
    with write_errors(path):
        path.parent.mkdir(exist_ok=True)
    (learner.save if path.suffix == ".safetensors" else learner.export)(path)
    return learner.context.seen

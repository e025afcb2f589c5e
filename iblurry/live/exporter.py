"""The current model as a file: made from the newest checkpoint, in a process of its own, one at a time."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import shutil
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NamedTuple

from iblurry.components import objects
from iblurry.errors import IblurryError
from iblurry.launch.processes import end_with_parent
from iblurry.live import process
from iblurry.live.quota import Refusal
from iblurry.live.settings import Settings
from iblurry.storage.files import write_errors

FOLDER = "models"  # in the service's own: what a killed server left there, the next one removes
FORMATS = ("pt2", "onnx", "safetensors")
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
        answer, its_answer = context.Pipe(duplex=False)
        own = self.settings.user_modules(), self.settings.user_objects()
        worker = context.Process(target=export_checkpoint, args=(its_answer, self.folder, path, *own), daemon=True)
        worker.start()
        its_answer.close()
        try:
            found: int | str = answer.recv()
        except EOFError:
            found = f"The process that exports was lost (exit code {worker.exitcode}); try again."
        finally:
            answer.close()
            worker.join()
        if isinstance(found, str):
            raise Refusal(409, "cannot_export", found)
        return found


def export_checkpoint(
    answer: Connection, folder: Path, path: Path, modules: Sequence[str], user_objects: dict[str, Any]
) -> None:
    """The process's main function; it answers with the samples that the model had learnt, or why there is none."""
    os.nice(NICE)
    end_with_parent()
    import torch

    from iblurry.learner.learner import Learner

    torch.set_num_threads(1)
    for module in modules:
        importlib.import_module(module)
    objects.receive(user_objects)
    try:
        learner = Learner.load(folder)
        with write_errors(path):
            path.parent.mkdir(exist_ok=True)
        (learner.save if path.suffix == ".safetensors" else learner.export)(path)
    except IblurryError as error:
        answer.send(str(error))
    else:
        answer.send(learner.context.seen)

"""Workers on a Ray cluster: in the parent's folder where they can see it, otherwise with copies of the run folders."""

from __future__ import annotations

import itertools
import os
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iblurry.components import objects
from iblurry.errors import BusyError, IblurryError, InputError
from iblurry.experiment.folder import RunFolder
from iblurry.launch.config import LaunchConfig
from iblurry.launch.job_queue import CallbackCall, Job, JobEnded, JobMessage, JobQueue, JobRequest, NoJob, QueueClient
from iblurry.launch.pack import Pack
from iblurry.launch.processes import StopRequest
from iblurry.launch.workers import Workers
from iblurry.storage.files import write_errors, write_file

MISSING = "Ray is not installed here. Install it with `pip install 'iblurry[ray]'`, or leave out `--on ray`."
TEMPORARY = "iblurry-ray-"  # prefix of folders with copies of run folders
NOT_COPIED = ("lock",)  # files of a run's folder that mean nothing on another machine
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
Stamps = dict[str, tuple[int, int]]  # of files by name: time of the last change, and size


@dataclass(frozen=True)
class FilesRequest:
    """A worker needs the files of a job's folder; the answer is a dict of them by name, or None if it is busy."""

    job: int


@dataclass(frozen=True)
class FilesChanged:
    """A worker's copy of a job's folder has changed."""

    job: int
    changed: dict[str, bytes]
    removed: list[str]


class RayWorkers(Workers):
    """The parent's side, as LocalWorkers is for this machine.

    Parameters
    ----------
    queue, config, stop
        As in Workers; `config.jobs` is the number of workers, None: as many as the cluster has room for.
    """

    def __init__(self, queue: JobQueue, config: LaunchConfig, stop: StopRequest) -> None:
        super().__init__(queue, replace(config, out=config.out.absolute()), stop, places=config.jobs or 0)
        self.ray = _import_ray()
        self.needs_gpu = any(job.hardware.device != "cpu" for job in queue.jobs)
        self.token = ".shared"  # name of a file in `out`
        self.numbers = itertools.count()
        self.calls: dict[Any, int] = {}  # pending `exchange` calls, and of which worker
        self.locks: dict[int, ExitStack] = {}  # of the folders whose jobs are elsewhere
        self.unwritten: set[int] = set()  # jobs whose files could not be written here: later ones would not fit

    def run(self) -> None:
        # Ray reports lost workers on standard output, where the table will be.
        with redirect_stdout(sys.stderr), _connected(self.ray), self._marked_folder():
            self.places = self.places or self._room()
            brought = self.queue.objects()
            self.brought = self.ray.put(brought) if brought else {}  # large ones are sent once
            super().run()

    def start(self) -> None:
        actor = self.ray.remote(RayWorker).options(
            num_cpus=self.threads,
            num_gpus=1 if self.needs_gpu else 0,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(self.threads)}},
        )
        number = next(self.numbers)
        self.workers[number] = actor.remote(self.config, self.token, self.brought)
        self._call(number, [])

    def listen(self) -> None:
        if not self.calls:
            time.sleep(0.1)
            return
        ready, _ = self.ray.wait(list(self.calls), num_returns=1, timeout=0.5)
        for call in ready:
            number = self.calls.pop(call)
            try:
                messages, is_alive = self.ray.get(call)
            except self.ray.exceptions.RayError as error:
                self._bury(number, f"was lost ({type(error).__name__})")
                continue
            answers: list[Any] = []
            for message in messages:
                match message:
                    case JobRequest():
                        answers.append(self.queue.take(number))
                    case FilesRequest(job):
                        answers.append(self._lend(job))
                    case FilesChanged(job, changed, removed):
                        self._receive(job, changed, removed)
                    case _:
                        if isinstance(message, JobEnded):
                            self._unlock(message.job)
                        self.queue.report(message, number)
            if is_alive:
                self._call(number, answers)
            else:
                self._bury(number, "")

    def ask_to_stop(self) -> None:
        for actor in self.workers.values():
            actor.ask_to_stop.remote()

    def kill(self) -> None:
        for actor in self.workers.values():
            self.ray.kill(actor)
        for job in list(self.locks):
            self._unlock(job)

    def _room(self) -> int:
        """How many workers the cluster has room for."""
        resources = self.ray.cluster_resources()
        if self.needs_gpu:
            return max(1, int(resources.get("GPU", 0)))
        return max(1, int(resources.get("CPU", 1)) // self.threads)

    def _call(self, number: int, answers: list[Any]) -> None:
        self.calls[self.workers[number].exchange.remote(answers)] = number

    def _lend(self, job: int) -> dict[str, bytes] | None:
        """The files of a job's folder, which stays locked until its worker is done with it."""
        folder = self._folder(job)
        with ExitStack() as lock:
            try:
                lock.enter_context(RunFolder(folder).locked(0.0))
            except BusyError:
                return None
            self.unwritten.discard(job)
            files = {name: (folder / name).read_bytes() for name in _stamps(folder)}
            self.locks[job] = lock.pop_all()
        return files

    def _receive(self, job: int, changed: dict[str, bytes], removed: list[str]) -> None:
        """Write files of a job; where that fails, all workers are asked to stop, and send theirs before they do."""
        if job in self.unwritten:
            return
        folder = self._folder(job)
        try:
            with write_errors(folder):
                write_files(folder, changed, removed)
        except IblurryError as error:
            self.unwritten.add(job)
            self.queue.error = self.queue.error or error

    def _unlock(self, job: int) -> None:
        if job in self.locks:
            self.locks.pop(job).close()

    def _bury(self, number: int, how: str) -> None:
        for job in self.queue.running.get(number, set()):
            self._unlock(job)
        self.queue.lose(number, how)
        self.ray.kill(self.workers.pop(number))

    def _folder(self, job: int) -> Path:
        return self.config.out / self.queue.jobs[job].experiment.name

    def _marked_folder(self) -> AbstractContextManager[Any]:
        """A file in `out` by which workers recognise that they see the same folder."""
        self.config.out.mkdir(parents=True, exist_ok=True)
        mark = tempfile.NamedTemporaryFile(dir=self.config.out, prefix=".shared-")  # noqa: SIM115
        self.token = Path(mark.name).name
        return mark


class RayWorker:
    """The actor: runs its pack in a thread while the parent calls `exchange` again and again.

    Parameters
    ----------
    config : LaunchConfig
        The parent's.
    token : str
        Name of a file in the parent's folder; if this worker sees it, the folder is shared.
    brought : dict
        Objects of the program that its experiments name; see `iblurry.components.objects`.
    """

    def __init__(self, config: LaunchConfig, token: str, brought: dict[str, Any]) -> None:
        objects.receive(brought)
        self.messages: queue.Queue[Any] = queue.Queue()
        self.answers: queue.Queue[Any] = queue.Queue()
        self.stop = StopRequest()
        self.error: Exception | None = None  # a mistake of this program that ended the thread
        self.thread = threading.Thread(target=self._work, args=(config, token), daemon=True)
        self.thread.start()

    def exchange(self, answers: list[Any]) -> tuple[list[Any], bool]:
        """Take the parent's answers; give the messages since the last call, and whether more will come."""
        for answer in answers:
            self.answers.put(answer)
        is_alive, messages = self.thread.is_alive(), []
        try:
            messages.append(self.messages.get(timeout=0.3))
            while True:
                messages.append(self.messages.get_nowait())
        except queue.Empty:
            if self.error is not None and not (is_alive or messages):
                raise self.error from None
            return messages, is_alive or bool(messages)

    def ask_to_stop(self) -> None:
        self.stop.is_set = True

    def _work(self, config: LaunchConfig, token: str) -> None:
        client = QueueClient(self.messages.put, self.answers.get, tolerant=True)
        try:
            with ExitStack() as resources:
                if not (config.out / token).exists():
                    place = resources.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY))
                    config = replace(config, out=Path(place))
                    client = CopyingClient(self.messages.put, self.answers.get, config.out)
                with suppress(IblurryError):  # errors were reported already
                    Pack(config, client, self.stop).run()
        except Exception as error:
            self.error = error


class CopyingClient(QueueClient):
    """The client of a worker that cannot see the parent's folder: files come with the job and go back with each
    checkpoint.
    """

    def __init__(self, send: Any, receive: Any, out: Path) -> None:
        super().__init__(send, receive, tolerant=True)
        self.out = out
        self.folders: dict[int, Path] = {}  # by job
        self.stamps: dict[int, Stamps] = {}  # of the files that the parent has, by job

    def take(self) -> Job | NoJob:
        job = super().take()
        if isinstance(job, NoJob):
            return job
        files = self.ask(FilesRequest(job.number))
        if files is None:
            self.report(JobEnded(job.number, "busy"))
            return NoJob(is_final=False)
        self.folders[job.number] = folder = self.out / job.experiment.name
        write_files(folder, files)
        self.stamps[job.number] = _stamps(folder)
        return job

    def report(self, message: JobMessage) -> None:
        """Sends files; called in the thread that writes them, between two samples, when all of them are whole."""
        has_ended = isinstance(message, JobEnded)
        is_between = isinstance(message, CallbackCall) and message.hook == "on_progress"
        if (has_ended or is_between) and message.job in self.folders:
            self._send_files(message.job, always=has_ended)
        super().report(message)
        if has_ended and message.job in self.folders:
            shutil.rmtree(self.folders.pop(message.job))
            del self.stamps[message.job]

    def _send_files(self, job: int, *, always: bool) -> None:
        """Send what has changed, if that includes a new checkpoint or the run has ended."""
        folder, before = self.folders[job], self.stamps[job]
        now = _stamps(folder)
        if always or any(name.startswith("checkpoint") for name in now.keys() - before.keys()):
            changed = {name: (folder / name).read_bytes() for name, stamp in now.items() if before.get(name) != stamp}
            self.send(FilesChanged(job, changed, [name for name in before if name not in now]))
            self.stamps[job] = now


def write_files(folder: Path, files: dict[str, bytes], removed: list[str] | None = None) -> None:
    """Write files into a run's folder, the summary last: with it the run counts as finished."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == "summary.json"):
        write_file(folder / name, files[name])
    for name in removed or []:
        (folder / name).unlink(missing_ok=True)


def _stamps(folder: Path) -> Stamps:
    files = [path for path in sorted(folder.glob("*")) if path.name not in NOT_COPIED and path.suffix != ".tmp"]
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise InputError(MISSING) from error
    return ray


@contextmanager
def _connected(ray: Any) -> Iterator[None]:
    """Connects to $RAY_ADDRESS, to the cluster of this machine, or to one started for this; what was there stays
    there.
    """
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), **QUIET)
    except ConnectionError as error:
        if "RAY_ADDRESS" in os.environ:
            raise InputError(
                f"There is no Ray cluster at RAY_ADDRESS={os.environ['RAY_ADDRESS']}; start it, or unset the variable."
            ) from error
        ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", **QUIET)
    try:
        yield
    finally:
        ray.shutdown()

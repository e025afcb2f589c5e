"""Workers on a Ray cluster; one that is lost is replaced, and its run goes on from the last checkpoint."""

from __future__ import annotations

import itertools
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from iblurry.errors import BusyError, InputError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.interrupt import stopping_politely
from iblurry.launch.job_queue import LATER, Desk
from iblurry.launch.remote import Files, Remote, files_of, put
from iblurry.launch.task import Runner, Task

MISSING = "Ray is not installed here. Install it with `pip install 'iblurry[ray]'`, or leave out `--on ray`."


class Cluster:
    """The parent's side, as `Pool` is for this machine; its desk is tolerant.

    Runs live in the parent's folder where workers can see it; elsewhere their files come and go with each checkpoint,
    and meanwhile the parent holds the folder.
    """

    def __init__(
        self, tasks: Sequence[Task], runner: Runner, jobs: int | None, *, size: int = 1, shared: bool = True
    ) -> None:
        self.ray = _ray()
        self.tasks, self.runner, self.jobs, self.size = tasks, runner, jobs, size
        self.desk = Desk(tasks, tolerant=True)
        self.token = f".shared-{uuid.uuid4().hex}"
        self.shared = shared  # False: as if no worker saw the folder
        self.numbers = itertools.count()
        self.workers: dict[int, Any] = {}  # actors
        self.talks: dict[Any, int] = {}  # what was asked of which worker
        self.held: dict[int, ExitStack] = {}  # folders of runs that are elsewhere

    def go(self) -> None:
        # Ray tells of lost workers on the standard output, which is the table's.
        with stopping_politely() as stop, redirect_stdout(sys.stderr), _connected(self.ray), self._marked():
            told, places = False, self.jobs or self._places()
            try:
                while self.workers or not (told or self.desk.is_over):
                    if not told:
                        self._start(places)
                    self._listen()
                    if (stop.asked or self.desk.failed) and not told:
                        told = True
                        self.desk.clear()
                        for worker in self.workers.values():
                            worker.ask_to_stop.remote()
            finally:
                for worker in self.workers.values():
                    self.ray.kill(worker)
                for number in list(self.held):
                    self._let_go(number)
        if self.desk.failed:
            raise self.desk.failed

    def _start(self, places: int) -> None:
        missing = min(places - len(self.workers), len(self.desk.waiting))
        for _ in range(missing):
            gpus = any(task.where.device != "cpu" for task in self.tasks)
            threads = max(task.where.threads or 1 for task in self.tasks)
            actor = self.ray.remote(Remote).options(
                num_cpus=threads,
                num_gpus=1 if gpus else 0,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": str(threads)}},
            )
            number = next(self.numbers)
            self.workers[number] = actor.remote(self.runner, self.size, self.token)
            self._talk(number, [])

    def _places(self) -> int:
        """As many workers as the cluster has room for."""
        there = self.ray.cluster_resources()
        if any(task.where.device != "cpu" for task in self.tasks):
            return max(1, int(there.get("GPU", 0)))
        threads = max(task.where.threads or 1 for task in self.tasks)
        return max(1, int(there.get("CPU", 1)) // threads)

    def _talk(self, number: int, answers: list[Any]) -> None:
        self.talks[self.workers[number].talk.remote(answers)] = number

    def _listen(self) -> None:
        ready, _ = self.ray.wait(list(self.talks), num_returns=1, timeout=0.5)
        for talk in ready:
            number = self.talks.pop(talk)
            try:
                news, alive = self.ray.get(talk)
            except self.ray.exceptions.RayError as error:
                self._bury(number, f"was lost ({type(error).__name__})")
                continue
            answers = [self._hear(number, *message) for message in news]
            if alive:
                self._talk(number, [answer[0] for answer in answers if answer])
            else:
                self._bury(number, "")

    def _hear(self, worker: int, verb: str, number: int, words: Sequence[Any]) -> tuple[Any, ...]:
        """What it is to be answered: () is nothing, (None,) is None."""
        if verb == "next":
            return (self.desk.take(worker),)
        if verb == "fetch":
            return (self._lend(number),)
        if verb == "home":
            put(self._folder(number), *words)
            return ()
        if verb in ("done", "fail", "busy"):
            self._let_go(number)
        self.desk.hear(worker, verb, number, words)
        return ()

    def _lend(self, number: int) -> Files | str:
        """The run's files so far; the folder is held for whoever has them."""
        with ExitStack() as holding:
            try:
                holding.enter_context(RunFolder(self._folder(number)).held(0.0))
            except BusyError:
                return LATER
            self.held[number] = holding.pop_all()
        return files_of(self._folder(number))

    def _let_go(self, number: int) -> None:
        if number in self.held:
            self.held.pop(number).close()

    def _bury(self, worker: int, how: str) -> None:
        for number in self.desk.at_work.get(worker, set()):
            self._let_go(number)
        self.desk.bury(worker, how)
        self.ray.kill(self.workers.pop(worker))

    def _folder(self, number: int) -> Path:
        return self.runner.out / self.tasks[number].experiment.name

    @contextmanager
    def _marked(self) -> Iterator[None]:
        """A file by which workers know whether they see the same folder."""
        mark = self.runner.out / self.token
        if self.shared:
            self.runner.out.mkdir(parents=True, exist_ok=True)
            mark.touch()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise InputError(MISSING) from error
    return ray


@contextmanager
def _connected(ray: Any) -> Iterator[None]:
    """To $RAY_ADDRESS, or to the cluster of this machine, or to one started for this; what was there is left there."""
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), **quiet)
    except ConnectionError as error:
        if "RAY_ADDRESS" in os.environ:
            raise InputError(
                f"No Ray cluster answers at RAY_ADDRESS={os.environ['RAY_ADDRESS']}; start it, or unset the variable."
            ) from error
        ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    try:
        yield
    finally:
        ray.shutdown()

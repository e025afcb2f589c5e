"""The learner process: what it does (`LearnerLoop`), and how the HTTP process supervises it (`LearnerProcess`)."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from iblurry.errors import DiskFullError, FolderError, IblurryError
from iblurry.experiment.checkpointer import Periodic
from iblurry.launch.processes import end_with_parent
from iblurry.live.log import LogEntry, LogReader, moved
from iblurry.live.messages import (
    CaughtUp,
    CheckpointSaved,
    Command,
    Crashed,
    MemoryContents,
    Message,
    ProcessLost,
    Stalled,
    Warned,
)
from iblurry.live.quota import SAVE_SAMPLES
from iblurry.live.settings import FILE as SETTINGS, Settings, UserCode, bring
from iblurry.storage.files import file_id, locked
from iblurry.storage.untrusted import named

LOGGER = logging.getLogger(__name__)
START_METHOD = "spawn"  # a fork would inherit threads, and CUDA would not survive it
MAX_LOSSES = 5  # unexpected ends in a row without a checkpoint between them
RESTART_AFTER = (0.2, 1.0, 5.0, 15.0, 30.0)  # seconds, by the number of such ends
STOP_SECONDS = 60.0  # to finish a sample and save, before it is killed
LOCK = "learning.lock"  # one process at a time learns in a folder, also when its server was killed a moment ago
LOCK_SECONDS = 60.0  # to wait for that
READ_SAMPLES = 32  # read from the log at once
SAVE_SECONDS = 30.0  # between two checkpoints at most (or SAVE_SAMPLES), and
SAVE_SOONEST = 1.0  # at least; what a crash costs is learnt again
SAVE_SHARE = 0.01  # of the time, for checkpoints
PUBLISH_SECONDS = 0.05  # between two snapshots while there is more to learn
PUBLISH_SHARE = 0.015  # of the time, for snapshots
REPORT_SECONDS = 0.25
REPORT_SHARE = 0.01  # of the time, for reports
IDLE_SECONDS = 0.5  # to look for work again without being woken


class LearnerProcess:
    """The learner process as the HTTP process sees it: started, given commands, and started again when it is lost.

    A thread starts it, receives its messages and calls `on_message` with each of them.
    """

    def __init__(self, folder: Path, settings: Settings, on_message: Callable[[Message], None]) -> None:
        self.folder, self.settings, self._on_message = folder, settings, on_message
        self.restarts = 0
        self.pid: int | None = None  # of the process that runs now
        self.closing = threading.Event()
        self._process: Any = None
        self._commands: Connection | None = None  # does not block: see `send`
        self._commands_lock = threading.Lock()  # its file descriptor must not be closed and reused while it is written
        self._supervisor = threading.Thread(target=self._supervise, name="learner-supervisor", daemon=True)

    def start(self) -> None:
        self._supervisor.start()

    def send(self, command: Command) -> bool:
        """Send a command without waiting; False if no process runs (the next one looks at the log anyway).

        If thousands of commands are unread, the process hangs, and one more is dropped.
        """
        with self._commands_lock:
            if self._commands is None:
                return False
            with contextlib.suppress(OSError):  # it is full, or the process is gone, which the supervisor notices
                self._commands.send_bytes(command.value)
        return True

    def close(self) -> None:
        """Let it finish its sample and save; kill it if that takes too long."""
        self.closing.set()
        self.send(Command.STOP)
        self._supervisor.join(STOP_SECONDS)
        if self._supervisor.is_alive():
            LOGGER.warning("The process that learns did not stop within %s seconds and is killed.", STOP_SECONDS)
            self._process.kill()
            self._supervisor.join()

    def _supervise(self) -> None:
        losses = 0
        while True:
            saved, end = self._run_once()
            if self.closing.is_set() or end == "stalled":
                return
            losses = 0 if saved else losses + 1
            if losses >= MAX_LOSSES:
                times = f"The process that learns was lost {losses} times in a row ({end})"
                self._tell(Stalled(f"{times}; the errors are in what `iblurry live serve` wrote to standard error."))
                return
            self.restarts += 1
            self._tell(ProcessLost(f"The process that learns was lost ({end}) and is started again."))
            self.closing.wait(RESTART_AFTER[min(losses, len(RESTART_AFTER) - 1)])

    def _tell(self, message: Message) -> None:
        """Hand a message on; what an operator should read is also a line of the service's log."""
        match message:
            case Warned(sentence):
                LOGGER.warning(sentence)
            case Crashed(lines):
                LOGGER.error("The process that learns failed.\n%s", lines.rstrip())
            case ProcessLost(sentence) | Stalled(sentence):
                LOGGER.error(sentence)
        self._on_message(message)

    def _run_once(self) -> tuple[bool, str]:
        """Run the process to its end: whether it saved a checkpoint, and how it ended."""
        context: Any = multiprocessing.get_context(START_METHOD)
        messages, its_messages = context.Pipe(duplex=False)
        its_commands, commands = context.Pipe(duplex=False)
        os.set_blocking(commands.fileno(), False)
        args = (its_messages, its_commands, self.folder, self.settings, self.settings.user_code())
        process = context.Process(target=learn, args=args, name="learning", daemon=True)
        process.start()
        self._process, self.pid = process, process.pid
        its_messages.close()
        its_commands.close()
        self._commands = commands
        if self.closing.is_set():  # the command to stop found no process
            self.send(Command.STOP)
        saved = stalled = False
        try:
            while True:
                message = messages.recv()
                saved |= isinstance(message, CheckpointSaved)
                stalled |= isinstance(message, Stalled)
                self._tell(message)
        except (EOFError, OSError):
            LOGGER.debug("The process that learns has ended.")
        finally:
            with self._commands_lock:
                self._commands = None
                commands.close()
            messages.close()
            process.join(STOP_SECONDS)
            if process.is_alive():
                LOGGER.warning("The process that learns did not end within %s seconds and is killed.", STOP_SECONDS)
                process.kill()
                process.join()
        return saved, "stalled" if stalled else f"exit code {process.exitcode}"


def learn(messages: Connection, commands: Connection, folder: Path, settings: Settings, user_code: UserCode) -> None:
    """The process's main function. All it knows is in the log and the checkpoints, so it may be killed at any time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which sends Command.STOP
    end_with_parent()
    try:
        import torch

        torch.set_num_threads(settings.threads)
        bring(user_code)
        LogReader(folder).close()  # before the lock's file is made: a folder that is gone is not made again
        with locked(folder / LOCK, timeout=LOCK_SECONDS, remedy="choose another --data-dir"):
            LearnerLoop(messages, commands, folder, settings).run()
    except IblurryError as error:  # the same would happen again
        messages.send(Stalled(str(error)))
    except (EOFError, BrokenPipeError):  # the server is gone; the next one continues from the last checkpoint
        return
    except Exception:
        messages.send(Crashed(traceback.format_exc()))
        sys.exit(1)


class LearnerLoop:
    """Applies the log's operations in order; between two of them it publishes, reports, saves and obeys commands."""

    def __init__(self, messages: Connection, commands: Connection, folder: Path, settings: Settings) -> None:
        from iblurry.live.learning import LiveLearner

        self.messages, self.commands, self.folder = messages, commands, folder
        self._lock_id = file_id(folder / LOCK)
        with named(folder / SETTINGS):
            self.learner = LiveLearner(folder, settings)
        self.reader = LogReader(folder)
        self.stopping = False
        self.publish = Periodic(self._publish, PUBLISH_SECONDS, share=PUBLISH_SHARE)
        self.report = Periodic(self._report, REPORT_SECONDS, share=REPORT_SHARE)
        self.save = Periodic(self._save, SAVE_SOONEST, longest=SAVE_SECONDS, share=SAVE_SHARE)
        self._published = self._reported = -1  # at which operation
        self._is_rehearsed = False  # what was applied last is a step of rehearsal
        self._marks: deque[tuple[float, int]] = deque(maxlen=20)  # times of reports, and samples learnt by then

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopping", True))
        for sentence in self.learner.recover():
            self.messages.send(Warned(sentence))
        self.reader.read_after(self.learner.at, 1)  # a log that does not fit the checkpoint ends it here
        self.publish.run()
        self.report.run()
        while not self.stopping:
            entries = self.reader.read_after(self.learner.at, READ_SAMPLES)
            if not entries:
                self._idle()
            for entry in entries:
                if self._apply(entry):
                    break
        self._save()

    def _apply(self, entry: LogEntry) -> bool:
        """Apply an operation, and do whatever is due after it; True where it was told to stop."""
        self.learner.apply(entry)
        self._is_rehearsed = entry.operation.kind == "rehearse"
        if self.learner.at - (self.learner.saved or [0])[-1] >= SAVE_SAMPLES:
            self.save.run()
        self._run_due()
        while self.commands.poll():
            self._obey()
        return self.stopping

    def _run_due(self) -> None:
        for task in (self.publish, self.report, self.save):
            task.run_if_due()

    def _idle(self) -> None:
        """Nothing to apply: say so, publish and report the latest state, and wait.

        The HTTP process writes a step of rehearsal to the log, if it wants one, and wakes this one. Between such steps
        the state is published now and then, as while learning.
        """
        self._marks.clear()
        self.messages.send(CaughtUp(self.learner.at, self.learner.step_updates))
        self._run_due()
        if not self._is_rehearsed or not self.commands.poll(PUBLISH_SECONDS):
            self.publish.run()
            self.report.run()
            if not self.commands.poll(IDLE_SECONDS):
                return
        self._obey()

    def _obey(self) -> None:
        """Nothing is done to WAKE: the loop looks at the log anyway."""
        command = Command(self.commands.recv_bytes())
        if command is Command.SEND_MEMORY:
            self.messages.send(MemoryContents(self.learner.memory()))
        elif command is Command.SAVE:
            self.save.run()
        elif command is Command.STOP:
            self.stopping = True

    def _publish(self) -> None:
        if self._published == self.learner.at:
            return
        self.learner.check()  # the snapshot before is better than one that is not finite
        self.messages.send(self.learner.snapshot())
        self._published = self.learner.at

    def _report(self) -> None:
        if self._reported == self.learner.at:
            return
        self._marks.append((time.monotonic(), self.learner.learnt))
        (began, before), (now, learnt) = self._marks[0], self._marks[-1]
        rate = (learnt - before) / (now - began) if now > began else 0.0
        self.messages.send(dataclasses.replace(self.learner.report(), samples_per_second=rate))
        self.learner.new_points.clear()
        self._reported = self.learner.at

    def _save(self) -> None:
        """A failure is reported and tried again later: the log has the samples meanwhile."""
        try:
            if file_id(self.folder / LOCK) != self._lock_id:  # a checkpoint beside another log is of no use
                raise FolderError(moved(self.folder))
            if self.learner.save():
                self.messages.send(CheckpointSaved(self.learner.learnt, self.learner.at, self.learner.droppable))
        except (DiskFullError, OSError) as error:
            why = "its disk is full" if isinstance(error, DiskFullError) else error.strerror or error
            sentence = f"No checkpoint can be written to {self.folder} ({why}): free some space, or repair it."
            self.messages.send(Warned(f"{sentence} Samples are kept in the log until then."))

"""The answerer: one thread of the server that answers from the latest snapshot, whatever the learner is doing."""

from __future__ import annotations

import queue
import threading
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iblurry.live.exchange import Answers
from iblurry.live.settings import Settings
from iblurry.live.snapshot import Answering

TOGETHER = 64  # images answered at once, where several requests wait


class Question(NamedTuple):
    """Images and who waits for the answer."""

    pixels: NDArray[np.uint8]  # (B, C, H, W)
    answers: Future[Answers]


class Answerer:
    """A snapshot is taken over between two answers; only the newest counts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.up: Future[None] = Future()
        self._newest: deque[bytes] = deque(maxlen=1)
        self._waiting: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="answerer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, snapshot: bytes) -> None:
        """From any thread."""
        self._newest.append(snapshot)

    def ask(self, pixels: NDArray[np.uint8]) -> Future[Answers]:
        question = Question(pixels, Future())
        self._waiting.put(question)
        return question.answers

    def close(self) -> None:
        """After what waits."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        import torch

        torch.set_num_threads(1)  # of this thread: the other cores belong to learning
        try:
            answering = Answering(self.settings)
        except Exception as error:
            self.up.set_exception(error)
            return
        self.up.set_result(None)
        while (question := self._waiting.get()) is not None:
            questions = [question]
            last = False
            while sum(len(each.pixels) for each in questions) < TOGETHER and not self._waiting.empty():
                more = self._waiting.get()
                if more is None:
                    last = True
                    break
                questions.append(more)
            self._answer(answering, [each for each in questions if each.answers.set_running_or_notify_cancel()])
            if last:
                return

    def _answer(self, answering: Answering, questions: list[Question]) -> None:
        if not questions:
            return
        try:
            if self._newest:
                answering.put(self._newest.pop())
            answers = answering.ask(np.concatenate([question.pixels for question in questions]))
        except Exception as error:  # whoever waits hears of it
            for question in questions:
                question.answers.set_exception(error)
            return
        begin = 0
        for question in questions:
            end = begin + len(question.pixels)
            question.answers.set_result(answers._replace(probabilities=answers.probabilities[begin:end]))
            begin = end

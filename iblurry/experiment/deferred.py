"""Queries that are answered by networks of their own (GDumb): on a GPU these are trained many at a time, later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from iblurry.compute import ComputeCounter
from iblurry.experiment.evaluator import Counts, Evaluator, PendingAnswer
from iblurry.learner.learner import Learner
from iblurry.learner.refits import MemorySnapshot, RefitStack
from iblurry.parts import Refit


class DeferredQueries:
    """Asks a learner at once, or where refits can be stacked, keeps the memory as it is now and asks when enough wait.

    A refit for a query changes nothing in the learner, so it may as well come later. What the answers cost is counted
    when they are asked for.

    Parameters
    ----------
    learner : Learner
        Who is asked.
    evaluator : Evaluator
        Has the questions.
    on_progress : callable
        Called with the updates done and the updates in all, after each update of stacked refits.
    """

    def __init__(self, learner: Learner, evaluator: Evaluator, on_progress: Callable[[int, int], None]) -> None:
        self.learner, self.evaluator, self.on_progress = learner, evaluator, on_progress
        self.waiting: list[DeferredAnswer] = []
        self._stack: RefitStack | None = None

    def ask(self) -> PendingAnswer | DeferredAnswer:
        """Query the learner about all classes that it has met."""
        readout, context = self.learner.method.readout, self.learner.context
        training = self.learner.refitter.training
        if not isinstance(readout, Refit) or readout.at != "query" or not RefitStack.fits(training, context):
            return self.evaluator.ask(self.learner)
        if self._stack is None:
            assert training is not None
            self._stack = RefitStack(training, context, epochs=readout.epochs, on_progress=self.on_progress)
        context.queries.forward["queries"] += self.evaluator.meet(self.learner.labels)
        if context.queries.first_time("refit", (context.memory.offered,)):
            context.queries.include(self._stack.cost)
        if self.waiting and self.waiting[-1].snapshot.seen == context.seen:  # at the end of a task, for instance
            return self.waiting[-1]
        answer = DeferredAnswer(MemorySnapshot.take(context), self)
        self.waiting.append(answer)
        if len(self.waiting) == self._stack.models:
            self.answer_all()
        return answer

    def answer_all(self) -> None:
        """Trains the networks that wait, and asks them."""
        assert self._stack is not None
        self._stack.train([answer.snapshot for answer in self.waiting])
        lr, meter = self.learner.method.schedule.lr, self.learner.context.network.meter
        with meter.counting("queries", into=ComputeCounter()):  # counted before
            for model, answer in enumerate(self.waiting):
                classes, at = len(answer.snapshot.labels), answer.snapshot.seen
                answer.found = self.evaluator.count(partial(self._stack.logits, model), classes, at=at, lr=lr)
        self.waiting = []


class DeferredAnswer:
    """The answer to a query whose network may not have been trained yet.

    Parameters
    ----------
    snapshot : MemorySnapshot
        What to train it on.
    queries : DeferredQueries
        Who trains it.
    """

    def __init__(self, snapshot: MemorySnapshot, queries: DeferredQueries) -> None:
        self.snapshot, self.queries = snapshot, queries
        self.found: PendingAnswer | None = None

    def ready(self) -> bool:
        """Whether `counts` would return at once."""
        return self.found is not None and self.found.ready()

    def counts(self) -> Counts:
        """Wait for the counts, and train what waits if need be."""
        if self.found is None:
            self.queries.answer_all()
        assert self.found is not None
        return self.found.counts()

"""What callbacks see of a run: its learner, its stream, answers on demand, and numbers to log."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from iblurry.compute import ComputeCounter
from iblurry.data.dataset import Dataset
from iblurry.data.images import batches
from iblurry.errors import InputError
from iblurry.experiment.evaluator import CHUNK
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Answers, Journal, Logged, Record
from iblurry.experiment.metrics import RESERVED, Metrics, metrics
from iblurry.learner.learner import Learner
from iblurry.streams.iterator import StreamIterator

NAME = re.compile(r"[A-Za-z][\w./-]*")  # of a metric: no comma or colon, which the command line uses itself


class RunState:
    """A run as a callback sees it: for reading, except for `log` and `stop`.

    The learner's `predict`, `probabilities` and `logits` may be called at any moment: they change nothing.

    Parameters
    ----------
    experiment : Experiment
        What is run.
    dataset : Dataset
        Its data.
    learner : Learner
        Learns the stream.
    stream : StreamIterator
        The stream, with the position of the run.
    journal : Journal
        Keeps the records.
    spent : callable
        Seconds spent on the run so far.
    """

    def __init__(
        self,
        experiment: Experiment,
        dataset: Dataset,
        learner: Learner,
        stream: StreamIterator,
        journal: Journal,
        spent: Callable[[], float],
    ) -> None:
        self.experiment, self.dataset, self.learner = experiment, dataset, learner
        self._stream, self._journal, self._spent = stream, journal, spent
        self.stop_reason: str | None = None  # why the run ends before its stream, once a callback has stopped it
        self._may_act = False

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._journal.path.parent

    @property
    def seconds(self) -> float:
        """Spent on the run so far, those before an interruption included."""
        return self._spent()

    @property
    def position(self) -> int:
        """Samples learned."""
        return self.learner.context.seen

    @property
    def samples(self) -> int:
        """Samples in the whole stream."""
        return len(self._stream)

    @property
    def task(self) -> int:
        """The task of the last sample, or of the one that is about to be learned, from 0."""
        return self._stream.last.task if self._stream.position else 0

    @property
    def loss(self) -> float:
        """The loss of the last update; 0 before the first. On a GPU this waits for the device."""
        return float(self.learner.trainer.loss)

    @property
    def records(self) -> Sequence[Record]:
        """The journal so far; on a GPU this waits for answers that are on their way."""
        self._journal.flush()
        return self._journal.kept or ()

    @property
    def metrics(self) -> Metrics:
        """A_AUC, A_avg, A_last and F_last so far."""
        return metrics(self.records)

    def log(self, name: str, value: float) -> None:
        """Write a number into the journal, at this sample.

        Parameters
        ----------
        name : str
            Name of the metric, as `--metric` takes it: letters, digits and `_ . / -`.
        value : float
            A finite number, or a tensor or array of one.
        """
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in RESERVED:
            why = "another metric has this name" if name in RESERVED else "use letters, digits and _ . / -"
            raise InputError(f"No metric can be called {name!r}: {why}.")
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"The metric {name!r} is {value!r:.80} at sample {self.position}; log a number."
            ) from error
        if not math.isfinite(number):
            raise InputError(f"The metric {name!r} is {number} at sample {self.position}; log finite numbers only.")
        self._check_may_act("log")
        self._journal.put(Logged(self.position, name, number))

    def log_answers(self) -> None:
        """Write the learner's answers to all test images into the journal, for metrics such as `klr`."""
        self._check_may_act("log_answers")
        data, learner = self.experiment.questions(self.dataset), self.learner
        order = np.argsort(data.test.labels, kind="stable")
        total = np.bincount(data.test.labels, minlength=len(data.classes))
        known = np.array([data.classes.index(str(label)) for label in learner.labels])
        rows = [
            learner.logits(pixels).argmax(1).cpu().numpy()
            for pixels in batches(data.test.images, order, CHUNK, self._stream.decoders)
        ]
        answers = known[np.concatenate(rows)]
        self._journal.put(Answers.of(self.position, answers, tuple(total.tolist()), tuple(known.tolist())))

    def stop(self, reason: str) -> None:
        """End the run after this sample and the queries that are due then; it counts as finished.

        Parameters
        ----------
        reason : str
            Kept in the journal and the summary, and shown with tables; the first one counts.
        """
        if not isinstance(reason, str) or not reason:
            raise InputError(f"run.stop({reason!r}): say why in a few words, such as run.stop('no progress').")
        self._check_may_act("stop")
        self.stop_reason = self.stop_reason or reason

    def _check_may_act(self, verb: str) -> None:
        if not self._may_act:
            raise InputError(
                f"run.{verb} was called in on_train_start, which is called again whenever the run continues, in "
                "on_sample_start, or after the run; call it in another method of the callback."
            )


@contextmanager
def without_trace(learner: Learner, *, is_counted: bool = False) -> Iterator[None]:
    """Inside, answers are not counted unless `is_counted`, and what the readout prepares for them is forgotten."""
    queries, readout, prepared = learner.context.queries, learner.method.readout, learner.prepared_at
    before = queries.state_dict()
    try:
        with learner.context.network.meter.counting("queries", into=queries if is_counted else ComputeCounter()):
            yield
    finally:
        is_prepared_anew = queries.state_dict()["counted"] != before["counted"] or learner.prepared_at != prepared
        if not is_counted:
            queries.load_state_dict(before)
        if is_prepared_anew:  # the next answer of the run prepares itself again, as after a resume
            readout.load_state_dict(readout.state_dict())
            learner.prepared_at = None

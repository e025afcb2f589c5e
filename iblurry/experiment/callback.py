"""Callbacks: how a program follows a run, logs metrics of its own and stops a run early."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from iblurry.components.component import Component
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.experiment.journal import Query, TaskEnd
    from iblurry.experiment.run_state import RunState
    from iblurry.streams.iterator import StreamItem

RUN_HOOKS = (  # called where the run is, with the learner; all others in the process that called `run` or `run_all`
    *("on_train_start", "on_sample_start", "on_new_class", "on_update", "on_sample"),
    *("on_query", "on_task_end", "on_train_end"),
)


class Callback(Component):
    """Base class of callbacks; every method does nothing until a subclass overrides it.

    `on_run_start`, `on_stage`, `on_progress`, `on_refit_progress`, `on_message` and `on_run_end` are called in the
    process that called `run` or `run_all`, also for runs of worker processes; they only watch. All others are called in
    the process of the run, on a new callback with the same settings. They get a `RunState`: they can read the learner,
    log numbers and stop the run. The settings of such a callback must be annotated fields. Its code and settings are
    stored with the run, and attributes that it sets on `self` are saved in checkpoints. An exception that a method
    raises stops the run.

    >>> class Printer(Callback):
    ...     def on_progress(self, position, accuracy, lr):
    ...         print(position, accuracy)
    >>> class Loss(Callback):
    ...     def on_query(self, run, answer):
    ...         run.log("loss", run.loss)
    """

    kind: ClassVar[str] = "callback"
    is_frozen: ClassVar[bool] = False
    logs: ClassVar[tuple[str, ...] | None] = None  # what it logs; where it says so, other names are refused before runs
    counts_answers: ClassVar[bool] = False  # whether answers that it asks for are counted as queries of the run
    is_stored: ClassVar[bool] = True  # whether it is stored with the run, which then continues with the same only
    has_init: ClassVar[bool] = False  # whether it, or a class it builds on, has an __init__ of its own

    def __init_subclass__(cls, *, is_known: bool = True) -> None:
        cls.has_init = cls.has_init or "__init__" in vars(cls)
        hooks = cls.run_hooks()
        if cls.has_init and not hooks:
            super(Component, cls).__init_subclass__()  # a plain class; a dataclass would replace the inherited __init__
            return
        if cls.has_init:
            raise InputError(
                f"The callback {cls.__name__} has an __init__ and takes part in runs ({', '.join(hooks)}); declare its "
                "settings as annotated fields, such as `patience: int = 3`, so that they are saved with the run."
            )
        super().__init_subclass__(is_known=is_known and bool(hooks))

    @classmethod
    def run_hooks(cls) -> tuple[str, ...]:
        """Which methods it overrides of those that take part in a run."""
        return tuple(hook for hook in RUN_HOOKS if getattr(cls, hook) is not getattr(Callback, hook))

    # ------------------------------------------------------------------------------------ in the calling process

    def on_run_start(self, name: str, position: int, samples: int) -> None:
        """A run starts or continues.

        Parameters
        ----------
        name : str
            Method and seed.
        position : int
            Samples already learned: 0 for a new run.
        samples : int
            Samples in the whole stream.
        """

    def on_stage(self, text: str) -> None:
        """A long step has begun; it ends with the next `on_progress`.

        Parameters
        ----------
        text : str
            Its name: "compiling", when a GPU's kernels are built at the first samples.
        """

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        """Every 20 samples, every second if samples take longer, and at the last sample.

        Parameters
        ----------
        position : int
            Samples learned.
        accuracy : float or None
            Accuracy at the latest query, from 0 to 1; None before the first one.
        lr : float
            The learning rate now.
        """

    def on_refit_progress(self, done: int, total: int) -> None:
        """A few times a second while a method refits its network on the memory (gdumb, rm, joint).

        Parameters
        ----------
        done, total : int
            Updates made in this refit, and all its updates.
        """

    def on_message(self, text: str) -> None:
        """A remark for the user: a damaged checkpoint was skipped, a lost worker is replaced.

        Parameters
        ----------
        text : str
            A sentence.
        """

    def on_run_end(self) -> None:
        """The run is finished: its result can be read. Not called for one that failed or was told to stop."""

    # ----------------------------------------------------------------------------------------- where the run is

    def on_train_start(self, run: RunState) -> None:
        """Before the first sample, and again each time the run continues after an interruption; it cannot log.

        Parameters
        ----------
        run : RunState
            The run.
        """

    def on_sample_start(self, run: RunState, sample: StreamItem) -> None:
        """Before each sample is learnt, so that the learner can predict it; it cannot log.

        Parameters
        ----------
        run : RunState
            The run; its `position` does not count this sample yet.
        sample : StreamItem
            What will be learned.
        """

    def on_new_class(self, run: RunState, label: str) -> None:
        """The first sample of a class was learned.

        Parameters
        ----------
        run : RunState
            The run.
        label : str
            The class.
        """

    def on_update(self, run: RunState) -> None:
        """After each update of the online learner, none, one or several per sample; not in refits.

        Parameters
        ----------
        run : RunState
            The run.
        """

    def on_sample(self, run: RunState, sample: StreamItem) -> None:
        """After each sample, before the queries that are due then.

        Parameters
        ----------
        run : RunState
            The run.
        sample : StreamItem
            What was learned: image, label, index in the data set, task.
        """

    def on_query(self, run: RunState, answer: Query) -> None:
        """After each point of the accuracy curve.

        Parameters
        ----------
        run : RunState
            The run.
        answer : Query
            The journal's record: `accuracy`, and `correct` and `total` for each class in the order they came.
        """

    def on_task_end(self, run: RunState, answer: TaskEnd | None) -> None:
        """After the last sample of a task and the query that belongs to it.

        Parameters
        ----------
        run : RunState
            The run.
        answer : TaskEnd or None
            As in `on_query`; None for a method that predicts only at the end (joint).
        """

    def on_train_end(self, run: RunState) -> None:
        """After the last sample, or after the one at which the run was stopped.

        Parameters
        ----------
        run : RunState
            The run.
        """

    # -------------------------------------------------------------------------------------------------- its state

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint saves of it: all attributes except fields; tensors and plain values."""
        settings = {field.name for field in fields(self) if field.init}
        return {name: value for name, value in vars(self).items() if name not in settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from where `state_dict` was taken.

        Parameters
        ----------
        state : dict
            What `state_dict` returned.
        """
        vars(self).update(state)


Callbacks = Callback | Sequence[Callback] | None


def as_callbacks(given: Any) -> tuple[Callback, ...]:
    """None, one callback or several; InputError for anything else."""
    is_one = isinstance(given, Callback) or not isinstance(given, Iterable)
    several = () if given is None else (given,) if is_one else tuple(given)
    for one in several:
        if not isinstance(one, Callback):
            call = f"; write {one.__name__}()" if isinstance(one, type) else ""
            raise InputError(f"{one!r:.80} is not a callback{call}; give a Callback, or a list of callbacks.")
    return several

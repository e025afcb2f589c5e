"""Callbacks: how a program follows a run."""

from __future__ import annotations


class Callback:
    """Base class of callbacks; every method does nothing until a subclass overrides it.

    Methods are called in the process that called `run` or `run_all`, also for runs of worker processes. An exception
    that a method raises stops the run.

    >>> class Printer(Callback):
    ...     def on_progress(self, position, accuracy, lr):
    ...         print(position, accuracy)
    """

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

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        """Every 20 samples, every second if samples take longer, and at the last sample.

        Parameters
        ----------
        position : int
            Samples learned.
        accuracy : float or None
            At the latest query, from 0 to 1; None before the first one.
        lr : float
            The learning rate now.
        """

    def on_refit_progress(self, done: int, total: int) -> None:
        """A few times a second while a method refits its network on the memory (gdumb, rm, joint).

        Parameters
        ----------
        done, total : int
            Updates of this refit made, and to make.
        """

    def on_message(self, text: str) -> None:
        """A remark for the user: a damaged checkpoint was skipped, a lost worker is replaced.

        Parameters
        ----------
        text : str
            A sentence.
        """

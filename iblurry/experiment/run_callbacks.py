"""Callbacks where the run is: when they are called, and what a checkpoint keeps of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from iblurry.components.component import hyperparameters
from iblurry.errors import InputError
from iblurry.experiment.callback import RUN_HOOKS, Callback
from iblurry.experiment.run_state import RunState, without_trace
from iblurry.storage import tensor_file as archive


class RunCallbacks:
    """The callbacks that take part in one run, each made anew from its settings.

    Parameters
    ----------
    callbacks : sequence of Callback
        As they were given; they are not changed.
    run : RunState
        What they see.
    """

    def __init__(self, callbacks: Sequence[Callback], run: RunState) -> None:
        self.run, self.has_ended, self.is_calling = run, False, False
        self.callbacks = [type(callback)(**hyperparameters(callback)) for callback in callbacks]
        self._by_hook = {hook: [one for one in self.callbacks if hook in one.run_hooks()] for hook in RUN_HOOKS}

    def __bool__(self) -> bool:
        return bool(self.callbacks)

    def has(self, hook: str) -> bool:
        """Whether one of them overrides this method."""
        return bool(self._by_hook[hook])

    def call(self, hook: str, *given: Any) -> None:
        """Call this method of all that override it; the learner is as before, or InputError."""
        for callback in self._by_hook[hook]:
            context = self.run.learner.context
            before = context.seen, context.updates, context.tasks
            with self._calling(hook), without_trace(self.run.learner, is_counted=callback.counts_answers):
                getattr(callback, hook)(self.run, *given)
            if before != (context.seen, context.updates, context.tasks):
                raise InputError(
                    f"The callback {type(callback).__name__} trained the learner in {hook}; it may only predict."
                )

    def start(self) -> None:
        """Call `on_train_start`, and raise now what would prevent the first checkpoint."""
        self.call("on_train_start")
        try:
            archive.bytes_of(self.state_dict())
        except TypeError as error:
            raise InputError(f"The state of a callback cannot be saved. {error} Or define its state_dict.") from error

    def state_dict(self) -> dict[str, Any]:
        states = [callback.state_dict() for callback in self.callbacks if callback.is_stored]
        loss = self.run.learner.trainer.loss  # which the learner itself does not need
        return {"callbacks": states, "loss": loss, "stop": self.run.stop_reason, "ended": self.has_ended}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        stored = [callback for callback in self.callbacks if callback.is_stored]
        for callback, one in zip(stored, state["callbacks"], strict=True):
            callback.load_state_dict(one)
        self.run.learner.trainer.loss.copy_(state["loss"])
        self.run.stop_reason, self.has_ended = state["stop"], state["ended"]

    @contextmanager
    def _calling(self, hook: str) -> Iterator[None]:
        self.is_calling, self.run._may_act = True, not hook.endswith("_start")
        try:
            yield
        finally:
            self.is_calling = self.run._may_act = False

"""A callback that has the learner answer samples of the stream before they are learnt: prequential accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from iblurry.errors import InputError
from iblurry.experiment.callback import Callback

if TYPE_CHECKING:
    from iblurry.experiment.run_state import RunState
    from iblurry.streams.iterator import StreamItem


class OnlineAccuracy(Callback):
    """Logs `online_acc`, the share of samples so far that were answered right before they were learnt, and
    `online_acc_window`, the same of the last window.

    The first sample of a class counts as wrong and is not asked about. Answers are counted as queries. A method that
    trains a network for its answers (gdumb) does so for every sample; one that answers only at the end is refused.

    Parameters
    ----------
    window : int
        Samples between two values, and of each windowed one.
    every : int
        Ask about the first of so many samples only.
    """

    logs: ClassVar[tuple[str, ...]] = ("online_acc", "online_acc_window")
    counts_answers: ClassVar[bool] = True
    ranges: ClassVar[dict[str, str]] = {"window": "[1, inf)", "every": "[1, inf)"}
    window: int = 1000
    every: int = 1
    # State: samples asked about and right answers; those are tensors on the device, so that nothing waits for it.
    asked, right = 0, 0
    window_asked, window_right = 0, 0

    def on_train_start(self, run: RunState) -> None:
        if run.learner.method.readout.only_at_end:
            raise InputError(
                f"{run.learner.method.name} predicts only at the end of the stream, not for OnlineAccuracy; leave "
                "the callback out."
            )

    def on_sample_start(self, run: RunState, sample: StreamItem) -> None:
        if run.position % self.every:
            return
        row = run.learner.context.network.row_of(sample.label)
        right: Any = 0 if row is None else (run.learner.logits(sample.image[None]).argmax(1) == row).sum()
        self.asked, self.right = self.asked + 1, self.right + right
        self.window_asked, self.window_right = self.window_asked + 1, self.window_right + right

    def on_sample(self, run: RunState, sample: StreamItem) -> None:
        if run.position % self.window == 0:
            run.log("online_acc", float(self.right) / self.asked)
            if self.window_asked:
                run.log("online_acc_window", float(self.window_right) / self.window_asked)
            self.window_asked, self.window_right = 0, 0

    def on_train_end(self, run: RunState) -> None:
        if run.position % self.window:
            run.log("online_acc", float(self.right) / self.asked)

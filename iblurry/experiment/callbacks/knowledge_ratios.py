"""A callback that journals answers to all test images now and then, from which KLR and KGR are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from iblurry.experiment.callback import Callback

if TYPE_CHECKING:
    from iblurry.experiment.run_state import RunState
    from iblurry.streams.iterator import StreamItem


class KnowledgeRatios(Callback):
    """Journals what the metrics `klr`, `kgr`, `klr_released` and `kgr_released` need.

    A method that is asked only at the end of the stream (joint) is asked there alone, and has no ratio.

    Parameters
    ----------
    every : int
        Samples between two moments.
    """

    logs: ClassVar[tuple[str, ...]] = ()  # the metrics are the package's
    ranges: ClassVar[dict[str, str]] = {"every": "[1, inf)"}
    every: int = 10_000

    def on_sample(self, run: RunState, sample: StreamItem) -> None:
        is_asked = run.position == run.samples or not run.learner.method.readout.only_at_end
        if run.position % self.every == 0 and is_asked:
            run.log_answers()

"""What a run's folder holds: its records, and the numbers computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from iblurry.errors import UnknownNameError
from iblurry.experiment.class_metrics import CLASS_METRICS, Points, worst_cases
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Record, Stopped, read
from iblurry.experiment.metrics import CURVES, REDUCTIONS, Metrics, logged, metrics, stopped


@dataclass(frozen=True)
class Result:
    """A run as far as it got.

    Parameters
    ----------
    folder : Path
        The run's folder.
    experiment : Experiment
        What was run.
    records : list of Record
        The journal's lines; empty for a run that was not begun.
    metrics : Metrics
        Computed from the records.
    summary : dict or None
        The content of summary.json: metrics, seconds and compute; None while the run is not finished.
    """

    folder: Path
    experiment: Experiment
    records: list[Record]
    metrics: Metrics
    summary: dict[str, Any] | None

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The content of environment.json: versions, device, seconds spent; empty if it was not kept."""
        return RunFolder(self.folder).environment() or {}

    @property
    def pretrained(self) -> bool:
        """Whether the body started with weights from elsewhere, as the summary says, or else the network's name."""
        return bool((self.summary or {}).get("pretrained")) or self.experiment.pretrained

    @cached_property
    def logged(self) -> dict[str, list[tuple[int, float]]]:
        """What callbacks logged, by name: samples seen and the value, in the order it was logged."""
        return logged(self.records)

    def curve(self, name: str) -> Points:
        """Samples seen and value: of what callbacks logged, or of `min_acc` and the like at every query, in fractions.

        Parameters
        ----------
        name : str
            A name of `logged`, or balanced_acc, forgetting, min_acc, wc_acc, worst_class, klr, kgr and so on.
        """
        if name in CURVES:
            return CURVES[name](self.records)
        if name not in self.logged:
            raise UnknownNameError("curve", name, [*CURVES, *self.logged])
        return self.logged[name]

    def metric(self, name: str) -> float | None:
        """A number as `--metric` names it, in a fraction where that prints percent; None where it is not defined.

        Parameters
        ----------
        name : str
            A field of `metrics` (`a_auc`), aaa, wf10, wf100, wp10 or wp100, or a curve: its last value, or
            `forgetting:mean`, `:min`, `:max`.
        """
        if name in Metrics.__dataclass_fields__:
            value: float | None = getattr(self.metrics, name)
            return value
        if name in CLASS_METRICS:
            return CLASS_METRICS[name](self.records)
        word, _, reduction = name.partition(":")
        if reduction and reduction not in REDUCTIONS:
            raise UnknownNameError(f"way to take {word}", reduction, REDUCTIONS)
        values = [value for _, value in self.curve(word)]
        return REDUCTIONS[reduction or "last"](values) if values else None

    @cached_property
    def worst_cases(self) -> dict[str, float]:
        """The least accuracy of each class since it counts as learnt, by label."""
        return worst_cases(self.records)

    @property
    def stopped(self) -> Stopped | None:
        """Where (`at`) and why (`reason`) a callback ended the run before its stream; None: none did."""
        return stopped(self.records)


def read_result(folder: RunFolder, experiment: Experiment | None = None) -> Result:
    """Read a run's result from its files alone.

    Parameters
    ----------
    folder : RunFolder
        The run's folder; it may be missing if `experiment` is given.
    experiment : Experiment, optional
        What is run there; by default what experiment.json says.
    """
    summary = folder.summary()
    has_begun = summary is not None or folder.journal.exists()
    records = read(folder.journal, partial=summary is None) if has_begun else []
    return Result(folder.path, experiment or folder.experiment(), records, metrics(records), summary)

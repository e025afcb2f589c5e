"""The learner of a run, as its last checkpoint has it."""

from __future__ import annotations

from typing import Any

from iblurry.data.dataset import Dataset
from iblurry.engine.eager import Eager
from iblurry.errors import FolderError
from iblurry.experiment import checkpoint
from iblurry.experiment.folder import RunFolder
from iblurry.learner import Learner


def saved_learner(folder: RunFolder, dataset: Dataset, engine: Eager | None = None) -> Learner:
    """The learner of the newest intact checkpoint in a run's folder; FolderError where there is none.

    Parameters
    ----------
    folder : RunFolder
        A run, finished or not.
    dataset : Dataset
        What it was run on, for class names and normalisation; FolderError if the data are others.
    engine : Eager, optional
        Device and precision; default: the CPU in float32.
    """
    experiment = folder.experiment()
    folder.check_data(experiment.dataset, dataset.fingerprint())

    def accept(state: dict[str, Any]) -> str | None:
        return None if state.get("experiment") == experiment.digest else "it belongs to another experiment"

    loaded = checkpoint.load_latest(folder.path, accept=accept)
    if loaded is None:
        raise FolderError(
            f"{folder.path} has no checkpoint, so there is no learner in it; name the folder that `iblurry run` wrote, "
            "not collected results."
        )
    learner = experiment.learner(dataset, engine)
    learner.load_state_dict(loaded.state["learner"])
    return learner

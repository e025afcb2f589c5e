"""How experiments are launched: where they are kept, how many at a time, on which device, with how many threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from iblurry.data.images import usable_cores
from iblurry.engine.devices import default_device
from iblurry.engine.eager import Precision
from iblurry.engine.threads import is_small
from iblurry.errors import InputError, UnknownNameError, check_fields, check_type
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment

PLACES = ("local", "ray")


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """How experiments are launched; nothing here is part of an experiment.

    Parameters
    ----------
    out : Path or str, default "runs"
        Folder of the run folders.
    data_home : Path, optional
        Folder of imported data sets; None: the usual one.
    checkpoints : CheckpointPolicy
        How often runs are saved.
    jobs : int, optional
        Worker processes; None: one per core, one on a GPU, on Ray as many as the cluster has room for.
    pack : int
        Runs side by side in one process, which is faster on a GPU.
    threads : int, optional
        Torch threads of each run; None: 1 for "mlp" and "convnet", its share of the cores for others.
    on : {"local", "ray"}
        Worker processes of this machine, or of a Ray cluster.
    device : str
        "cpu", "cuda", "cuda:1" or "auto": a GPU if there is one, except for "mlp" and "convnet".
    precision : {"float32", "bfloat16"}, optional
        Precision of convolutions and matrix products; None: float32 on a CPU, bfloat16 on a GPU.
    again : bool
        Whether to delete earlier results and start again, for example if the data have changed.
    """

    out: Path = Path("runs")
    data_home: Path | None = None
    checkpoints: CheckpointPolicy = CheckpointPolicy()
    jobs: int | None = None
    pack: int = 1
    threads: int | None = None
    on: str = "local"
    device: str = "auto"
    precision: Precision | None = None
    again: bool = False

    def __post_init__(self) -> None:
        for name in ("out", "data_home"):
            place: Any = getattr(self, name)
            if name == "out" or place is not None:
                try:
                    object.__setattr__(self, name, Path(place))
                except TypeError as error:
                    raise InputError(f"{name}={place!r} is not a folder; give a path.") from error
        check_fields(self, {"jobs": "[1, inf)", "pack": "[1, inf)", "threads": "[1, inf)"})
        check_type("checkpoints", self.checkpoints, CheckpointPolicy)
        if self.on not in PLACES:
            raise UnknownNameError("place to run on", self.on, PLACES)

    def is_done(self, experiment: Experiment) -> bool:
        """Whether it is finished, and not to be run again."""
        return not self.again and (self.out / experiment.name / "summary.json").exists()

    def worker_count(self, experiments: Sequence[Experiment]) -> int:
        """Processes that share the cores; it fixes the threads of a run, so it counts finished experiments too."""
        if self.on != "local":
            return usable_cores()  # one thread each: other programs use the cluster as well
        # unless told, processes would take turns on a GPU
        is_one = self.pack > 1 or any(self.device_for(experiment) != "cpu" for experiment in experiments)
        return max(1, min(self.jobs or (1 if is_one else usable_cores()), ceil(len(experiments) / self.pack)))

    def hardware_for(self, experiment: Experiment, workers: int) -> Hardware:
        """What one run is run on if so many processes share the cores."""
        threads = self.threads or (1 if is_small(experiment.network) else max(1, usable_cores() // workers))
        return Hardware(threads=threads, device=self.device_for(experiment), precision=self.precision)

    def device_for(self, experiment: Experiment) -> str:
        """`device`, or what "auto" means for this experiment's network."""
        return default_device(heavy=not is_small(experiment.network)) if self.device == "auto" else self.device

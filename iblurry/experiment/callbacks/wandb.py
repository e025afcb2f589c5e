"""A callback that writes a run to Weights & Biases, online or offline."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from iblurry.experiment.callbacks.logger import Logger, Row, environment_of, run_name, safe_name
from iblurry.experiment.folder import RunFolder

if TYPE_CHECKING:
    from iblurry.experiment.run_state import RunState

OFFLINE = ("offline", "dryrun")  # two words for it


class WandB(Logger):
    """Writes rows to Weights & Biases, online where somebody is logged in or WANDB_MODE says so, otherwise offline.

    A run that is there already gets the rows after its last one, because W&B takes none twice; offline, it is written
    again, and its earlier folder is deleted.

    Parameters
    ----------
    out : str
        Where its folder `wandb` lies.
    project : str or None
        None: WANDB_PROJECT, otherwise iblurry.
    """

    extra: ClassVar[str] = "wandb"
    libraries: ClassVar[tuple[str, ...]] = ("wandb",)
    out: str = "logs"
    project: str | None = None

    def errors(self) -> tuple[type[Exception], ...]:
        import wandb

        return (wandb.errors.Error,)

    def open(self, run: RunState) -> None:
        import wandb

        known, out = safe_name(run_name(run)), Path(self.out)
        mode: Any = os.environ.get("WANDB_MODE")  # which words there are is W&B's business
        if mode is None and not wandb.login(prompt=False, verify=False):
            mode = "offline"
        out.mkdir(parents=True, exist_ok=True)
        if mode in OFFLINE:
            for old in (out / "wandb").glob(f"offline-run-*-{known}"):
                shutil.rmtree(old)
        self._run = wandb.init(
            project=self.project or os.environ.get("WANDB_PROJECT") or "iblurry",
            id=known,
            name=run_name(run),
            dir=out,
            mode=mode,
            resume=None if mode in OFFLINE else "allow",
            reinit="create_new",  # a run that the caller has open stays open
            config={**RunFolder(run.folder).hyperparameters(), "environment": environment_of(run)},
            allow_val_change=True,
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                save_code=False,
                x_disable_stats=True,  # this process and machine need not be the run's
                x_disable_machine_info=True,
            ),
        )
        self._first = int(self._run.step)
        url = self._run.url or "no place: WANDB_MODE is disabled"
        self.place = str(self._run.settings.sync_dir if self._run.offline else url)

    def write(self, step: int, row: Row) -> None:
        if step >= self._first:
            self._run.log(row, step=step, commit=True)

    def close(self, *, finished: bool) -> None:
        self._run.summary["finished"] = finished
        self._run.finish()

"""Weights & Biases: one run each, known again by its folder's name; offline where nobody is logged in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iblurry.errors import InputError
from iblurry.studies.loggers.logger import RunDescription, safe_name

OFFLINE = ("offline", "dryrun")  # two words for it


class WeightsAndBiases:
    """Rows by samples seen; W&B takes no row twice, so that a run told again goes on behind its last row.

    Offline, a run is written anew into <out>/wandb/offline-run-*, and its earlier folder goes.
    """

    def __init__(self, out: Path | None, project: str | None) -> None:
        import wandb

        self.out = out or Path("logs")
        self.project = project or os.environ.get("WANDB_PROJECT") or "iblurry"
        self.errors: tuple[type[Exception], ...] = (wandb.errors.Error,)
        self._run: Any = None
        self._row: dict[str, float | str] = {}
        self._at = 0

    def start(self, run: RunDescription) -> str:
        import wandb

        known = safe_name(run.name)
        if self._run is not None:
            if not self._run.offline:
                raise InputError(
                    f"The journal of {run.folder} was written again, otherwise than before, and W&B keeps what it was "
                    f"told: delete its run {known} there, and log it again."
                )
            self._run.finish()
        mode: Any = os.environ.get("WANDB_MODE")  # which words there are is W&B's business
        if mode is None and not wandb.login(prompt=False, verify=False):
            mode = "offline"
        self.out.mkdir(parents=True, exist_ok=True)
        if mode in OFFLINE:
            for old in (self.out / "wandb").glob(f"offline-run-*-{known}"):
                shutil.rmtree(old)
        self._run = wandb.init(
            project=self.project,
            id=known,
            name=run.name,
            dir=self.out,
            mode=mode,
            resume=None if mode in OFFLINE else "allow",
            reinit="create_new",  # several runs are followed at a time
            config={**run.parameters, "environment": run.environment},
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
        self._row, self._at, self._next = {}, 0, int(self._run.step)
        if mode == "disabled":
            return "no place: WANDB_MODE is disabled"
        return str(self._run.settings.sync_dir if self._run.offline else self._run.url)

    def log_scalars(self, values: Mapping[str, float], step: int) -> None:
        self._add(values, step)

    def log_text(self, name: str, text: str, step: int) -> None:
        self._add({name: text}, step)

    def flush(self) -> None:
        """Rows leave by themselves; the last one is kept until it is complete."""

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        if summary is not None or self._run.offline:  # a row that was sent could not be completed another time
            self._commit()
        self._run.summary["finished"] = summary is not None
        self._run.finish()

    def _add(self, values: Mapping[str, float | str], step: int) -> None:
        if step != self._at:
            self._commit()
            self._at = step
        self._row |= values

    def _commit(self) -> None:
        if self._row and self._at >= self._next:
            self._run.log(self._row, step=self._at)
        self._row = {}

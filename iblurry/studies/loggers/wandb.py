"""Weights & Biases: one run each, known again by its folder's name; offline where nobody is logged in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from iblurry.studies.loggers.history import RunHistory
from iblurry.studies.loggers.logger import safe_name

OFFLINE = ("offline", "dryrun")  # two words for it


class WeightsAndBiases:
    """Rows by samples seen. W&B takes no row twice, so a run that is there already gets the rows after its last one.

    Offline, a run is written anew into <out>/wandb/offline-run-*, and its earlier folder is deleted.
    """

    def __init__(self, out: Path | None, project: str | None) -> None:
        import wandb

        self.out = out or Path("logs")
        self.project = project or os.environ.get("WANDB_PROJECT") or "iblurry"
        self.errors: tuple[type[Exception], ...] = (wandb.errors.Error,)

    def write(self, run: RunHistory) -> str:
        import wandb

        known = safe_name(run.name)
        mode: Any = os.environ.get("WANDB_MODE")  # which words there are is W&B's business
        if mode is None and not wandb.login(prompt=False, verify=False):
            mode = "offline"
        self.out.mkdir(parents=True, exist_ok=True)
        if mode in OFFLINE:
            for old in (self.out / "wandb").glob(f"offline-run-*-{known}"):
                shutil.rmtree(old)
        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            save_code=False,
            x_disable_stats=True,  # this process and machine need not be the run's
            x_disable_machine_info=True,
        )
        with wandb.init(
            project=self.project,
            id=known,
            name=run.name,
            dir=self.out,
            mode=mode,
            resume=None if mode in OFFLINE else "allow",
            reinit="create_new",  # a run that the caller has open stays open
            config={**run.parameters, "environment": run.environment},
            allow_val_change=True,
            settings=settings,
        ) as opened:
            # While a run is not finished, its last row may lack the end of a task, and could not be completed later.
            is_whole = run.summary is not None or opened.offline
            first = int(opened.step)
            for step, values in run.events if is_whole else run.events[:-1]:
                if step >= first:
                    opened.log(values, step=step)
            opened.summary["finished"] = run.summary is not None
        if mode == "disabled":
            return "no place: WANDB_MODE is disabled"
        return str(opened.settings.sync_dir if opened.offline else opened.url)

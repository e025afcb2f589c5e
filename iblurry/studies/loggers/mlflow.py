"""MLflow: one run each, found again by a tag; in a database of its own, or where MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

from iblurry.studies.loggers.history import RunHistory
from iblurry.studies.loggers.logger import require_library, safe_name

TAG = "iblurry.run"
MOST = {"metrics": 1000, "params": 100, "tags": 100}  # that MLflow takes at once


class MLflow:
    """Metrics by samples seen; a run that is there already is deleted and written anew."""

    def __init__(self, out: Path | None, project: str | None) -> None:
        self.project = project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "iblurry"
        self.uri = os.environ.get("MLFLOW_TRACKING_URI") if out is None else None
        self.out = (out or Path("logs/mlflow")).absolute()
        if self.uri is None:
            require_library("sqlalchemy", "mlflow")  # which the small mlflow-skinny comes without
        from mlflow.exceptions import MlflowException

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # the import set it, and told of every table it makes
        self.errors: tuple[type[Exception], ...] = (MlflowException,)

    def write(self, run: RunHistory) -> str:
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.tracking import MlflowClient

        uri = self.uri or f"sqlite:///{self.out / 'mlflow.db'}"
        if self.uri is None:
            self.out.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(tracking_uri=uri)
        experiment, name = self._experiment(client), safe_name(run.name)
        for old in client.search_runs([experiment], filter_string=f"tags.`{TAG}` = '{name}'"):
            client.delete_run(old.info.run_id)
        known = client.create_run(experiment, run_name=run.name, tags={TAG: name}).info.run_id

        def log_batches(kind: str, values: list[Any]) -> None:
            for first in range(0, len(values), MOST[kind]):
                client.log_batch(known, **{kind: values[first : first + MOST[kind]]})

        now = int(1000 * time.time())
        metrics, texts = [], []
        for step, values in run.events:
            for key, value in values.items():
                if isinstance(value, str):
                    texts.append(f"{step}\t{key}\t{value}\n")
                else:
                    metrics.append(Metric("/".join(safe_name(word) for word in key.split("/")), value, now, step))
        log_batches("params", [Param(key, str(value)) for key, value in run.parameters.items()])
        log_batches("tags", [RunTag(f"environment.{key}", str(value)) for key, value in run.environment.items()])
        log_batches("metrics", metrics)
        client.log_text(known, "".join(texts), "events.tsv")
        if run.summary is not None:
            client.set_terminated(known, "FINISHED")
        return f"{uri}, run {known} of {self.project}"

    def _experiment(self, client: Any) -> str:
        if (there := client.get_experiment_by_name(self.project)) is not None:
            return str(there.experiment_id)
        files = (self.out / "artifacts").as_uri() if self.uri is None else None
        return str(client.create_experiment(self.project, artifact_location=files))

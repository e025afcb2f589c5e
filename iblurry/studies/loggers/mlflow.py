"""MLflow: one run each, found again by a tag; in a database of its own, or where MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iblurry.errors import InputError
from iblurry.studies.loggers.logger import RunDescription, require_library, safe_name

TAG = "iblurry.run"
MOST = {"metrics": 1000, "params": 100, "tags": 100}  # that MLflow takes at once


class MLflow:
    """Metrics by samples seen; one that is there already is not written twice."""

    def __init__(self, out: Path | None, project: str | None) -> None:
        self.project = project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "iblurry"
        self.uri = os.environ.get("MLFLOW_TRACKING_URI") if out is None else None
        self.out = (out or Path("logs/mlflow")).absolute()
        if self.uri is None:
            require_library("sqlalchemy", "mlflow")  # which the small mlflow-skinny comes without
        from mlflow.exceptions import MlflowException

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # the import set it, and told of every table it makes
        self.errors: tuple[type[Exception], ...] = (MlflowException,)
        self._client: Any = None
        self._id: str | None = None

    def start(self, run: RunDescription) -> str:
        from mlflow.entities import Param, RunTag
        from mlflow.tracking import MlflowClient

        uri = self.uri or f"sqlite:///{self.out / 'mlflow.db'}"
        if self.uri is None:
            self.out.mkdir(parents=True, exist_ok=True)
        client = self._client = self._client or MlflowClient(tracking_uri=uri)
        if self._id is not None:
            client.delete_run(self._id)
        experiment, name = self._experiment(), safe_name(run.name)
        found = client.search_runs([experiment], filter_string=f"tags.`{TAG}` = '{name}'", max_results=1)
        made = found[0] if found else client.create_run(experiment, run_name=run.name, tags={TAG: name})
        self._folder, self._found, self._id = run.folder, bool(found), made.info.run_id
        self._metrics: list[Any] = []
        self._logged: dict[str, dict[int, float]] = {}  # metrics written in an earlier call, by name and step
        self._texts: list[str] = []
        self._log_batches("params", [Param(key, str(value)) for key, value in run.parameters.items()])
        tags = [RunTag(f"environment.{key}", str(value)) for key, value in run.environment.items()]
        self._log_batches("tags", tags)
        return f"{uri}, run {self._id} of {self.project}"

    def log_scalars(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        for name, value in values.items():
            key = "/".join(safe_name(word) for word in name.split("/"))
            if key not in self._logged:
                history = self._client.get_metric_history(self._id, key) if self._found else []
                self._logged[key] = {metric.step: metric.value for metric in history}
            logged = self._logged[key].get(step)
            if logged is None:
                self._metrics.append(Metric(key, value, now, step))
            elif logged != value:
                raise InputError(
                    f"MLflow has {key} = {logged} after {step} samples where {self._folder} has {value}: the run was "
                    f"made again, elsewhere. Delete its run {self._id} there, and log it again."
                )

    def log_text(self, name: str, text: str, step: int) -> None:
        self._texts.append(f"{step}\t{name}\t{text}\n")

    def flush(self) -> None:
        self._log_batches("metrics", self._metrics)
        self._metrics = []

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        self._client.log_text(self._id, "".join(self._texts), "events.tsv")
        if summary is not None:
            self._client.set_terminated(self._id, "FINISHED")

    def _experiment(self) -> str:
        if (there := self._client.get_experiment_by_name(self.project)) is not None:
            return str(there.experiment_id)
        files = (self.out / "artifacts").as_uri() if self.uri is None else None
        return str(self._client.create_experiment(self.project, artifact_location=files))

    def _log_batches(self, kind: str, values: list[Any]) -> None:
        for first in range(0, len(values), MOST[kind]):
            self._client.log_batch(self._id, **{kind: values[first : first + MOST[kind]]})

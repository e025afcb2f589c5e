"""A callback that writes a run to MLflow, in a database of its own or where MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from iblurry.experiment.callbacks.logger import Logger, Row, environment_of, run_name, safe_name
from iblurry.experiment.folder import RunFolder

if TYPE_CHECKING:
    from iblurry.experiment.run_state import RunState

TAG = "iblurry.run"
MOST = {"metrics": 1000, "params": 100, "tags": 100}  # that MLflow takes at once
WAIT = 2.0  # seconds between two requests with metrics


class MLflow(Logger):
    """Writes metrics by samples seen; a run that is there already is deleted and written again.

    Parameters
    ----------
    out : str or None
        Where its database mlflow.db lies; None: MLFLOW_TRACKING_URI, otherwise logs/mlflow.
    project : str or None
        The MLflow experiment; None: MLFLOW_EXPERIMENT_NAME, otherwise iblurry.
    """

    extra: ClassVar[str] = "mlflow"
    libraries: ClassVar[tuple[str, ...]] = ("mlflow", "sqlalchemy")  # the small mlflow-skinny comes without the second
    out: str | None = None
    project: str | None = None

    def errors(self) -> tuple[type[Exception], ...]:
        from mlflow.exceptions import MlflowException

        return (MlflowException,)

    def open(self, run: RunState) -> None:
        from mlflow.entities import Param, RunTag
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # the import set it, and told of every table it makes
        project = self.project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "iblurry"
        uri, files = os.environ.get("MLFLOW_TRACKING_URI") if self.out is None else None, None
        if uri is None:
            out = Path(self.out or "logs/mlflow").absolute()
            out.mkdir(parents=True, exist_ok=True)
            uri, files = f"sqlite:///{out / 'mlflow.db'}", (out / "artifacts").as_uri()
        self._client, name = MlflowClient(tracking_uri=uri), safe_name(run_name(run))
        there = self._client.get_experiment_by_name(project)
        experiment = self._client.create_experiment(project, files) if there is None else there.experiment_id
        for old in self._client.search_runs([experiment], filter_string=f"tags.`{TAG}` = '{name}'"):
            self._client.delete_run(old.info.run_id)
        self._id = self._client.create_run(experiment, run_name=run_name(run), tags={TAG: name}).info.run_id
        self.place = f"{uri}, run {self._id} of {project}"
        self._metrics: list[Any] = []  # that wait for the next request
        self._texts: list[str] = []
        self._sent = time.monotonic()
        parameters = RunFolder(run.folder).hyperparameters()
        self._log("params", [Param(key, str(value)) for key, value in parameters.items()])
        self._log("tags", [RunTag(f"environment.{key}", str(value)) for key, value in environment_of(run).items()])

    def write(self, step: int, row: Row) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        for name, value in row.items():
            if isinstance(value, str):
                self._texts.append(f"{step}\t{name}\t{value}\n")
            else:
                key = "/".join(safe_name(word) for word in name.split("/"))
                self._metrics.append(Metric(key, value, now, step))
        if time.monotonic() - self._sent > WAIT:
            self._send()

    def close(self, *, finished: bool) -> None:
        self._send()
        self._client.log_text(self._id, "".join(self._texts), "events.tsv")
        if finished:
            self._client.set_terminated(self._id, "FINISHED")

    def _send(self) -> None:
        self._log("metrics", self._metrics)
        self._metrics, self._sent = [], time.monotonic()

    def _log(self, kind: str, values: list[Any]) -> None:
        for first in range(0, len(values), MOST[kind]):
            self._client.log_batch(self._id, **{kind: values[first : first + MOST[kind]]})

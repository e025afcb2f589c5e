"""Callbacks of the package, known by their names on the command line once this is imported.

`KnowledgeRatios` and `OnlineAccuracy` measure; `TensorBoard`, `WandB` and `MLflow` write a run to a tracking service,
as rows of numbers and texts.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from iblurry.errors import InputError
from iblurry.experiment.callback import Callback
from iblurry.experiment.folder import RunFolder, Value
from iblurry.experiment.journal import Evaluation, Logged, NewClass, Query, Record, Start, TaskEnd

if TYPE_CHECKING:
    from iblurry.experiment.run_state import RunState
    from iblurry.streams.iterator import StreamItem

__all__ = ["KnowledgeRatios", "MLflow", "OnlineAccuracy", "TensorBoard", "WandB"]

Row = dict[str, float | str]
FINAL = {"a_auc": "final/A_AUC", "a_avg": "final/A_avg", "a_last": "final/A_last", "f_last": "final/F_last"}
SUFFIX = ".iblurry"  # of TensorBoard's files that may be replaced
OFFLINE = ("offline", "dryrun")  # W&B's two words for it
TAG = "iblurry.run"  # of a run in MLflow
MOST = {"metrics": 1000, "params": 100, "tags": 100}  # that MLflow takes at once
WAIT = 2.0  # seconds between two requests with metrics to MLflow


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


class OnlineAccuracy(Callback):
    """Logs `online_acc`, the share of samples so far that were answered right before they were learnt, and
    `online_acc_window`, the same of the last window.

    The first sample of a class counts as wrong and is not asked about. Answers are counted as queries. A method that
    trains a network for its answers (gdumb) does so for every sample; one that answers only at the end is refused.

    Parameters
    ----------
    window : int
        Samples between two values, and of each windowed one.
    every : int
        Ask about the first of so many samples only.
    """

    logs: ClassVar[tuple[str, ...]] = ("online_acc", "online_acc_window")
    counts_answers: ClassVar[bool] = True
    ranges: ClassVar[dict[str, str]] = {"window": "[1, inf)", "every": "[1, inf)"}
    window: int = 1000
    every: int = 1
    # State: samples asked about and right answers; those are tensors on the device, so that nothing waits for it.
    asked, right = 0, 0
    window_asked, window_right = 0, 0

    def on_train_start(self, run: RunState) -> None:
        if run.learner.method.readout.only_at_end:
            raise InputError(
                f"{run.learner.method.name} predicts only at the end of the stream, not for OnlineAccuracy; leave "
                "the callback out."
            )

    def on_sample_start(self, run: RunState, sample: StreamItem) -> None:
        if run.position % self.every:
            return
        row = run.learner.context.network.row_of(sample.label)
        right: Any = 0 if row is None else (run.learner.logits(sample.image[None]).argmax(1) == row).sum()
        self.asked, self.right = self.asked + 1, self.right + right
        self.window_asked, self.window_right = self.window_asked + 1, self.window_right + right

    def on_sample(self, run: RunState, sample: StreamItem) -> None:
        if run.position % self.window == 0:
            run.log("online_acc", float(self.right) / self.asked)
            if self.window_asked:
                run.log("online_acc_window", float(self.window_right) / self.window_asked)
            self.window_asked, self.window_right = 0, 0

    def on_train_end(self, run: RunState) -> None:
        if run.position % self.window:
            run.log("online_acc", float(self.right) / self.asked)


class Logger(Callback):
    """Base class of callbacks that write a run to a tracking service; the run is the same with and without them.

    A subclass defines `open`, `write` and `close`. A row, which is what was measured at one number of samples seen, is
    written when it is complete: when the next one begins, or at the end of the run. When a run continues after an
    interruption, it is written from its beginning.
    """

    logs: ClassVar[tuple[str, ...]] = ()
    is_stored: ClassVar[bool] = False
    extra: ClassVar[str]  # of the package, which installs the library
    libraries: ClassVar[tuple[str, ...]]  # that must be there
    place = ""  # where the run can be looked at, once it is open

    @abstractmethod
    def open(self, run: RunState) -> None:
        """Begin a run, or find the one that was logged before; hyper-parameters and versions are written."""

    @abstractmethod
    def write(self, step: int, row: Row) -> None:
        """Write a complete row, of so many samples seen."""

    @abstractmethod
    def close(self, *, finished: bool) -> None:
        """End the run, which can be logged again."""

    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions by which the library refuses."""
        return ()

    def on_train_start(self, run: RunState) -> None:
        for library in self.libraries:
            found = find_spec(library)
            if found is None or found.origin is None:  # no origin: a folder of that name in the working folder
                needs = f"{type(self).__name__} needs {library}, which is not installed"
                raise InputError(f"{needs}; pip install 'iblurry[{self.extra}]'.")
        files = RunFolder(run.folder)
        self._name, self._parameters = run.folder.resolve().name, files.hyperparameters()
        self._environment = files.environment() or {}  # versions, machine, device and threads
        self._classes: list[str] = []  # met so far
        self._taken = 0  # records of the journal
        self._row: tuple[int, Row] = (0, {})
        with self._refusals(run):
            self.open(run)
        self._follow(run)

    def on_new_class(self, run: RunState, label: str) -> None:
        self._follow(run)

    def on_query(self, run: RunState, answer: Query) -> None:
        self._follow(run)

    def on_task_end(self, run: RunState, answer: TaskEnd | None) -> None:
        self._follow(run)

    def on_train_end(self, run: RunState) -> None:
        self._follow(run)
        numbers = {name: getattr(run.metrics, field) for field, name in FINAL.items()}
        row: Row = {name: value for name, value in numbers.items() if value is not None}
        row |= {"final/seconds": run.seconds, "final/samples_per_second": run.position / run.seconds}
        if run.stop_reason is not None:
            row["stopped"] = run.stop_reason
        with self._refusals(run):
            self._add(run.position, row)
            self.write(*self._row)
            self.close(finished=True)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def _follow(self, run: RunState) -> None:
        """Take in what the journal has got since the last call."""
        records = run.records[self._taken :]
        self._taken += len(records)
        with self._refusals(run):
            for record in records:
                if not isinstance(record, Start) and (row := self._row_of(record)):
                    self._add(record.at, row)

    def _add(self, step: int, row: Row) -> None:
        last, values = self._row
        if step > last and values:
            self.write(last, values)
            values = {}
        self._row = step, values | row

    def _row_of(self, record: Record) -> Row:
        if isinstance(record, NewClass):
            self._classes.append(record.label)
            return {"classes": float(len(self._classes)), "new_class": record.label}
        if isinstance(record, Logged):
            return {f"own/{record.name}": record.value}
        if not isinstance(record, Evaluation):
            return {}
        row = {"accuracy": record.accuracy, "learning_rate": record.rate, "updates": float(record.updates)}
        for label, correct, total in zip(self._classes, record.correct, record.total, strict=True):
            if total:
                row[f"class_accuracy/{label}"] = correct / total
        prefix = "task_end/" if isinstance(record, TaskEnd) else ""  # a query often comes at the same step
        return {prefix + name: value for name, value in row.items()}

    @contextmanager
    def _refusals(self, run: RunState) -> Iterator[None]:
        try:
            yield
        except self.errors() as error:
            name, reason = type(self).__name__, str(error).rstrip(".")
            raise InputError(f"{name} could not log {run.folder}: {reason}. The run is kept; log it again.") from error


def safe_name(name: str) -> str:
    """The name with letters, digits, - and _ alone; a checksum tells apart names that would become the same.

    >>> safe_name("clib-digits-1"), safe_name("cat/dog")
    ('clib-digits-1', 'cat-dog-6ef44cf1')
    """
    if re.fullmatch("[A-Za-z0-9_-]{1,120}", name):
        return name
    return re.sub("[^A-Za-z0-9_-]", "-", name[:100]) + f"-{zlib.crc32(name.encode()):08x}"


class TensorBoard(Logger):
    """Writes events to `out`/run; what it wrote there before is replaced, other files stay.

    Parameters
    ----------
    out : str
        The folder that `tensorboard --logdir` is given.
    """

    extra: ClassVar[str] = "tensorboard"
    libraries: ClassVar[tuple[str, ...]] = ("tensorboard",)
    out: str = "logs/tensorboard"

    def open(self, run: RunState) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.place = str(Path(self.out) / self._name)
        for old in Path(self.place).glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        self._file = EventFileWriter(self.place, max_queue_size=1000, flush_secs=10, filename_suffix=SUFFIX)
        self._add_event(hparams_pb(self._parameters, trial_id=self._name), 0)
        self._add_event(text_pb("parameters", _table(self._parameters)), 0)
        self._add_event(text_pb("environment", _table(self._environment)), 0)

    def write(self, step: int, row: Row) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.summary_v2 import text_pb

        for name, value in row.items():
            if isinstance(value, str):
                self._add_event(text_pb(name, value), step)
        numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._add_event(Summary(value=values), step)

    def close(self, *, finished: bool) -> None:
        self._file.close()

    def _add_event(self, summary: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._file.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def _table(values: dict[str, Value]) -> str:
    rows = [f"| {name} | {value} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])


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

        known, out = safe_name(self._name), Path(self.out)
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
            name=self._name,
            dir=out,
            mode=mode,
            resume=None if mode in OFFLINE else "allow",
            reinit="create_new",  # a run that the caller has open stays open
            config={**self._parameters, "environment": self._environment},
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
        self._client, name = MlflowClient(tracking_uri=uri), safe_name(self._name)
        there = self._client.get_experiment_by_name(project)
        experiment = self._client.create_experiment(project, files) if there is None else there.experiment_id
        for old in self._client.search_runs([experiment], filter_string=f"tags.`{TAG}` = '{name}'"):
            self._client.delete_run(old.info.run_id)
        self._id = self._client.create_run(experiment, run_name=self._name, tags={TAG: name}).info.run_id
        self.place = f"{uri}, run {self._id} of {project}"
        self._metrics: list[Any] = []  # that wait for the next request
        self._texts: list[str] = []
        self._sent = time.monotonic()
        self._log("params", [Param(key, str(value)) for key, value in self._parameters.items()])
        self._log("tags", [RunTag(f"environment.{key}", str(value)) for key, value in self._environment.items()])

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

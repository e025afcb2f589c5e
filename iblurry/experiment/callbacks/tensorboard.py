"""A callback that writes a run to TensorBoard, with the tensorboard package itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from iblurry.experiment.callbacks.logger import Logger, Row, environment_of, run_name
from iblurry.experiment.fields import Value
from iblurry.experiment.folder import RunFolder

if TYPE_CHECKING:
    from iblurry.experiment.run_state import RunState

SUFFIX = ".iblurry"  # of files that may be replaced


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

        name, parameters = run_name(run), RunFolder(run.folder).hyperparameters()
        self.place = str(Path(self.out) / name)
        for old in Path(self.place).glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        self._file = EventFileWriter(self.place, max_queue_size=1000, flush_secs=10, filename_suffix=SUFFIX)
        self._add_event(hparams_pb(parameters, trial_id=name), 0)
        self._add_event(text_pb("parameters", _table(parameters)), 0)
        self._add_event(text_pb("environment", _table(environment_of(run))), 0)

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

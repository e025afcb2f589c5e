"""TensorBoard: one folder of events per run, written by the tensorboard package itself, without torch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iblurry.studies.fields import Value
from iblurry.studies.loggers.logger import RunDescription

SUFFIX = ".iblurry"  # of files that may be replaced


class TensorBoard:
    """Events in <out>/<run>; what this writer wrote there before is replaced, anything else is left alone."""

    errors: tuple[type[Exception], ...] = ()  # the disk's own are said already

    def __init__(self, out: Path | None, project: str | None = None) -> None:
        self.out = out or Path("logs/tensorboard")
        self._file: Any = None

    def start(self, run: RunDescription) -> str:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._close()
        place = self.out / run.name
        for old in place.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        self._file = EventFileWriter(str(place), max_queue_size=1000, filename_suffix=SUFFIX)
        self._add(hparams_pb(run.parameters, trial_id=run.name), 0)
        self.log_text("parameters", _table(run.parameters), 0)
        self.log_text("environment", _table(run.environment), 0)
        return str(place)

    def log_scalars(self, values: Mapping[str, float], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        made = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(Summary(value=made), step)

    def log_text(self, name: str, text: str, step: int) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(text_pb(name, text), step)

    def flush(self) -> None:
        self._file.flush()

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        self._close()

    def _add(self, summary: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._file.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _table(values: Mapping[str, Value]) -> str:
    """As TensorBoard draws one, from Markdown."""
    rows = [f"| {name} | {value} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])

"""TensorBoard: one folder of events per run, written by the tensorboard package itself, without torch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from iblurry.analysis.fields import Value
from iblurry.studies.loggers.history import RunHistory

SUFFIX = ".iblurry"  # of files that may be replaced


class TensorBoard:
    """Events in <out>/<run>; what this logger wrote there before is replaced, anything else is left alone."""

    errors: tuple[type[Exception], ...] = ()  # the disk's own are said already

    def __init__(self, out: Path | None) -> None:
        self.out = out or Path("logs/tensorboard")

    def write(self, run: RunHistory) -> str:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        place = self.out / run.name
        for old in place.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        with closing(EventFileWriter(str(place), max_queue_size=1000, filename_suffix=SUFFIX)) as file:

            def add(summary: Any, step: int) -> None:
                file.add_event(Event(wall_time=time.time(), step=step, summary=summary))

            add(hparams_pb(run.parameters, trial_id=run.name), 0)
            add(text_pb("parameters", _table(run.parameters)), 0)
            add(text_pb("environment", _table(run.environment)), 0)
            for step, values in run.events:
                scalars = []
                for name, value in values.items():
                    if isinstance(value, str):
                        add(text_pb(name, value), step)
                    else:
                        scalars.append(Summary.Value(tag=name, simple_value=value))
                add(Summary(value=scalars), step)
        return str(place)


def _table(values: Mapping[str, Value]) -> str:
    """As TensorBoard draws one, from Markdown."""
    rows = [f"| {name} | {value} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])

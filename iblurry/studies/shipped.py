"""Results that travel with the package, and finished runs that differ from planned ones in their orders alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from iblurry.errors import IblurryError

if TYPE_CHECKING:  # the command line asks for the folder before it needs torch
    from iblurry.experiment.experiment import Experiment
    from iblurry.streams.stream import Stream


def shipped_results() -> Path:
    """The folder of collected results: in a wheel beside this file, in a checkout at its root."""
    packed = Path(__file__).parent / "results"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "results"


def find_other_orders(wanted: Sequence[Experiment], folders: Iterable[Path]) -> list[Path]:
    """The folders of finished runs that are these experiments but for their streams, such as the paper's own orders.

    A stream with other numbers of tasks, N or M is another setup, not another order.

    Parameters
    ----------
    wanted : sequence of Experiment
        What was planned and is not finished.
    folders : iterable of Path
        Folders of runs.
    """
    from iblurry.experiment.folder import RunFolder
    from iblurry.streams.stream import DRAWN

    def is_same_setup(one: Stream, other: Stream) -> bool:
        return all(
            getattr(one, name) == getattr(other, name) for name in DRAWN if hasattr(one, name) and hasattr(other, name)
        )

    digests, streams = {one.digest for one in wanted}, list(dict.fromkeys(one.stream for one in wanted))
    found = []
    for path in sorted({path for folder in folders for path in folder.glob("*/experiment.json")}):
        if not path.with_name("summary.json").exists():
            continue
        with suppress(IblurryError):  # parts of somebody's own that were not imported: none of these experiments
            experiment = RunFolder(path.parent).experiment()
            alike = [stream for stream in streams if is_same_setup(experiment.stream, stream)]
            if any(replace(experiment, stream=stream).digest in digests for stream in alike):
                found.append(path.parent)
    return found

"""What the runs of a row computed and kept, mean over seeds, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iblurry.compute import PURPOSES
from iblurry.cost import HOLDINGS
from iblurry.experiment.journal import Spent
from iblurry.experiment.result import Result
from iblurry.studies.formats.layout import figures
from iblurry.studies.report.runs import Block, Row
from iblurry.studies.run_table import spread
from iblurry.studies.table import MEASURES

Json = dict[str, Any]


def spent(block: Block) -> Json:
    """Row by row, of finished runs; rows with a run that was written before anything was counted are named apart."""
    found = {number: _counted(row) for number, row in enumerate(block.rows) if row.finished}
    return {
        "lines": [
            {"row": number, "n": len(records)} | _means(records, block.rows[number])
            for number, records in found.items()
            if records
        ],
        "uncounted": [number for number, records in found.items() if not records],
    }


def _counted(row: Row) -> list[Spent]:
    """The last account of each run; nothing unless every one has it."""
    accounts = [[one for one in run.result.records if isinstance(one, Spent)] for run in row.finished]
    return [one[-1] for one in accounts] if all(accounts) else []


def _means(records: Sequence[Spent], row: Row) -> Json:
    flops = _table([one.flops for one in records], PURPOSES)
    return {
        "updates": _mean([one.updates for one in records]),
        "forward": _table([one.forward for one in records], PURPOSES),
        "backward": _table([one.backward for one in records], PURPOSES),
        "flops": flops,
        "training": sum(flops.values()) - flops["queries"],
        "per_tflop": _per_compute([run.result for run in row.finished]),
        "bytes": _table([one.bytes for one in records], HOLDINGS),
    }


def _table(tables: Sequence[Mapping[str, int]], names: Sequence[str]) -> dict[str, float]:
    """Older journals lack what was not counted apart yet: that is 0."""
    return {name: _mean([table.get(name, 0) for table in tables]) for name in names}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _per_compute(results: Sequence[Result]) -> Json:
    measure = MEASURES["per_compute"]
    number = spread([measure.of(one) for one in results])
    if number is None:
        return {"text": "–", "mean": None}
    return {"text": " ± ".join(figures(measure, number)), "mean": number.mean}

"""What the runs of a report computed and kept: means over seeds, and the sections that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from iblurry.analysis.metrics import (
    NOTHING,
    TABLE_METRICS,
    MeanStd,
    count_decimals,
    format_mean_std,
    format_number,
    mean_std,
)
from iblurry.experiment.journal import Spent
from iblurry.studies.report.data import Report, ReportBlock, ReportRow
from iblurry.studies.report.html import Html, cell, definitions, join, metric, numeric, table, tabs, tag
from iblurry.studies.report.sections import row_head

COUNTED = "counted"  # where the page explains it
PURPOSE_TEXTS = {  # in the order of PURPOSES: heading, and what is counted under it
    "training": ("batches", "batches to learn from, forwards and backwards; those of refits too (RM, GDumb, joint)."),
    "losses": ("memory's loss", "the loss of every row of the memory, if a method needs it (CLIB)."),
    "distillation": (
        "distillation",
        "a teacher's outputs for the batch (BiC). Its backward pass is counted under batches. Runs of "
        "an older version count it under other parts.",
    ),
    "parts": (
        "other parts",
        "candidates and a virtual step (MIR), reference gradients (A-GEM, GSS), a validation set at the end of a task "
        "(BiC).",
    ),
    "features": (
        "features",
        "samples whose features were computed by a frozen body; the other passes are of the head only.",
    ),
    "queries": ("queries", "test images, and what a method computes before it can predict them."),
}
HOLDING_TEXTS = {
    "memory": ("memory", "every row: its image, its label and what the method stores with it."),
    "stream": ("stream", "samples that wait until they are trained on."),
    "aside": ("set aside", "samples that a method holds outside the memory (BiC's validation set)."),
    "parts": ("other models", "what else a method keeps: a teacher (BiC), an anchor and Fisher values (EWC++)."),
    "network": ("network", "weights and statistics; twice if a second network answers."),
    "optimizer": ("optimizer", "two numbers per weight for Adam, one for SGD with momentum."),
}
UNITS = ((1e15, "P", "10¹⁵"), (1e12, "T", "10¹²"), (1e9, "G", "10⁹"), (1e6, "M", "10⁶"), (1e3, "k", "10³"))
DECIMALS = 3  # behind the point at most

Counts = Mapping[str, float]  # by the names of PURPOSE_TEXTS or HOLDING_TEXTS


@dataclass(frozen=True)
class MeanCompute:
    """What the runs of a row computed and kept, mean over seeds: as in the journal's Spent, and accuracy per TFLOP."""

    row: str
    n: int
    updates: float
    forward: Counts
    backward: Counts
    flops: Counts
    bytes: Counts
    per_tflop: MeanStd | None

    @property
    def training(self) -> float:
        """Operations of everything but queries."""
        return sum(self.flops.values()) - self.flops["queries"]


def mean_compute(row: ReportRow) -> MeanCompute | None:
    """Of finished runs, from the last account of each; None unless every one has it."""
    accounts = [[record for record in run.records if isinstance(record, Spent)] for run in row.finished]
    if not accounts or not all(accounts):
        return None
    records = [found[-1] for found in accounts]

    def means(field: str, names: Iterable[str]) -> Counts:
        """Older journals lack what was not counted apart yet: that is 0."""
        return {name: sum(getattr(record, field).get(name, 0) for record in records) / len(records) for name in names}

    return MeanCompute(
        row.name,
        len(records),
        updates=sum(record.updates for record in records) / len(records),
        forward=means("forward", PURPOSE_TEXTS),
        backward=means("backward", PURPOSE_TEXTS),
        flops=means("flops", PURPOSE_TEXTS),
        bytes=means("bytes", HOLDING_TEXTS),
        per_tflop=mean_std([TABLE_METRICS["per_compute"].value(run) for run in row.finished]),
    )


def compute_section(block: ReportBlock) -> Html | None:
    """Operations, images and bytes, row by row; None where nothing was counted."""
    found = {row.name: mean_compute(row) for row in block.rows if row.finished}
    rows = [row for row in found.values() if row]
    if not rows:
        return None
    missing = ", ".join(name for name, row in found.items() if not row)
    about = (
        "All images that pass through a network in a whole run, by purpose, and all bytes that a method keeps "
        "between samples; means over seeds. "
    )
    contents = {"Operations": _operations(block, rows), "Images": _images(block, rows), "Bytes": _bytes(block, rows)}
    return join(
        [
            tag("p", about, tag("a", "What is counted", href=f"#{COUNTED}")),
            tabs("Compute and memory", contents),
            tag("p", f"Runs of an older version, which counted nothing: {missing}.", class_="note")
            if missing
            else None,
        ]
    )


def counting_section(report: Report) -> Html | None:
    """The words behind the tables; None where there are none."""
    if not any(mean_compute(row) for block in report.blocks for row in block.rows):
        return None
    about = (
        "The forward pass of an image counts the multiplications and additions of convolutions and linear layers, "
        "each as one operation; a backward pass counts twice that. Batch norm, augmentation, the optimizer's "
        "arithmetic and BiC's two numbers per task are not counted, nor are empty rows while the memory fills. "
        f"The journal of a run calls the purposes {', '.join(PURPOSE_TEXTS)}, in this order."
    )
    more = {
        "training in all": "everything except queries; studies of equal compute make this equal.",
        "A_AUC per TFLOP": "A_AUC in percent, divided by the training operations in units of 10¹².",
    }
    images = dict(PURPOSE_TEXTS.values()) | more
    return tag(
        "section",
        tag("h2", "What is counted"),
        tag("p", about),
        tag("h3", "Operations and images, by purpose"),
        definitions({metric(name): text for name, text in images.items()}, "terms wide"),
        tag("h3", "Bytes, by content"),
        definitions(dict(HOLDING_TEXTS.values()), "terms wide"),
        class_="block",
        id=COUNTED,
    )


def _operations(block: ReportBlock, rows: Sequence[MeanCompute]) -> Html:
    size, prefix, words = _unit([count for row in rows for count in (row.training, row.flops["queries"])])

    def cells(row: MeanCompute) -> list[Html]:
        number = row.per_tflop
        text = " ± ".join(format_mean_std(TABLE_METRICS["per_compute"], number.mean, number.std)) if number else NOTHING
        counts = [row.training, *(row.flops[name] for name in PURPOSE_TEXTS)]
        return [cell(text, number.mean if number else None, class_="n"), *(_amount(count, size) for count in counts)]

    heads = [metric("A_AUC per TFLOP"), "training in all", *dict(PURPOSE_TEXTS.values())]
    caption = f"Operations of a whole run in {prefix}FLOP, {words} floating-point operations; 1 TFLOP is 10¹²"
    return _table(block, rows, heads, caption, cells)


def _images(block: ReportBlock, rows: Sequence[MeanCompute]) -> Html:
    def both_ways(forward: float, backward: float) -> Html:
        return cell(f"{forward:,.0f} / {backward:,.0f}" if forward or backward else "0", forward, class_="n")

    def cells(row: MeanCompute) -> list[Html]:
        counts = [both_ways(row.forward[name], row.backward[name]) for name in PURPOSE_TEXTS]
        return [numeric(row.updates, ",.0f"), *counts]

    caption = "Images forward / backward through a network in a whole run, and the optimizer's updates"
    return _table(block, rows, ["updates", *dict(PURPOSE_TEXTS.values())], caption, cells)


def _bytes(block: ReportBlock, rows: Sequence[MeanCompute]) -> Html:
    size, prefix, words = _unit([sum(row.bytes.values()) for row in rows])

    def cells(row: MeanCompute) -> list[Html]:
        return [
            _amount(count, size) for count in (sum(row.bytes.values()), *(row.bytes[name] for name in HOLDING_TEXTS))
        ]

    caption = f"Kept between samples, in {prefix}B, {words} bytes"
    return _table(block, rows, ["in all", *dict(HOLDING_TEXTS.values())], caption, cells)


def _table(
    block: ReportBlock,
    rows: Sequence[MeanCompute],
    heads: Sequence[str],
    caption: str,
    cells: Callable[[MeanCompute], list[Html]],
) -> Html:
    lines = [[row_head(block, row.row), numeric(row.n), *cells(row)] for row in rows]
    return table(["method", "n", *heads], lines, caption=caption, sides="l" + "r" * (1 + len(heads)))


def _unit(values: Sequence[float]) -> tuple[float, str, str]:
    """The largest unit of which there is one at least: its size, prefix and size in words."""
    return next((unit for unit in UNITS if unit[0] <= max(values)), UNITS[-1])


def _amount(value: float, size: float) -> Html:
    """A cell in units of `size`: three significant digits, DECIMALS behind the point at most."""
    amount = value / size
    if 0 < amount < 10**-DECIMALS:
        text = f"<{10**-DECIMALS:g}"
    else:
        text = format_number(amount, min(DECIMALS, count_decimals(amount))) if amount else "0"
    return cell(text, value, class_="n")

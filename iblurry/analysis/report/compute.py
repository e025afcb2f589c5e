"""What the runs of a report computed and kept: tables of means over seeds, and the words behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from iblurry.analysis.report.html import Html, cell, definitions, join, metric, numeric, table, tag
from iblurry.analysis.report.report import Report, ReportBlock, ReportRow
from iblurry.analysis.results import training_flops
from iblurry.experiment.journal import Spent

COUNTED = "counted"  # where the page explains it
PURPOSES = {  # of the journal's records: heading, and what is counted under it
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
HOLDINGS = {
    "memory": ("memory", "every row: its image, its label and what the method stores with it."),
    "stream": ("stream", "samples that wait until they are trained on."),
    "aside": ("set aside", "samples that a method holds outside the memory (BiC's validation set)."),
    "parts": ("other models", "what else a method keeps: a teacher (BiC), an anchor and Fisher values (EWC++)."),
    "network": ("network", "weights and statistics; twice if a second network answers."),
    "optimizer": ("optimizer", "two numbers per weight for Adam, one for SGD with momentum."),
}
COUNTS = {"forward": PURPOSES, "backward": PURPOSES, "flops": PURPOSES, "bytes": HOLDINGS}  # fields of Spent


@dataclass(frozen=True)
class MeanCompute:
    """What the finished runs of a row computed and kept, mean over seeds: `counts` by field of Spent and by name."""

    row: str
    updates: float
    counts: dict[str, dict[str, float]]
    per_tflop: float | None  # A_AUC (percent) for 10¹² operations of training

    @property
    def training(self) -> float:
        """Operations of everything but queries."""
        return sum(self.counts["flops"].values()) - self.counts["flops"]["queries"]


def mean_compute(row: ReportRow) -> MeanCompute | None:
    """Average the last account of each finished run; None unless every one has it."""
    accounts = [[record for record in run.records if isinstance(record, Spent)] for run in row.finished]
    if not accounts or not all(accounts):
        return None
    last = [found[-1] for found in accounts]
    counts = {  # older journals lack what was not counted apart yet: that is 0
        field: {name: float(np.mean([getattr(one, field).get(name, 0) for one in last])) for name in names}
        for field, names in COUNTS.items()
    }
    spent = [(run.metrics.a_auc, training_flops(run)) for run in row.finished]
    per_tflop = [100e12 * area / flops for area, flops in spent if area is not None and flops]
    mean = float(np.mean(per_tflop)) if len(per_tflop) == len(spent) else None
    return MeanCompute(row.name, float(np.mean([one.updates for one in last])), counts, mean)


def compute_section(block: ReportBlock) -> Html | None:
    """Show operations, images and bytes, row by row; None where nothing was counted."""
    found = {row.name: mean_compute(row) for row in block.rows if row.finished}
    rows = [row for row in found.values() if row]
    if not rows:
        return None
    missing = ", ".join(name for name, row in found.items() if not row)
    purposes, holdings = ([heading for heading, _ in texts.values()] for texts in (PURPOSES, HOLDINGS))

    def show(caption: str, heads: list[str], cells: Callable[[MeanCompute], list[Html]]) -> Html:
        lines = [[block.row_head(row.row), *cells(row)] for row in rows]
        return table(["method", *heads], lines, caption=caption, sides="l" + "r" * len(heads))

    def both_ways(row: MeanCompute) -> list[Html]:
        pairs = [(row.counts["forward"][name], row.counts["backward"][name]) for name in PURPOSES]
        return [cell(f"{out:,.0f} / {back:,.0f}" if out or back else "0", out, class_="n") for out, back in pairs]

    about = (
        "All images that pass through a network in a whole run, by purpose, and all bytes that a method keeps "
        "between samples; means over seeds. "
    )
    return join(
        [
            tag("p", about, tag("a", "What is counted", href=f"#{COUNTED}")),
            show(
                "Operations of a whole run in TFLOP, 10¹² floating-point operations",
                [metric("A_AUC per TFLOP"), "training in all", *purposes],
                lambda row: [
                    numeric(None) if row.per_tflop is None else _amount(row.per_tflop, 1),
                    *(_amount(count, 1e12) for count in (row.training, *row.counts["flops"].values())),
                ],
            ),
            show(
                "Images forward / backward through a network in a whole run, and the optimizer's updates",
                ["updates", *purposes],
                lambda row: [numeric(row.updates, ",.0f"), *both_ways(row)],
            ),
            show(
                "Kept between samples, in MB, 10⁶ bytes",
                ["in all", *holdings],
                lambda row: [
                    _amount(count, 1e6) for count in (sum(row.counts["bytes"].values()), *row.counts["bytes"].values())
                ],
            ),
            tag("p", f"Runs of an older version, which counted nothing: {missing}.", class_="note")
            if missing
            else None,
        ]
    )


def counting_section(report: Report) -> Html | None:
    """Explain the words in the tables; None where there are none."""
    if not any(mean_compute(row) for block in report.blocks for row in block.rows):
        return None
    about = (
        "The forward pass of an image counts the multiplications and additions of convolutions and linear layers, "
        "each as one operation; a backward pass counts twice that. Batch norm, augmentation, the optimizer's "
        "arithmetic and BiC's two numbers per task are not counted, nor are empty rows while the memory fills. "
        f"The journal of a run calls the purposes {', '.join(PURPOSES)}, in this order."
    )
    images = dict(PURPOSES.values()) | {
        "training in all": "everything except queries; studies of equal compute make this equal.",
        "A_AUC per TFLOP": "A_AUC in percent, divided by the training operations in units of 10¹².",
    }
    return tag(
        "section",
        tag("h2", "What is counted"),
        tag("p", about),
        tag("h3", "Operations and images, by purpose"),
        definitions({metric(name): text for name, text in images.items()}, "terms wide"),
        tag("h3", "Bytes, by content"),
        definitions(dict(HOLDINGS.values()), "terms wide"),
        class_="block",
        id=COUNTED,
    )


def _amount(value: float, size: float) -> Html:
    """A cell in units of `size`, with three significant digits."""
    return cell(f"{float(f'{value / size:.3g}'):,g}", value, class_="n")

"""What the runs of a report computed and kept: means over seeds as JSON, and the sections that show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iblurry.compute import PURPOSES
from iblurry.cost import HOLDINGS
from iblurry.experiment.journal import Spent
from iblurry.experiment.result import Result
from iblurry.studies.report.html import Html, cell, join, table, tag
from iblurry.studies.report.runs import ReportBlock, ReportRow
from iblurry.studies.report.sections import metric, named
from iblurry.studies.tables.layout import NOTHING, format_mean_std
from iblurry.studies.tables.table import TABLE_METRICS, count_decimals, format_number, mean_std

COUNTED = "counted"  # where the page explains it
PURPOSE_TEXTS = {  # in the order of PURPOSES: heading, and what is counted under it
    "training": ("batches", "batches to learn from, forwards and backwards; those of refits too (RM, GDumb, joint)."),
    "losses": ("memory's loss", "the loss of every row of the memory, where a method asks for it (CLIB)."),
    "distillation": (
        "distillation",
        "a teacher's answers to the batch (BiC). What its loss sends back is in the batch's own backward pass. Runs of "
        "an older version have it under other parts.",
    ),
    "parts": (
        "other parts",
        "candidates and a virtual step (MIR), reference gradients (A-GEM, GSS), a validation set at the end of a task "
        "(BiC).",
    ),
    "queries": ("queries", "test images asked, and what a method answers for itself before it answers them."),
}
HOLDING_TEXTS = {
    "memory": ("memory", "every row: its image, label and what the method notes beside it."),
    "stream": ("stream", "samples gathered until they are trained on."),
    "aside": ("set aside", "samples that a method holds outside the memory (BiC's validation set)."),
    "parts": ("other models", "what else a method keeps: a teacher (BiC), an anchor and Fisher values (EWC++)."),
    "network": ("network", "weights and statistics; twice where a fresh network answers beside one that learns."),
    "optimizer": ("optimizer", "two numbers per weight for Adam, one for SGD with momentum."),
}
BEHIND = 3  # digits behind the point at most

Json = dict[str, Any]


def mean_compute(block: ReportBlock) -> Json:
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


def _counted(row: ReportRow) -> list[Spent]:
    """The last account of each run; nothing unless every one has it."""
    accounts = [[one for one in run.result.records if isinstance(one, Spent)] for run in row.finished]
    return [one[-1] for one in accounts] if all(accounts) else []


def _means(records: Sequence[Spent], row: ReportRow) -> Json:
    flops = _mean_table([one.flops for one in records], PURPOSES)
    return {
        "updates": _mean([one.updates for one in records]),
        "forward": _mean_table([one.forward for one in records], PURPOSES),
        "backward": _mean_table([one.backward for one in records], PURPOSES),
        "flops": flops,
        "training": sum(flops.values()) - flops["queries"],
        "per_tflop": _accuracy_per_tflop([run.result for run in row.finished]),
        "bytes": _mean_table([one.bytes for one in records], HOLDINGS),
    }


def _mean_table(tables: Sequence[Mapping[str, int]], names: Sequence[str]) -> dict[str, float]:
    """Older journals lack what was not counted apart yet: that is 0."""
    return {name: _mean([table.get(name, 0) for table in tables]) for name in names}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _accuracy_per_tflop(results: Sequence[Result]) -> Json:
    per_tflop = TABLE_METRICS["per_compute"]
    number = mean_std([per_tflop.value(result) for result in results])
    if number is None:
        return {"text": NOTHING, "mean": None}
    return {"text": " ± ".join(format_mean_std(per_tflop, number)), "mean": number.mean}


def compute_section(block: Json) -> Html | None:
    """Operations, images and bytes, row by row; None where nothing was counted."""
    lines = block["spent"]["lines"]
    if not lines:
        return None
    tabs = {"Operations": _operations(block, lines), "Images": _images(block, lines), "Bytes": _bytes(block, lines)}
    missing = ", ".join(block["names"][number] for number in block["spent"]["uncounted"])
    return join(
        [
            tag(
                "p",
                "All images that pass through a network in a whole run are counted, by what they are for, and so are "
                "the bytes a method keeps from sample to sample; means over seeds. ",
                tag("a", "What is counted", href=f"#{COUNTED}"),
            ),
            tag(
                "div",
                *(tag("div", tag("h4", name), shown, class_="tab", data_name=name) for name, shown in tabs.items()),
                class_="tabs",
                data_label="What was spent",
            ),
            tag("p", f"Written before anything was counted: {missing}.", class_="note") if missing else None,
        ]
    )


def counting_section(data: Json) -> Html | None:
    """The words behind the tables; None where there are none."""
    if not any(block["spent"]["lines"] for block in data["blocks"]):
        return None
    about = (
        "An image's forward pass takes the multiplications and additions of convolutions and linear layers, a "
        "multiplication with its addition being 2 operations, counted on the network itself; a backward pass takes "
        "twice that. Batch norm, augmentation, the optimizer's own arithmetic and BiC's two numbers per task are left "
        "out. Only images really taken count: while the memory fills, its empty rows do not. "
        f"In a run's journal the purposes are called {', '.join(PURPOSE_TEXTS)}, in this order."
    )
    more = {
        "training in all": "everything but queries; equal compute makes this equal.",
        "A_AUC per TFLOP": "accuracy per compute: percent by a million million operations of training in all.",
    }
    images = dict(PURPOSE_TEXTS.values()) | more
    return tag(
        "section",
        tag("h2", "What is counted"),
        tag("p", about),
        tag("h3", "Operations and images, by what they are for"),
        _terms(images),
        tag("h3", "Bytes, by what they hold"),
        _terms(dict(HOLDING_TEXTS.values())),
        class_="block",
        id=COUNTED,
    )


def _operations(block: Json, lines: Sequence[Json]) -> Html:
    unit = _unit([one["training"] for one in lines] + [one["flops"]["queries"] for one in lines])
    return _table(
        *(block, lines, [metric("A_AUC per TFLOP"), "training in all", *_headings(PURPOSE_TEXTS)]),
        f"Operations of a whole run in {unit.prefix}FLOP, {unit.words} floating-point operations; 1 TFLOP is 10¹²",
        cells=lambda one: [
            cell(one["per_tflop"]["text"], one["per_tflop"]["mean"], class_="n"),
            *(unit.cell(value) for value in (one["training"], *(one["flops"][name] for name in PURPOSE_TEXTS))),
        ],
    )


def _images(block: Json, lines: Sequence[Json]) -> Html:
    return _table(
        *(block, lines, ["updates", *_headings(PURPOSE_TEXTS)]),
        "Images forwards / backwards through a network in a whole run, and the optimizer's updates",
        cells=lambda one: [
            cell(_whole(one["updates"]), one["updates"], class_="n"),
            *(_both_ways(one["forward"][name], one["backward"][name]) for name in PURPOSE_TEXTS),
        ],
    )


def _bytes(block: Json, lines: Sequence[Json]) -> Html:
    unit = _unit([sum(one["bytes"].values()) for one in lines])
    return _table(
        *(block, lines, ["in all", *_headings(HOLDING_TEXTS)]),
        f"Held from sample to sample in {unit.prefix}B, {unit.words} bytes",
        cells=lambda one: [
            *(
                unit.cell(value)
                for value in (sum(one["bytes"].values()), *(one["bytes"][name] for name in HOLDING_TEXTS))
            ),
        ],
    )


def _table(
    block: Json, lines: Sequence[Json], heads: Sequence[str], caption: str, cells: Callable[[Json], list[Html]]
) -> Html:
    shown = [
        [
            tag("th", named(block, one["row"]), scope="row", data_value=one["row"]),
            cell(one["n"], one["n"], class_="n"),
            *cells(one),
        ]
        for one in lines
    ]
    return table(["method", "n", *heads], shown, caption=caption, sides="l" + "r" * (1 + len(heads)))


@dataclass(frozen=True)
class _Unit:
    """What the numbers of a table are counted in."""

    size: float
    prefix: str
    words: str

    def cell(self, value: float) -> Html:
        """Three digits that count, three behind the point at most."""
        amount = value / self.size
        if 0 < amount < 10**-BEHIND:
            text = f"<{10**-BEHIND:g}"
        else:
            text = format_number(amount, min(BEHIND, count_decimals(amount))) if amount else "0"
        return cell(text, value, class_="n")


def _unit(values: Sequence[float]) -> _Unit:
    """The largest of which there is one at least."""
    return next((unit for unit in UNITS if unit.size <= max(values)), UNITS[-1])


UNITS = (
    _Unit(1e15, "P", "10¹⁵"),
    _Unit(1e12, "T", "10¹²"),
    _Unit(1e9, "G", "10⁹"),
    _Unit(1e6, "M", "10⁶"),
    _Unit(1e3, "k", "10³"),
)


def _both_ways(forward: float, backward: float) -> Html:
    return cell(f"{_whole(forward)} / {_whole(backward)}" if forward or backward else "0", forward, class_="n")


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _headings(kinds: Mapping[str, tuple[str, str]]) -> list[str]:
    return [heading for heading, _ in kinds.values()]


def _terms(texts: dict[str, str]) -> Html:
    items = [tag("div", tag("dt", metric(name)), tag("dd", text)) for name, text in texts.items()]
    return tag("dl", *items, class_="terms wide")

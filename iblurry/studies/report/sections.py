"""The sections of the page: tables and texts of one configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from iblurry.studies.compare import NOT_RUN
from iblurry.studies.paper import PAPER_METRICS
from iblurry.studies.report.html import Html, cell, dots, join, table, tag
from iblurry.studies.tables.table import ACCURACY_METRICS

STYLES = 28  # ways to draw a row: 7 colours, 4 kinds of line
SHORT = {"iblurry": "iblurry", "python": "Python", "torch": "PyTorch", "numpy": "NumPy"}

Json = dict[str, Any]


def results(block: Json) -> Html:
    """Our numbers, row by row."""
    lines = [
        [
            tag("th", named(block, one["row"]), scope="row", data_value=one["row"]),
            cell(one["n"], one["n"], class_="n"),
            *(_mean(one[name]) for name in ACCURACY_METRICS),
        ]
        for one in block["table"]["lines"]
    ]
    heads = ["method", "n", *(metric(shown.heading) for shown in ACCURACY_METRICS.values())]
    waiting = [block["names"][number] for number in block["table"]["waiting"]]
    note = tag("p", f"No finished run yet: {', '.join(waiting)}.", class_="note") if waiting else None
    if not lines:
        return join([note])
    return join([_headline(block), table(heads, lines, caption=block["table"]["caption"], sides="lrrrrr"), note])


def beside_paper(block: Json) -> Html | None:
    """The paper's numbers and ours, one table per metric."""
    if not block["paper"]:
        return None
    tabs = [
        tag("div", tag("h4", metric(one["metric"])), _comparisons(block, one), class_="tab", data_name=one["metric"])
        for one in block["paper"]
    ]
    return tag("div", *tabs, class_="tabs", data_label="Metric")


def settings(block: Json) -> Html:
    """Every field: what differs between the rows first."""
    differ, common = block["settings"]["differ"], block["settings"]["common"]
    names = [named(block, number) for number in range(len(block["names"]))]
    parts: list[Html] = []
    if differ:
        lines = [[_path(path), *(cell(_folded(value)) for value in values)] for path, values in differ]
        parts.append(table(["field", *names], lines, caption="What differs between the rows"))
    same = table(["field", "value"], [[_path(path), cell(_folded(value))] for path, value in common], caption="In all")
    heading = "every field, the same in all rows" if differ else "every field"
    parts.append(tag("details", tag("summary", f"{len(common)} more: {heading}" if differ else heading), same))
    return join(parts)


def runs(block: Json) -> Html:
    """Each run: how far, how long, where."""
    same, differ = block["place"]["same"], block["place"]["differ"]
    facts = [tag("div", tag("dt", SHORT.get(name, name)), tag("dd", _folded(text))) for name, text in same.items()]
    heads = ["method", "seed", "state", "samples", "updates", "seconds", "samples/s", *differ, "folder", "order"]
    lines = [_run(block, one, differ) for one in block["runs"]]
    caption = f"{len(lines)} runs"
    return join([tag("dl", *facts, class_="facts"), table(heads, lines, caption=caption, sides="lrlrrrr")])


def commands(block: Json) -> Html:
    """How to run it again."""
    lines = [
        one["command"] or f"# {one['row']} was built in Python: experiment.json of its runs has every field"
        for one in block["commands"]
    ]
    return copied(lines)


def unfinished(block: Json) -> Html | None:
    """What is under way, and which seeds a row lacks that others have."""
    going = [one for one in block["runs"] if one["state"] != "finished"]
    items = [_progress(one) for one in going]
    for one in block["lacking"]:
        seeds = ", ".join(map(str, one["seeds"]))
        items.append(tag("li", tag("b", block["names"][one["row"]]), f" has no run with seed {seeds}, others have."))
    if not items:
        return None
    todo = [one["todo"] for one in block["commands"] if one["todo"]]
    note = tag("p", "What was begun goes on from where it stopped; what is finished is not run again:")
    return join([tag("ul", *items, class_="going"), join([note, copied(todo)]) if todo else None])


def by_class(block: Json) -> Html | None:
    """The numbers behind the last column of the maps."""
    found = block["final"]
    if not found["lines"]:
        return None
    lines = [
        [tag("th", label, scope="row"), *(cell("–" if v is None else f"{v:.1f}", v, class_="n") for v in values)]
        for label, *values in found["lines"]
    ]
    names = [named(block, block["names"].index(name)) for name in found["rows"]]
    shown = table(
        ["class", *names], lines, caption="Percent right at the end, mean over seeds", sides="l" + "r" * len(names)
    )
    return tag("details", tag("summary", "The same at the end of the stream, as numbers"), shown)


def named(block: Json, number: int) -> Html:
    """A row's name with its mark in the charts."""
    mark = tag("i", class_=f"key s{number % STYLES}", aria_hidden="true")
    return tag("span", mark, tag("span", block["names"][number]), class_="named")


def metric(text: str) -> Html:
    """A_AUC with its index below.

    >>> metric("A_AUC ↑")
    'A<sub>AUC</sub> ↑'
    """
    symbol, space, arrow = text.partition(" ")
    letter, low, index = symbol.partition("_")
    if not low or len(letter) > 1:
        return join([text.replace("_", " ")])
    return join([letter, tag("sub", index), space + arrow])


def copied(lines: Iterable[str]) -> Html:
    """Commands, with a button that copies them."""
    code = tag("pre", tag("code", "\n".join(lines)), tabindex=0)
    return tag("div", code, tag("button", "Copy", type="button", class_="copy"), class_="commands")


def duration(seconds: float) -> str:
    """For people: 52 s, 7 min, 3.4 h.

    >>> duration(52), duration(407), duration(12240)
    ('52 s', '6.8 min', '3.4 h')
    """
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def _headline(block: Json) -> Html | None:
    """Who is best at any time, and by how much."""
    known = [one for one in block["table"]["lines"] if one["a_auc"]["mean"] is not None]
    if len(known) < 2:
        return None
    first, second = sorted(known, key=lambda one: -one["a_auc"]["mean"])[:2]
    apart = first["a_auc"]["mean"] - second["a_auc"]["mean"]
    spreads = [one["a_auc"]["std"] for one in (first, second)]
    words = "."  # a single seed has no spread to compare with
    if None not in spreads:
        words = f", {'no further' if apart <= sum(spreads) else 'further'} than both spreads together."
    return tag(
        "p",
        *("Best at any time: ", tag("strong", block["names"][first["row"]]), ", ", metric("A_AUC"), " "),
        f"{first['a_auc']['text']}. The next, {block['names'][second['row']]}, is {apart:.2f} points lower{words}",
    )


def _mean(one: Json) -> Html:
    text = tag("strong", one["text"]) if one["best"] else one["text"]
    return cell(text, one["mean"], class_="n")


def _comparisons(block: Json, found: Json) -> Html:
    """Our runs with the paper's numbers; its rows that were not run wait below."""
    numbers = [one[side] for one in found["lines"] for side in ("paper", "ours") if one[side]]
    low = min(number["mean"] - (number["std"] or 0) for number in numbers)
    high = max(number["mean"] + (number["std"] or 0) for number in numbers)
    ran = [one for one in found["lines"] if one["ours"]]
    rest = [one for one in found["lines"] if not one["ours"]]
    lines = [
        [
            tag("th", named(block, one["row"]), scope="row", data_value=one["row"]),
            cell(one["theirs"] or "–"),
            cell(one["n"], one["n"], class_="n"),
            cell(_number(one["paper"]), one["paper"] and one["paper"]["mean"], class_="n"),
            cell(_number(one["ours"]), one["ours"]["mean"], class_="n"),
            cell("–" if one["difference"] is None else f"{one['difference']:+z.2f}", one["difference"], class_="n"),
            cell(dots(one["paper"], one["ours"], low, high, style=one["row"] % STYLES), class_="dots"),
            cell(one["verdict"], class_="miss" if one["misses"] else None),
        ]
        for one in ran
    ]
    heads = ["our method", "paper's row", "n", "paper", "ours", "difference", "◇ paper  ● ours", "verdict"]
    arrow = ACCURACY_METRICS[PAPER_METRICS[found["metric"]]].heading.partition(" ")[2]
    caption = f"{found['metric'].replace('final_', 'Final ')} {arrow} in percent, the paper's and ours"
    warnings = dict.fromkeys(
        one["paper"]["warning"] for one in found["lines"] if one["paper"] and one["paper"]["warning"]
    )
    return join(
        [
            table(heads, lines, caption=caption, sides="llrrrrll") if lines else None,
            _not_run(rest) if rest else None,
            *(tag("p", f"⚠ {warning}.", class_="note") for warning in warnings),
        ]
    )


def _not_run(lines: Sequence[Json]) -> Html:
    shown = [
        [
            tag("th", one["theirs"], scope="row"),
            cell(tag("code", one["method"])),
            cell(_number(one["paper"]), one["paper"]["mean"], class_="n"),
        ]
        for one in lines
    ]
    count = f"{len(lines)} more {'row' if len(lines) == 1 else 'rows'} of the paper, {NOT_RUN}"
    return tag(
        "details",
        tag("summary", count),
        table(["paper's row", "our name for it", "paper"], shown, caption="The paper's numbers, percent", sides="llr"),
    )


def _number(number: Json | None) -> str:
    if number is None:
        return "–"
    warned = " ⚠" if number.get("warning") else ""
    return f"{number['mean']:z.2f}" + (f" ± {number['std']:.2f}" if number["std"] is not None else "") + warned


def _path(path: str) -> Html:
    """It may be folded after its dots and lines."""
    pieces = [part for piece in re.split("(?<=[._])", path) for part in (piece, tag("wbr"))]
    return tag("th", tag("code", *pieces), scope="row", data_value=path)


def _folded(value: str) -> str:
    return value if value else "none"


def _run(block: Json, one: Json, differ: Sequence[str]) -> list[Html]:
    seconds, environment = one["seconds"], one["environment"]
    speed = one["samples"] / seconds if seconds else None
    state = f"{one['state']}, {one['samples']:,} of {one['of']:,}" if one["state"] == "unfinished" else one["state"]
    return [
        tag("th", named(block, block["names"].index(one["row"])), scope="row"),
        cell(one["seed"], one["seed"], class_="n"),
        cell(state, class_=None if one["state"] == "finished" else "miss"),
        cell(f"{one['samples']:,}", one["samples"], class_="n"),
        cell(f"{one['updates']:,}", one["updates"], class_="n"),
        cell("–" if seconds is None else f"{seconds:,.0f}", seconds, class_="n"),
        cell("–" if speed is None else f"{speed:,.0f}", speed, class_="n"),
        *(cell(environment.get(name, "not noted")) for name in differ),
        cell(tag("code", one["folder"])),
        cell(tag("code", environment.get("order", "not noted"))),
    ]


def _progress(one: Json) -> Html:
    name = tag("b", f"{one['row']}, seed {one['seed']}")
    if one["of"] is None:
        return tag("li", name, " is not begun.")
    bar = tag("progress", value=one["samples"], max=one["of"], aria_label=f"{one['row']}, seed {one['seed']}")
    known = {metric(ACCURACY_METRICS[key].heading): value for key, value in one["so_far"].items() if value is not None}
    numbers = join([part for key, value in known.items() for part in ("; ", key, f" {value:.2f}")])
    share = f"{one['samples']:,} of {one['of']:,} samples ({100 * one['samples'] / one['of']:.0f} %)"
    return tag("li", name, bar, tag("span", share, " so far" if known else None, numbers))

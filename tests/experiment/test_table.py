import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from iblurry.errors import InputError
from iblurry.experiment.metrics import Metrics
from iblurry.studies.run_table import Row, Spread, render, rows, to_json, to_markdown


def run(a_auc: float | None, a_avg: float = 0.5, a_last: float = 0.5, f_last: float | None = 0.1) -> Metrics:
    return Metrics(a_auc=a_auc, a_avg=a_avg, a_last=a_last, f_last=f_last, samples=10, updates=10, queries=2)


GROUPS = {
    "er": [run(0.5, 0.60, 0.4, 0.30), run(0.6, 0.62, 0.5, 0.20), run(0.7, 0.61, 0.3, 0.25)],
    "clib": [run(0.7, 0.59, 0.4, 0.10), run(0.8, 0.60, 0.6, 0.15), run(0.72, 0.6, 0.5, 0.05)],
}


def shown(table_rows: list[Row]) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(render(table_rows))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_rows_are_mean_and_sample_deviation_in_percent() -> None:
    er, clib = rows(GROUPS)
    assert (er.method, er.n, clib.method, clib.n) == ("er", 3, "clib", 3)
    assert er.a_auc == Spread(pytest.approx(60.0), pytest.approx(10.0))
    values = np.array([70, 80, 72])
    std = np.sqrt(((values - values.mean()) ** 2).sum() / 2)
    assert clib.a_auc == Spread(pytest.approx(74.0), pytest.approx(std))
    assert clib.f_last == Spread(pytest.approx(10.0), pytest.approx(5.0))


def test_one_seed_has_no_deviation() -> None:
    (row,) = rows({"er": [run(0.7026)]})
    assert row.a_auc == Spread(pytest.approx(70.26), None)
    assert "| er | 1 | 70.26 | 50.00 | 50.00 | 10.00 |" in to_markdown([row])
    assert "one seed" in to_markdown([row])


def test_a_number_that_one_seed_lacks_is_not_averaged_over_the_others() -> None:
    (row,) = rows({"er": [run(0.7), run(0.7, f_last=None)]})
    assert row.f_last is None
    assert row.a_auc is not None
    assert "| er | 2 | 70.00 ± 0.00 | 50.00 ± 0.00 | 50.00 ± 0.00 | – |" in to_markdown([row])


def test_joint_training_is_a_bound_and_not_the_best() -> None:
    text = to_markdown(rows({"joint": [run(None, a_last=0.9)] * 3} | GROUPS))
    assert "| joint | 3 | – | 50.00 ± 0.00 | 90.00 ± 0.00 | 10.00 ± 0.00 |" in text
    assert to_markdown(rows(GROUPS)).splitlines()[2:4] == text.splitlines()[3:5]


def test_markdown_is_exactly_this() -> None:
    assert to_markdown(rows(GROUPS)) == (
        "| method | n | A_AUC ↑ | A_avg ↑ | A_last ↑ | F_last ↓ |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| er | 3 | 60.00 ± 10.00 | **61.00 ± 1.00** | 40.00 ± 10.00 | 25.00 ± 5.00 |\n"
        "| clib | 3 | **74.00 ± 5.29** | 59.67 ± 0.58 | **50.00 ± 10.00** | **10.00 ± 5.00** |\n"
        "\n"
        "Percent, mean ± sample standard deviation (n - 1) over 3 seeds.\n"
    )


def test_ties_as_printed_are_all_bold_and_a_lone_row_is_not() -> None:
    tied = to_markdown(rows({"a": [run(0.70001)], "b": [run(0.70002)], "c": [run(0.6)]}))
    assert tied.count("**70.00**") == 2
    assert "**60.00**" not in tied
    assert "**" not in to_markdown(rows({"a": [run(0.7)]}))


def test_a_negative_zero_is_a_zero() -> None:
    assert "-0.00" not in to_markdown(rows({"a": [run(0.7, f_last=-1e-9)]}))


def test_the_terminal_shows_the_same_with_the_best_in_bold() -> None:
    text = shown(rows(GROUPS))
    assert re.findall(r"\x1b\[1m *([\d.]+ ± [\d.]+)\x1b", text) == [
        "61.00 ± 1.00",
        "74.00 ± 5.29",
        "50.00 ± 10.00",
        "10.00 ± 5.00",  # F_last: lower is better
    ]
    assert "60.00 ± 10.00" in text
    assert "mean ± sample standard deviation (n - 1) over 3 seeds" in text


def test_names_are_not_markup() -> None:
    strange = {"[red]x|y": [run(0.7)]}
    assert "[red]x|y" in shown(rows(strange))
    assert "| [red]x\\|y | 1 |" in to_markdown(rows(strange))


def test_the_caption_says_n_where_seeds_differ() -> None:
    assert "over n seeds" in to_markdown(rows({"a": [run(0.7)], "b": [run(0.7), run(0.8)]}))


def test_json_has_every_number_in_full() -> None:
    about = json.loads(to_json(rows(GROUPS)))
    assert about["unit"] == "percent"
    assert [row["method"] for row in about["rows"]] == ["er", "clib"]
    mean = np.mean([100 * each.a_auc for each in GROUPS["clib"] if each.a_auc is not None])
    assert about["rows"][1]["a_auc"]["mean"] == pytest.approx(mean, abs=1e-12)
    assert json.loads(to_json(rows({"a": [run(None)]})))["rows"][0]["a_auc"] is None


def test_a_method_without_runs_is_refused() -> None:
    with pytest.raises(InputError, match="'er' has no runs"):
        rows({"er": []})

"""Each form of a table, to the letter: of a study, and of the runs of `iblurry run` and `iblurry show`."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest

from iblurry.analysis.formats import FORMATS, runs_to_json, runs_to_markdown, runs_to_terminal
from iblurry.analysis.significance import compare_rows
from iblurry.analysis.table import TABLE_METRICS, MeanStd, TableMetric, tabulate_runs
from iblurry.errors import InputError
from iblurry.experiment.metrics import Metrics
from iblurry.experiment.result import Result
from iblurry.studies.catalogue import MAIN
from tests.studies.written import TINY, tabulated

PAIR = "clib over er: ahead on 3 of 3 seeds, +13.50 ± 0.50 points, 95 % t interval [+12.26, +14.74]"


@pytest.fixture
def terminal(monkeypatch):
    """Text for a terminal so wide, without its bold."""

    def terminal(made, given=None, *, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        return click.unstyle(FORMATS["terminal"](made, given))

    return terminal


def test_terminal(table, terminal):
    text = terminal(table, compare_rows(table), columns=1000)
    assert text.split("\n\nPercent")[0].splitlines() == [
        "Memory & 100% (Table 4 of the paper): cifar10, i-Blurry-50-10, 5 tasks",
        "",
        "A_AUC ↑",
        "method              K=500             K=1000          ",
        "──────────────────────────────────────────────────────",
        "mir     ours        –                 62.00 ± 1.00 (3)",
        "        paper       57.28 ± 2.43      61.18 ± 1.08 ⚠",
        "        difference  –                 +0.82 not judged",
        "er      ours        58.50 ± 2.18 (3)  –",
        "        paper       57.46 ± 2.25      61.18 ± 1.08 ⚠",
        "        difference  +1.04 agrees      –",
        "clib    ours        72.00 ± 2.65 (3)  73.75 ± 1.06 (2)",
        "        paper       70.26 ± 1.28      73.00 ± 1.30",
        "        difference  +1.74 agrees      +0.75 agrees",
    ]
    assert "\n⚠ ER-MIR and Baseline-ER are identical" in text
    assert "Not run yet: mir K=500; er K=1000; clib K=1000 seed 3. To run them:\n  iblurry study tiny" in text
    assert f"A_AUC ↑ K=500, seed by seed\n  {PAIR}" in text


def test_the_best_of_ours_is_bold_on_a_terminal(table, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    bold = re.findall(r"\x1b\[1m(\d.*?)\x1b\[0m", FORMATS["terminal"](table, None))
    assert bold == ["72.00 ± 2.65 (3)", "73.75 ± 1.06 (2)"]


def test_a_narrow_terminal_folds_cells_and_loses_nothing(table, terminal):
    text = terminal(table, columns=34).split("Percent", 1)[0]
    assert max(map(len, text.split("\n\n", 1)[1].splitlines())) <= 34
    assert "…" not in text
    for number in ("62.00", "58.50", "73.75", "+0.82", "2.65", "1.06"):
        assert text.count(number) == 1


def test_markdown(table):
    parts = FORMATS["markdown"](table, compare_rows(table)).split("\n\n")
    assert parts[:3] == [
        "### Memory & 100% (Table 4 of the paper): cifar10, i-Blurry-50-10, 5 tasks",
        "**A_AUC ↑**",
        "| method |  | K=500 | K=1000 |\n"
        "| --- | --- | ---: | ---: |\n"
        "| `mir` | ours | – | 62.00 ± 1.00 (3) |\n"
        "|  | paper | 57.28 ± 2.43 | 61.18 ± 1.08 ⚠ |\n"
        "|  | difference | – | +0.82 not judged |\n"
        "| `er` | ours | 58.50 ± 2.18 (3) | – |\n"
        "|  | paper | 57.46 ± 2.25 | 61.18 ± 1.08 ⚠ |\n"
        "|  | difference | +1.04 agrees | – |\n"
        "| `clib` | ours | **72.00 ± 2.65 (3)** | **73.75 ± 1.06 (2)** |\n"
        "|  | paper | 70.26 ± 1.28 | 73.00 ± 1.30 |\n"
        "|  | difference | +1.74 agrees | +0.75 agrees |",
    ]
    console = "```console\niblurry study tiny --dataset cifar10\n```"
    assert parts[parts.index("Not run yet: mir K=500; er K=1000; clib K=1000 seed 3.") + 1] == console
    assert parts[parts.index("A_AUC ↑ K=500:") + 1].startswith(f"- {PAIR}")


def test_without_the_paper_a_row_is_a_line(runs):
    made = tabulated(TINY, "cifar10", [runs], methods=["er", "clib"], metrics=["a_auc"], seeds=[1, 2], paper=False)
    assert FORMATS["markdown"](made, None).split("\n\n")[2] == (
        "| method | K=500 | K=1000 |\n"
        "| --- | ---: | ---: |\n"
        "| `er` | 57.25 ± 0.35 (2) | – |\n"
        "| `clib` | **70.50 ± 0.71 (2)** | 73.75 ± 1.06 (2) |"
    )


def test_one_seed_has_neither_spread_nor_interval(runs, terminal):
    made = tabulated(TINY, "cifar10", [runs], methods=["er", "clib"], metrics=["a_auc"], seeds=[1])
    text = terminal(made, compare_rows(made))
    assert re.search(r"er +ours +57\.00 \(1\) ", text)
    assert "Percent, one seed each; the best of ours in bold." in text
    assert "clib over er: ahead on 1 of 1 seed, +13.00 points; one seed has no interval" in text
    assert "Percent, one seed; best in bold." in FORMATS["latex"](made, None)
    assert json.loads(FORMATS["json"](made, compare_rows(made)))["pairs"][0]["interval"] is None
    assert "cifar10,er,K=500,a_auc,1,57.0" in FORMATS["csv"](made, None)


def test_nothing_run_at_all(terminal):
    made = tabulated(TINY, "cifar10", [])
    text = terminal(made, compare_rows(made))
    assert re.search(r"clib +ours +– +–\n +paper +70\.26 ± 1\.28 +73\.00 ± 1\.30\n", text)
    assert "Not run yet: mir; er; clib. To run them:\n  iblurry study tiny --dataset cifar10\n" in text
    assert text.endswith("There is no pair to compare: fewer than two rows have finished runs.\n")
    assert "sample standard deviation" not in text
    assert latex_rows(FORMATS["latex"](made, None))


def test_csv_has_every_digit(table):
    text = FORMATS["csv"](table, None)
    assert text.splitlines()[0] == (
        "study,dataset,row,column,metric,n,mean,std,seeds,paper_mean,paper_std,difference,verdict,"
        "equal_compute,equal_bytes"
    )
    lines = list(csv.DictReader(text.splitlines()))
    assert [(one["row"], one["column"], one["n"], one["seeds"]) for one in lines] == [
        ("mir", "K=500", "0", ""),
        ("er", "K=500", "3", "1 2 3"),
        ("clib", "K=500", "3", "1 2 3"),
        ("mir", "K=1000", "3", "1 2 3"),
        ("er", "K=1000", "0", ""),
        ("clib", "K=1000", "2", "1 2"),
    ]
    for one in lines:
        cell = table.cells.loc[one["row"], one["column"], "a_auc"]
        assert {one["study"], one["dataset"], one["metric"]} == {"tiny", "cifar10", "a_auc"}
        wanted = [cell["mean"], cell["std"], cell["paper"].mean, cell["paper"].std, cell["difference"]]
        written = [one[name] for name in ("mean", "std", "paper_mean", "paper_std", "difference")]
        assert [float(number or "nan") for number in written] == pytest.approx(wanted, rel=0, abs=0, nan_ok=True)
        assert one["verdict"] == (cell["verdict"] or "")


def test_json_has_everything(table):
    about = json.loads(FORMATS["json"](table, None))
    assert (about["study"], about["dataset"], about["rows"], about["columns"], about["metrics"], about["seeds"]) == (
        *("tiny", "cifar10", ["mir", "er", "clib"], ["K=500", "K=1000"], ["a_auc"]),
        [1, 2, 3],
    )
    assert about["units"] == {"a_auc": "percent"}
    assert len(about["cells"]) == 6
    clib = next(one for one in about["cells"] if (one["row"], one["column"]) == ("clib", "K=1000"))
    assert (clib["n"], clib["mean"], clib["best"], clib["verdict"]) == (2, pytest.approx(73.75), True, "agrees")
    assert clib["values"] == {"1": pytest.approx(73), "2": pytest.approx(74.5)}
    assert clib["paper"] == {"mean": 73.0, "std": 1.3, "tables": [4], "warning": None}
    assert [folder.split("/")[-1][:14] for folder in clib["folders"]] == ["clib-cifar10-1", "clib-cifar10-2"]
    gaps = [(one["row"], one["column"], one["seed"]) for one in about["missing"]]
    assert gaps == [
        *(("mir", "K=500", seed) for seed in (1, 2, 3)),
        *(("er", "K=1000", seed) for seed in (1, 2, 3)),
        ("clib", "K=1000", 3),
    ]
    assert about["commands"] == ["iblurry study tiny --dataset cifar10"]
    assert "pairs" not in about
    (first, second) = json.loads(FORMATS["json"](table, compare_rows(table)))["pairs"]
    assert (first["first"], first["second"], first["n"], first["ahead"], first["p"]) == ("clib", "er", 3, 3, 0.25)
    assert first["interval"] == pytest.approx([12.2579, 14.7421], abs=1e-4)
    assert first["words"].endswith("3 seeds cannot tell more")
    assert second["seeds"] == [1, 2]


def test_numbers_of_other_units_are_not_called_percent(runs):
    """Bills of 27,932.4 ± 3.1, as seeds that fill a memory at other times have them."""
    bills = {1: 27_929.3, 2: 27_932.4, 3: 27_935.5}
    compute_estimate = TableMetric(
        name="bill", heading="bill", value=lambda run: bills[run.experiment.seed], digits=None, unit="TFLOP"
    )
    made = tabulated(
        TINY, "cifar10", [runs], metrics=["a_auc", "bill"], known=TABLE_METRICS | {"bill": compute_estimate}
    )
    alone = tabulated(TINY, "cifar10", [runs], metrics=["bill"], known={"bill": compute_estimate})
    assert "27,932 ± 3 (3)" in FORMATS["markdown"](made, None)
    assert r"$27{,}932 \pm 3$" in FORMATS["latex"](made, None)
    for form in ("terminal", "markdown", "latex"):
        assert "Accuracy and forgetting in percent; mean" in FORMATS[form](made, None)
        assert "ercent, mean" not in FORMATS[form](alone, None)
        assert "Mean " in FORMATS[form](alone, None)
    assert json.loads(FORMATS["json"](made, None))["units"] == {"a_auc": "percent", "bill": "TFLOP"}


def test_a_spread_has_the_digits_of_its_mean():
    assert MeanStd(0.0055821, 1.06e-18).texts(None) == ["0.00558", "0.00000"]
    assert MeanStd(0.034, None).texts(None) == ["0.0340"]
    assert MeanStd(70.256, 1.284).texts() == ["70.26", "1.28"]


@pytest.mark.parametrize("form", ["latex", "csv"])
def test_forms_without_pairs_say_so(table, form):
    with pytest.raises(InputError, match="table cannot show pairs; use --pairs with --format"):
        FORMATS[form](table, compare_rows(table))


def test_latex(table):
    assert FORMATS["latex"](table, None).splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{table}[t]",
        r"\centering",
        r"\caption{Memory \& 100\%: cifar10, i-Blurry-50-10, 5 tasks. Percent, mean $\pm$ sample standard deviation "
        r"over (n) seeds; best in bold. Paper: as printed by Koh et al. (ICLR 2022). Difference: ours minus theirs; "
        r"agrees: no further apart than two standard errors of it. $^\dagger$ER-MIR and Baseline-ER are identical to "
        r"the last digit at K=1000 (61.18$\pm$1.08 / 66.05$\pm$2.29); one of the two is probably a copy error.}",
        r"\label{tab:tiny-cifar10}",
        r"\begin{tabular}{llcc}",
        r"\toprule",
        r"\multicolumn{2}{c}{} & K=500 & K=1000 \\",
        r"\cmidrule(lr){3-3} \cmidrule(lr){4-4}",
        r"Method &  & $A_\mathrm{AUC}$ $\uparrow$ & $A_\mathrm{AUC}$ $\uparrow$ \\",
        r"\midrule",
        r"ER-MIR & ours & -- & $62.00 \pm 1.00$ (3) \\",
        r" & paper & $57.28 \pm 2.43$ & $61.18 \pm 1.08^\dagger$ \\",
        r" & difference & -- & $+0.82$ not judged \\",
        r"ER & ours & $58.50 \pm 2.18$ (3) & -- \\",
        r" & paper & $57.46 \pm 2.25$ & $61.18 \pm 1.08^\dagger$ \\",
        r" & difference & $+1.04$ agrees & -- \\",
        r"CLIB & ours & $\mathbf{72.00} \pm 2.65$ (3) & $\mathbf{73.75} \pm 1.06$ (2) \\",
        r" & paper & $70.26 \pm 1.28$ & $73.00 \pm 1.30$ \\",
        r" & difference & $+1.74$ agrees & $+0.75$ agrees \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        r"% Not run yet: mir K=500; er K=1000; clib K=1000 seed 3",
        r"%   iblurry study tiny --dataset cifar10",
    ]


def latex_rows(text):
    """The cells of each row, where TeX could read the whole: columns as declared, groups and formulas closed."""
    from matplotlib.mathtext import MathTextParser

    text = re.sub(r"(?m)^%.*\n", "", text)
    depth = 0
    for sign in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if sign == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1] == ["table", "tabular"]
    (columns,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", text)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    for row in rows:
        spans = [int(wide) - 1 for wide in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        assert len(re.findall(r"(?<!\\)&", row)) + sum(spans) + 1 == len(columns)
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    for formula in set(re.findall(r"(?<!\\)\$[^$]+(?<!\\)\$", text)):
        MathTextParser("path").parse(formula)
    known = "begin end caption label centering toprule midrule bottomrule cmidrule multicolumn pm mathbf mathrm dagger"
    known += " uparrow downarrow textbackslash textasciitilde textasciicircum textless textgreater"
    assert set(re.findall(r"\\([a-z]+)", text)) <= set(known.split())
    return [row.removesuffix(r"\\").split("&") for row in rows]


def test_latex_can_be_read_by_tex(runs):
    both = tabulated(TINY, "cifar10", [runs])
    rows = latex_rows(FORMATS["latex"](both, None))
    assert len(rows) == 2 + 9
    assert r"\cmidrule(lr){3-4} \cmidrule(lr){5-6}" in FORMATS["latex"](both, None)
    odd = tabulated(TINY, "cifar10", [runs], methods=["er", "clib name=\\a_b%{~^<&#$"], paper=False, seeds=[1, 2])
    text = FORMATS["latex"](odd, None)
    (name, *_) = latex_rows(text.replace(r"\&", ""))[-1]
    assert name.strip() == r"CLIB name=\textbackslash{}a\_b\%\{\textasciitilde{}\textasciicircum{}\textless{}\#\$"
    assert "over 2 seeds." in text  # all have as many: the caption says it
    assert "(2)" not in text


def test_latex_of_one_column_has_no_groups(runs):
    made = tabulated(MAIN, "cifar10", [runs], metrics=["a_auc", "a_avg", "f_last"])
    text = FORMATS["latex"](made, None)
    assert len(latex_rows(text)[0]) == 5
    assert "multicolumn" not in text
    assert r"\label{tab:main-cifar10}" in text


def measured(a_auc, a_avg=0.5, a_last=0.5, f_last=0.1):
    return Metrics(a_auc=a_auc, a_avg=a_avg, a_last=a_last, f_last=f_last, samples=10, updates=10, queries=2)


def of_runs(groups):
    """A table of runs that have metrics and seeds alone."""
    experiments = [SimpleNamespace(seed=seed, pretrained=False) for seed in range(max(map(len, groups.values())))]
    runs = {row: zip(experiments, some, strict=False) for row, some in groups.items()}
    return tabulate_runs(
        {row: [Result(Path(), experiment, [], one, None) for experiment, one in some] for row, some in runs.items()}
    )


GROUPS = {
    "er": [measured(0.5, 0.60, 0.4, 0.30), measured(0.6, 0.62, 0.5, 0.20), measured(0.7, 0.61, 0.3, 0.25)],
    "clib": [measured(0.7, 0.59, 0.4, 0.10), measured(0.8, 0.60, 0.6, 0.15), measured(0.72, 0.6, 0.5, 0.05)],
}


def test_runs_in_markdown():
    assert runs_to_markdown(of_runs(GROUPS)) == (
        "| method | n | A_AUC ↑ | A_avg ↑ | A_last ↑ | F_last ↓ |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| er | 3 | 60.00 ± 10.00 | **61.00 ± 1.00** | 40.00 ± 10.00 | 25.00 ± 5.00 |\n"
        "| clib | 3 | **74.00 ± 5.29** | 59.67 ± 0.58 | **50.00 ± 10.00** | **10.00 ± 5.00** |\n"
        "\n"
        "Percent, mean ± sample standard deviation (n - 1) over 3 seeds.\n"
    )


def test_runs_on_a_terminal_and_as_json():
    text, about = runs_to_terminal(of_runs(GROUPS)), runs_to_json(of_runs(GROUPS))
    bold = re.findall(r"\x1b\[1m *([\d.]+ ± [\d.]+)\x1b", text)
    assert bold == ["61.00 ± 1.00", "74.00 ± 5.29", "50.00 ± 10.00", "10.00 ± 5.00"]  # of F_last the least
    assert "60.00 ± 10.00" in text
    assert [row["method"] for row in about["rows"]] == ["er", "clib"]
    mean = np.mean([100 * one.a_auc for one in GROUPS["clib"]])
    assert about["rows"][1]["a_auc"]["mean"] == pytest.approx(mean, abs=1e-12)
    assert runs_to_json(of_runs({"a": [measured(None)]}))["rows"][0]["a_auc"] is None


def test_runs_of_which_some_lack_a_number_or_a_spread():
    one = of_runs({"er": [measured(0.7026)]})
    assert one.ours("er", "", "a_auc") == MeanStd(pytest.approx(70.26), None)
    assert "| er | 1 | 70.26 | 50.00 | 50.00 | 10.00 |" in runs_to_markdown(one)
    assert "one seed each" in runs_to_markdown(one)
    lacking = runs_to_markdown(of_runs({"er": [measured(0.7), measured(0.7, f_last=None)], "a": [measured(0.6)]}))
    assert "| er | 2 | **70.00 ± 0.00** | **50.00 ± 0.00** | **50.00 ± 0.00** | – |" in lacking
    assert "over n seeds" in lacking


def test_the_best_of_runs_is_bold_unless_it_is_a_bound_or_alone():
    text = runs_to_markdown(of_runs({"joint": [measured(None, a_last=0.9)] * 3} | GROUPS))
    assert "| joint | 3 | – | 50.00 ± 0.00 | 90.00 ± 0.00 | 10.00 ± 0.00 |" in text
    assert runs_to_markdown(of_runs(GROUPS)).splitlines()[2:4] == text.splitlines()[3:5]
    tied = runs_to_markdown(of_runs({"a": [measured(0.70001)], "b": [measured(0.70002)], "c": [measured(0.6)]}))
    assert tied.count("**70.00**") == 2  # as printed
    assert "**60.00**" not in tied
    assert "**" not in runs_to_markdown(of_runs({"a": [measured(0.7)]}))


def test_names_are_not_markup():
    strange = of_runs({"[red]x|y": [measured(0.7, f_last=-1e-9)]})
    assert "[red]x|y" in runs_to_terminal(strange)
    assert "| [red]x\\|y | 1 |" in runs_to_markdown(strange)
    assert "-0.00" not in runs_to_markdown(strange)

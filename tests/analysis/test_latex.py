"""A study's table in LaTeX, to the letter, and such that TeX can read it."""

from __future__ import annotations

import re
from dataclasses import replace

from iblurry.analysis.formats import FORMATS, escape_latex
from iblurry.studies.catalogue import MAIN
from iblurry.studies.selection import Selection
from iblurry.studies.table import tabulate_study
from tests.studies.tiny import TINY
from tests.studies.written import tabulated


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
    odd = tabulated(TINY, "cifar10", [runs], methods=["er", "clib name=a_b%{~^<&#$"], paper=False, seeds=[1, 2])
    text = FORMATS["latex"](odd, None)
    (name, *_) = latex_rows(text.replace(r"\&", ""))[-1]
    assert name.strip() == r"CLIB name=a\_b\%\{\textasciitilde{}\textasciicircum{}\textless{}\#\$"
    assert "over 2 seeds." in text  # all have as many: the caption says it
    assert "(2)" not in text


def test_every_name_can_be_written_in_tex():
    assert escape_latex("\\a_b") == r"\textbackslash{}a\_b"


def test_latex_of_one_column_has_no_groups(runs):
    made = tabulated(MAIN, "cifar10", [runs], metrics=["a_auc", "a_avg", "f_last"])
    text = FORMATS["latex"](made, None)
    assert len(latex_rows(text)[0]) == 5
    assert "multicolumn" not in text
    assert r"\label{tab:main-cifar10}" in text


def test_latex_labels_differ_where_the_experiments_do(runs):
    chosen = Selection(study=MAIN, dataset="digits", rows=("er",))
    ways = [{}, {"scale": 0.1}, {"scale": 0.05}, {"equal_compute": "clib pace.measure_every=2"}]
    ways.append({"scale": 0.1, "equal_compute": "clib"})
    texts = [FORMATS["latex"](tabulate_study(replace(chosen, **way), [runs]), None) for way in ways]
    assert [re.search(r"\\label\{(.*)\}", text)[1] for text in texts] == [
        "tab:main-digits-er",
        "tab:main-digits-er-scale-0-1",
        "tab:main-digits-er-scale-0-05",
        "tab:main-digits-er-equal-compute-clib-pace-measure-every-2",
        "tab:main-digits-er-scale-0-1-equal-compute-clib",
    ]

import numpy as np
import pytest

from iblurry.errors import InputError
from iblurry.studies.figures.rates import Trace, rates, shared_rate, trace
from tests.studies.figures.conftest import METHODS

ENDS, MET = [20, 40], [1, 5, 21]


def test_a_trace_is_what_the_queries_say(records):
    journal = records(1, rate=0.5)
    one = trace(journal)
    assert list(one.at) == list(range(20, 401, 20))
    assert list(one.rate) == pytest.approx([0.5 * (1 + at / 400) for at in one.at])
    assert list(one.ends) == [200, 400]
    assert one.met == [record.at for record in journal if record.kind == "class"]
    assert trace(records(1, asked=False)).at == [200, 400]  # only at the ends of tasks


def test_lines_are_geometric_means_and_bands_least_and_greatest(drawn, tmp_path):
    seeds = [Trace([10, 20, 40], [0.1, 0.4, 0.2], ENDS, MET), Trace([10, 30, 40], [0.4, 0.1, 0.2], ENDS, [1, 7, 21])]
    rates({"": {"clib": seeds, "e$r": [Trace([10, 20], [1.0, 0.0], ENDS, MET)]}}, tmp_path / "f.png", title="t")
    axes = drawn[0].axes[0]
    assert axes.get_yscale() == "log"
    clib, er = axes.lines[:2]
    assert list(clib.get_xdata()) == [10, 40]
    assert clib.get_ydata() == pytest.approx([0.2, 0.2])
    assert er.get_ydata() == pytest.approx([1, np.nan], nan_ok=True)  # zero is nowhere on the axis
    (band,) = axes.collections
    corners = {(x, round(y, 6)) for x, y in band.get_paths()[0].vertices}
    assert corners == {(10, 0.1), (10, 0.4), (40, 0.2)}
    assert [sorted(line.get_xdata()) for line in axes.lines if line.get_marker() == "|"] == [[1, 5, 7, 21]]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "None"] == [20]
    assert [t.get_text() for t in drawn[0].legends[0].get_texts()] == ["clib", r"e\$r", "first sample of a class"]


def test_ten_methods_in_columns(drawn, tmp_path, records):
    groups = {method: [trace(records(n, rate=0.1**n))] for n, method in enumerate(METHODS)}
    rates({f"N={n}": groups for n in range(3)}, tmp_path / "f.png", title="t")
    assert len({(line.get_color(), line.get_marker()) for line in drawn[0].axes[2].lines[:10]}) == 10
    assert len({axes.get_ylim() for axes in drawn[0].axes}) == 1


def test_refusals(tmp_path):
    with pytest.raises(InputError, match="no runs to draw"):
        rates({}, tmp_path / "f.png")
    with pytest.raises(InputError, match="'er' share no query point"):
        shared_rate("er", [Trace([1], [1.0], ENDS, MET), Trace([2], [1.0], ENDS, MET)])

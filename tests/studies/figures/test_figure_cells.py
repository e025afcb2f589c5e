import pytest

from iblurry.errors import UnknownNameError
from iblurry.studies.figures.cells import arranged, mean_and_spread, numbers, paper_numbers, rows_of, written
from iblurry.studies.study import Study, found
from tests.studies.written import write_run

STUDY = Study(
    name="s",
    title="t",
    shows=(),
    question="?",
    datasets=("cifar10",),
    rows=("er", "clib", "clib admission=Balanced"),
    columns=lambda dataset: {"N=0": {"disjoint": 0}, "N=50": {}},
)


def test_runs_by_column_and_row_and_their_numbers(tmp_path):
    planned = STUDY.planned("cifar10", seeds=(1, 2))
    wanted: dict[str, dict[str, list[float]]] = {}
    for number, one in enumerate(planned):
        if number != 3:
            _, area, average = write_run(tmp_path, one.experiment, 50 + number)
            wanted.setdefault(one.column, {}).setdefault(one.row, []).append(area)
    runs = arranged(found(planned, [tmp_path]))
    assert [list(rows) for rows in runs.values()] == [list(STUDY.rows), list(STUDY.rows)]
    assert [len(results) for results in runs["N=0"].values()] == [2, 1, 2]
    got = numbers(runs, "a_auc")
    assert list(got) == ["N=0", "N=50"]
    for column, rows in wanted.items():
        for row, values in rows.items():
            assert got[column][row] == pytest.approx(values)
    last = numbers(runs, "a_avg")["N=50"]["clib admission=Balanced"][-1]
    assert last == pytest.approx(average)


def test_the_papers_numbers_stand_where_the_experiment_is_exactly_the_papers():
    paper = paper_numbers(STUDY.planned("cifar10"), "a_auc")
    assert paper["N=50"]["clib"].mean == 70.26
    assert "clib admission=Balanced" not in paper["N=50"]
    assert paper_numbers(STUDY.planned("digits"), "a_auc") == {}
    more = paper_numbers(STUDY.planned("cifar10", memory=1000), "a_auc")
    assert list(more["N=50"]) == ["clib"]  # of ER there the paper has what is probably a copy error
    assert paper_numbers(STUDY.planned("cifar10", tasks=7), "a_auc") == {}


def test_small_things():
    assert rows_of({"a": {"x": 1, "y": 1}, "b": {"z": 1, "x": 1}}) == ["x", "y", "z"]
    assert mean_and_spread([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    mean, spread = mean_and_spread([4.0])
    assert mean == 4
    assert spread != spread
    with pytest.raises(UnknownNameError, match="no metric called 'a_acu'"):
        written("a_acu")

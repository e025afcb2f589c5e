"""Searches before anything runs: what --grid and --space say, which points they make, and which one is best."""

from __future__ import annotations

import pytest

from iblurry.analysis.describe import describe_settings
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import NewClass, Query, Start, TaskEnd, encode
from iblurry.studies.paper import configuration_of, paper_number
from iblurry.studies.search.grid import expand_grid, grid_results, parse_grid
from iblurry.studies.search.point import PointResult, SearchPoint, best_points, split_values
from iblurry.studies.search.space import check_spaces, format_float, is_whole, parse_spaces
from iblurry.studies.search.table import search_to_json, search_to_terminal
from iblurry.studies.search.tune import CurveReader


def base(*rows, seeds=(1,), **fields):
    return {(row, seed): Experiment.of(row, seed=seed, **{"validate": 0.1} | fields) for row in rows for seed in seeds}


def test_all_combinations_for_every_method_and_seed():
    axes = parse_grid(["schedule.initial_lr=1e-4,3e-4", "memory=20,50"])
    points = expand_grid(base("clib", "er", seeds=(1, 2)), axes)
    assert [(point.row, *point.changes.values()) for point in points] == [
        (row, lr, memory) for row in ("clib", "er") for lr in ("1e-4", "3e-4") for memory in ("20", "50")
    ]
    last = points[-1].experiments
    assert [(one.seed, one.memory, one.method.schedule.initial_lr) for one in last] == [(1, 50, 3e-4), (2, 50, 3e-4)]
    assert {one.validate for point in points for one in point.experiments} == {0.1}


def test_slots_are_filled_before_fields_of_what_is_in_them():
    axes = parse_grid(["schedule.initial_lr=0.1,0.2", "schedule=Constant,Exponential"])
    schedules = [point.experiments[0].method.schedule for point in expand_grid(base("er"), axes)]
    assert [(type(one).__name__, one.initial_lr) for one in schedules] == [
        *(("Constant", 0.1), ("Exponential", 0.1)),
        *(("Constant", 0.2), ("Exponential", 0.2)),
    ]


def test_commas_inside_parentheses_belong_to_a_value():
    assert split_values("(CrossEntropy,Elastic),CrossEntropy", "--grid") == ("CrossEntropy,Elastic", "CrossEntropy")
    assert split_values("a, (b , c) ,d", "--grid") == ("a", "b , c", "d")


@pytest.mark.parametrize(
    "text", ["memory", "memory=", "=1,2", "memory=20,,50", "memory=20,50,", "terms=(a,b", "terms=a),b"]
)
def test_a_grid_without_values_is_refused(text):
    with pytest.raises(InputError, match="--grid"):
        parse_grid([text])


@pytest.mark.parametrize("texts", [["memory=20"], ["memory=20,50", "schedule.initial_lr=0.1"]])
def test_a_grid_that_varies_nothing_is_refused(texts):
    with pytest.raises(InputError, match="only one value"):
        parse_grid(texts)


@pytest.mark.parametrize("path", ["dataset", "seed", "method", "name", "validate"])
def test_what_no_search_varies(path):
    with pytest.raises(InputError, match=path):
        parse_grid([f"{path}=0.1,0.2"])
    with pytest.raises(InputError, match=path):
        parse_spaces([f"{path}=0.1..0.2"])


def test_paths_twice_and_paths_that_are_set_too():
    with pytest.raises(InputError, match="memory"):
        parse_grid(["memory=20,50", "memory=100,200"])
    with pytest.raises(InputError, match="memory"):
        parse_grid(["memory=20,50"], ["memory"])


@pytest.mark.parametrize("text", ["memory=20,50,20", "schedule.initial_lr=1e-4,0.0001"])
def test_points_that_are_the_same_experiment(text):
    with pytest.raises(InputError, match="same experiment"):
        expand_grid(base("er"), parse_grid([text]))


def test_unknown_paths_and_values():
    with pytest.raises(UnknownNameError, match="memroy"):
        expand_grid(base("er"), parse_grid(["memroy=20,50"]))
    with pytest.raises(UnknownNameError, match="Blanced"):
        expand_grid(base("er"), parse_grid(["admission=Blanced,Reservoir"]))
    with pytest.raises(InputError, match="many"):
        expand_grid(base("er"), parse_grid(["memory=20,many"]))


def test_no_choice_by_the_test_images_nor_without_a_curve():
    axes = parse_grid(["memory=20,50"])
    with pytest.raises(InputError, match="validate=0"):
        expand_grid(base("er", validate=0.0), axes)
    with pytest.raises(InputError, match="joint"):
        expand_grid(base("joint"), axes)
    with pytest.raises(InputError, match="validate=0"):
        check_spaces(Experiment.of("er"), parse_spaces(["memory=20..50"]))


def test_a_grid_of_endless_runs_is_refused():
    axes = {f"terms.{n}.strength": tuple("0123456789") for n in range(6)}
    with pytest.raises(InputError, match="1,000,000"):
        expand_grid(base("er"), axes)


def scored(*means, row="er", **more):
    point = SearchPoint(row, {"memory": "20"}, ())
    return [PointResult(point, {1: mean - 1.0, 2: mean + 1.0}, **more) for mean in means]


def test_the_best_of_each_row_has_the_highest_mean():
    results = [*scored(50, 70, 70), *scored(90, row="clib"), *scored(99, state="failed"), *scored(60)]
    assert {row: results.index(best) for row, best in best_points(results).items()} == {"er": 1, "clib": 3}
    shown = search_to_json(results)
    assert [point["best"] for point in shown] == [False, True, False, True, False, False]
    assert shown[1]["a_auc"] == {"mean": 70, "std": pytest.approx(2**0.5)}
    assert shown[4]["a_auc"] is None


def test_a_failed_point_is_told_and_cannot_be_best():
    (point,) = expand_grid(base("er"), {"memory": ("20",)})
    (result,) = grid_results([point], [_unfinished(point)], {point.experiments[0].name: InputError("too high")})
    assert (result.state, result.note, result.score) == ("failed", "too high", None)
    assert best_points([result]) == {}


def _unfinished(point):
    from iblurry.experiment.metrics import metrics
    from iblurry.experiment.result import Result

    return Result(None, point.experiments[0], [], metrics([]), None)


@pytest.mark.parametrize("width", [50, 60, 200])
def test_the_table_is_no_wider_than_the_terminal(width):
    axes = parse_grid(["schedule.initial_lr=1e-4,3e-4", "pace.updates_per_sample=1,2", "memory=20,50"])
    points = expand_grid(base("clib", "er", seeds=(1, 2)), axes)
    results = [PointResult(point, {1: 50.0 + n, 2: 51.0}) for n, point in enumerate(points)]
    text = search_to_terminal(results, width=width, bold=False)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("best") == 2
    assert "initial_lr" in text


def test_ranges_and_choices():
    lr, memory, admission = parse_spaces(["schedule.initial_lr=1e-4..1e-2:log", "memory=20..50", "admission=A,B"])
    assert (lr.low, lr.high, lr.log) == (1e-4, 1e-2, True)
    assert (memory.low, memory.high, memory.log) == (20, 50, False)
    assert (admission.low, admission.choices) == (None, ("A", "B"))
    assert [str(space) for space in (lr, memory, admission)] == [
        *("schedule.initial_lr=1e-4..1e-2:log", "memory=20..50", "admission=A,B"),
    ]


def test_whole_numbers_only_where_the_field_takes_no_others():
    experiment = Experiment.of("er")
    spaces = parse_spaces(["memory=20..50", "schedule.initial_lr=0..1", "schedule.gamma=0.5..1"])
    assert [is_whole(experiment, space) for space in spaces] == [True, False, False]


@pytest.mark.parametrize("text", ["memory=50..20", "memory=0..5:log", "memory=20", "memory=20..", "memory=nan..5"])
def test_spaces_that_are_none(text):
    with pytest.raises(InputError, match="--space memory"):
        parse_spaces([text])


@pytest.mark.parametrize(
    "text, named",
    [
        ("memory=0..50", "0"),
        ("memroy=1..5", "memroy"),
        ("admission=Reservoir,Mine", "Mine"),
        ("memory=20,20", "memory"),
    ],
)
def test_ends_and_choices_are_tried_before_anything_runs(text, named):
    with pytest.raises(InputError, match=named):
        check_spaces(Experiment.of("er", validate=0.1), parse_spaces([text]))


@pytest.mark.parametrize(
    "value, low, high", [(1 / 3, 0.0, 1.0), (0.1234567, 0.12, 0.13), (3.33333e-4, 1e-5, 1.0), (0.0, 0.0, 1.0)]
)
def test_proposed_numbers_are_short_and_inside(value, low, high):
    text = format_float(value, low, high)
    assert low <= float(text) <= high
    assert float(text) == pytest.approx(value, abs=1e-4 * (high - low))
    assert len(text) <= 10


def test_titles_say_what_was_asked_about():
    held_out = "on held-out training images (10 %)"
    plain, validated = Experiment.of("er", "cifar10"), Experiment.of("er", "cifar10", validate=0.1)
    assert describe_settings([validated]) == f"{describe_settings([plain])}, {held_out}"
    assert held_out not in describe_settings([plain, validated])
    assert str(configuration_of(validated)) == f"{configuration_of(plain)}, {held_out}"
    assert paper_number("er", "A_AUC", configuration_of(plain)) is not None
    assert paper_number("er", "A_AUC", configuration_of(validated)) is None  # the paper's are of test images


def test_a_curve_is_read_while_its_journal_grows_and_is_cut_back(tmp_path):
    lines = [encode(Start("0", 40, (20, 40), 10)), encode(NewClass(1, "cat"))]
    lines += [encode(Query(at, 0, (at // 10,), (4,), 0.1, at)) for at in (10, 20)]
    lines += [encode(TaskEnd(20, 0, (4,), (4,), 0.1, 20)), encode(Query(30, 1, (3,), (4,), 0.1, 30))]
    whole, journal, reader = {10: 0.25, 20: 0.5, 30: 0.75}, tmp_path / "journal.jsonl", CurveReader(tmp_path)
    assert reader.read() == {}  # not begun
    for count in (0, 1, 4, 2, 6, 3, 5, 6):
        journal.write_bytes(b"".join(lines[:count]) + b'{"kind":"que')  # with a line that is still being written
        known = sum(b'"query"' in line for line in lines[:count])
        assert reader.read() == dict(list(whole.items())[:known])
    journal.write_bytes(b"".join([*lines[:2], encode(Query(10, 0, (4,), (4,), 0.1, 10)), *lines[3:]]))
    assert reader.read() == whole | {10: 1.0}  # run anew, otherwise than before

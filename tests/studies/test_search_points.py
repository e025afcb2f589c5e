"""Searches before anything runs: what --grid and --space say, which points they make, and which one is best."""

from __future__ import annotations

import re

import pytest

from iblurry.analysis.describe import describe_settings
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import NewClass, Query, Start, TaskEnd, encode
from iblurry.studies.paper import configuration_of, paper_number
from iblurry.studies.search.points import (
    PointResult,
    SearchPoint,
    Space,
    best_points,
    check_spaces,
    expand_grid,
    grid_results,
    parse_spaces,
    search_to_json,
    search_to_terminal,
)
from iblurry.studies.search.tune import CurveReader


def base(*rows, seeds=(1,), **fields):
    return {(row, seed): Experiment.of(row, seed=seed, **{"validate": 0.1} | fields) for row in rows for seed in seeds}


def parse_grid(texts, taken=()):
    return parse_spaces(texts, taken, option="--grid")


def test_all_combinations_for_every_method_and_seed():
    points = expand_grid(
        base("clib", "er", seeds=(1, 2)), parse_grid(["schedule.initial_lr=1e-4,3e-4", "memory=20,50"])
    )
    assert [(point.row, *point.changes.values()) for point in points] == [
        (row, lr, memory) for row in ("clib", "er") for lr in ("1e-4", "3e-4") for memory in ("20", "50")
    ]
    last = points[-1].experiments
    assert [(one.seed, one.memory, one.method.schedule.initial_lr) for one in last] == [(1, 50, 3e-4), (2, 50, 3e-4)]
    assert {one.validate for point in points for one in point.experiments} == {0.1}


def test_slots_are_filled_before_fields_of_what_is_in_them():
    spaces = parse_grid(["schedule.initial_lr=0.1,0.2", "schedule=Constant,Exponential"])
    schedules = [point.experiments[0].method.schedule for point in expand_grid(base("er"), spaces)]
    kinds = [(type(one).__name__, one.initial_lr) for one in schedules]
    assert kinds == [(kind, lr) for lr in (0.1, 0.2) for kind in ("Constant", "Exponential")]


def test_commas_inside_parentheses_belong_to_a_value():
    first, second = parse_grid(["terms=(CrossEntropy,Elastic),CrossEntropy", "admission=a, (b , c) ,d"])
    assert first.choices == ("CrossEntropy,Elastic", "CrossEntropy")
    assert second.choices == ("a", "b , c", "d")


@pytest.mark.parametrize("option", ["--grid", "--space"])
@pytest.mark.parametrize(
    "text, named",
    [
        *((text, text) for text in ("memory", "memory=", "=1,2", "memory=20")),
        *((f"memory={values}", values) for values in ("20,,50", "20,50,", "(a,b", "a),b")),
        *((f"{path}=0.1,0.2", path) for path in ("dataset", "seed", "method", "name", "validate")),
    ],
)
def test_values_that_are_none(option, text, named):
    with pytest.raises(InputError, match=re.escape(named)):
        parse_spaces([text], option=option)


@pytest.mark.parametrize("text", ["memory=50..20", "memory=0..5:log", "memory=20..", "memory=nan..5"])
def test_ranges_that_are_none(text):
    with pytest.raises(InputError, match="memory"):
        parse_spaces([text])


def test_a_grid_has_no_ranges_and_each_path_once():
    twice = ["memory=20,50", "memory=100,200"]
    for texts, taken in ((["memory=20..50"], ()), (twice, ()), (["memory=20,50"], ["memory"])):
        with pytest.raises(InputError, match="memory"):
            parse_grid(texts, taken)


@pytest.mark.parametrize(
    "row, texts, named",
    [
        ("er", ["memory=20,50,20"], "memory=20"),  # the same experiment twice
        ("er", ["schedule.initial_lr=1e-4,0.0001"], "0.0001"),
        ("er", ["memroy=20,50"], "memroy"),
        ("er", ["admission=Blanced,Reservoir"], "Blanced"),
        ("er", ["memory=20,many"], "many"),
        ("joint", ["memory=20,50"], "joint"),  # which has no curve
        ("er", [f"terms.{n}.strength=0,1,2,3,4,5,6,7,8,9" for n in range(6)], "1,000,000"),
    ],
)
def test_grids_that_are_refused(row, texts, named):
    with pytest.raises(InputError, match=named):
        expand_grid(base(row), parse_grid(texts))


def test_no_choice_by_the_test_images():
    with pytest.raises(InputError, match="validate"):
        expand_grid(base("er", validate=0.0), parse_grid(["memory=20,50"]))
    with pytest.raises(InputError, match="validate"):
        check_spaces(Experiment.of("er"), parse_spaces(["memory=20..50"]))


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
    point, _ = expand_grid(base("er"), parse_grid(["memory=20,50"]))
    (result,) = grid_results([point], [_unfinished(point)], {point.experiments[0].name: InputError("too high")})
    assert (result.state, result.note, result.score) == ("failed", "too high", None)
    assert best_points([result]) == {}


def _unfinished(point):
    from iblurry.experiment.metrics import metrics
    from iblurry.experiment.result import Result

    return Result(None, point.experiments[0], [], metrics([]), None)


@pytest.mark.parametrize("width", [50, 60, 200])
def test_the_table_is_no_wider_than_the_terminal(width):
    spaces = parse_grid(["schedule.initial_lr=1e-4,3e-4", "pace.updates_per_sample=1,2", "memory=20,50"])
    points = expand_grid(base("clib", "er", seeds=(1, 2)), spaces)
    results = [PointResult(point, {1: 50.0 + n, 2: 51.0}) for n, point in enumerate(points)]
    text = search_to_terminal(results, width=width, bold=False)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("best") == 2
    assert all(text.count(value) == 8 for value in ("1e-4", "3e-4"))
    assert ("initial_lr" in text) == (width > 50)  # else folded


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
    assert [space.is_whole(experiment) for space in spaces] == [True, False, False]


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
    text = Space("lr", (str(low), str(high)), low, high).format(value)
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

"""Figures of searches: every number of fields, names and numbers, one seed and several, pruned and failed points."""

from __future__ import annotations

import pytest

from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.studies.search.figure import draw_history, draw_search
from iblurry.studies.search.points import FAILED, PRUNED, PointResult, expand_grid, parse_spaces

TITLE = "digits, on held-out training images (10 %)"
LR, MEMORY, SLOT = "schedule.initial_lr=1e-4,1e-3,1e-2", "memory=30,50", "admission=Balanced,Reservoir"


def searched(*grids, rows=("clib", "er"), seeds=(1, 2)):
    base = {(row, seed): Experiment.of(row, seed=seed, validate=0.1) for row in rows for seed in seeds}
    points = expand_grid(base, parse_spaces(grids, option="--grid"))
    return [PointResult(point, {seed: 50.0 + 3 * n % 17 + seed for seed in seeds}) for n, point in enumerate(points)]


def written(svg):
    """The text of a figure, letter by letter as it is drawn, in comments of the file."""
    return [line.strip()[5:-4] for line in svg.read_text().splitlines() if line.strip().startswith("<!-- ")]


@pytest.mark.quick("grids0-rows0-seeds0", "grids3-rows1-seeds1")
@pytest.mark.parametrize("rows, seeds", [(("er",), (1,)), (("clib", "er"), (1, 2))])
@pytest.mark.parametrize("grids", [(LR,), (SLOT,), (LR, MEMORY), (LR, MEMORY, SLOT)])
def test_any_number_of_fields(tmp_path, grids, rows, seeds):
    results = searched(*grids, rows=rows, seeds=seeds)
    draw_search(results, tmp_path / "grid.svg", title=TITLE)
    text = written(tmp_path / "grid.svg")
    assert TITLE in text
    assert any(f"n = {len(seeds)} seed" in line for line in text)
    assert any("best" in line for line in text)
    draw_search(results, tmp_path / "again.svg", title=TITLE)
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "grid.svg").read_bytes()


@pytest.mark.slow
def test_a_map_says_the_means_and_leaves_failed_points_empty(tmp_path):
    first, *rest = searched(LR, MEMORY, rows=("er",))
    failed = PointResult(first.point, {}, FAILED, "diverged")
    draw_search([failed, *rest], tmp_path / "map.svg", title=TITLE)
    text = written(tmp_path / "map.svg")
    for result in rest:
        assert any(f"{result.score.mean:.1f}" in line for line in text)
    assert not any(f"{first.score.mean:.1f}" in line for line in text)


def test_trials_in_their_order(tmp_path):
    points = searched("memory=30,40,50,60,70", rows=("er",))
    trials = [PointResult(one.point, one.values, number=n) for n, one in enumerate(points)]
    trials[1] = PointResult(points[1].point, {}, PRUNED, number=1, steps={100: 40.0, 200: 45.0})
    trials[2] = PointResult(points[2].point, {}, FAILED, "diverged", number=2)
    draw_history(trials, tmp_path / "history.svg", title=TITLE)
    text = written(tmp_path / "history.svg")
    assert {"trial", "finished", "best", "best so far", "pruned: A_AUC until then"} <= set(text)


@pytest.mark.parametrize("draw", [draw_search, draw_history])
def test_nothing_to_draw(tmp_path, draw):
    (first, *_) = searched(MEMORY)
    with pytest.raises(InputError, match="finished"):
        draw([PointResult(first.point, {}, FAILED, "diverged")], tmp_path / "none.png", title=TITLE)

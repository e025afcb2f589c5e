from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from iblurry.errors import InputError
from iblurry.experiment.journal import NewClass, Query, Record, Start
from iblurry.studies.run_figure import curves, shared_curve

SAMPLES = 60


def run(seed: int, *, every: int = 4, until: int = SAMPLES, ends: tuple[int, ...] = (20, 40, 60)) -> list[Record]:
    wobble = np.random.default_rng(seed).integers(-5, 6, size=SAMPLES + 1)
    start = Start(experiment="x", samples=SAMPLES, ends=ends, query_every=every)
    points = [
        Query(at=n, task=0, correct=(int(30 + n / 2 + wobble[n]),), total=(100,), rate=0.1, updates=n)
        for n in range(every, until + 1, every)
    ]
    return [start, NewClass(1, "ship"), NewClass(21, "cat"), *points]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures drawn, caught on their way to the file."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: figures.append(self))
    return figures


def test_shared_curve_is_the_mean_where_all_seeds_were_asked() -> None:
    at, mean, std = shared_curve("er", [run(1, every=4), run(2, every=6), run(3, every=4, until=40)])
    assert at.tolist() == [12, 24, 36]
    values = np.array([[r.accuracy for r in run(s, every=1) if isinstance(r, Query) and r.at in at] for s in (1, 2, 3)])
    assert mean == pytest.approx(values.sum(axis=0) / 3)
    assert std == pytest.approx(np.sqrt(((values - values.mean(axis=0)) ** 2).sum(axis=0) / 2))


def test_one_seed_has_no_band() -> None:
    at, mean, std = shared_curve("er", [run(1)])
    assert len(at) == len(mean) == 15
    assert std is None


def test_runs_without_a_shared_point_are_refused() -> None:
    with pytest.raises(InputError, match="The runs of 'er' share no query point"):
        shared_curve("er", [run(1, every=40), run(2, every=60)])
    with pytest.raises(InputError, match="'er' share no query point"):
        shared_curve("er", [])


def test_the_figure_shows_lines_bands_tasks_and_areas(drawn: list[Figure], tmp_path: Path) -> None:
    groups = {"clib": [run(1), run(2), run(3)], "e$r": [run(4)]}
    curves(groups, tmp_path / "f.png", title="a $title$", arrivals=True)
    axes: Axes = drawn[0].axes[0]
    clib, er, *others = axes.lines
    assert clib.get_ydata() == pytest.approx(100 * shared_curve("clib", groups["clib"])[1])
    assert er.get_xdata() == pytest.approx(np.arange(4, 61, 4))
    assert (clib.get_color(), clib.get_linestyle(), clib.get_marker()) != (
        er.get_color(),
        er.get_linestyle(),
        er.get_marker(),
    )
    assert len(axes.collections) == 1  # the band of clib only
    boundaries = [line.get_xdata()[0] for line in others if line.get_marker() == "None"]
    assert boundaries == [20, 40]
    assert [list(line.get_xdata()) for line in others if line.get_marker() == "|"] == [[1, 21]]
    assert [label.get_text() for label in axes.child_axes[0].get_xticklabels()] == ["task 1", "task 2", "task 3"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("samples seen", "accuracy on classes met so far (%)")
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    areas = [100 * np.mean([r.accuracy for r in records if isinstance(r, Query)]) for records in groups["clib"]]
    assert f"{np.mean(areas):.1f} ± {np.std(areas, ddof=1):.1f}" in labels[0]
    assert labels[1].startswith(r"e\$r")
    assert "±" not in labels[1]


def test_task_lines_are_left_out_where_runs_disagree(drawn: list[Figure], tmp_path: Path) -> None:
    curves({"er": [run(1), run(2, ends=(30, 60))]}, tmp_path / "f.png")
    assert len(drawn[0].axes[0].lines) == 1
    curves({"er": [run(1), run(2, ends=(24, 40, 60))]}, tmp_path / "f.png")
    assert len(drawn[1].axes[0].lines) == 1


def test_task_lines_stand_in_the_middle_where_runs_differ_by_a_sample_or_so(
    drawn: list[Figure], tmp_path: Path
) -> None:
    curves({"er": [run(1), run(2, ends=(21, 40, 60))]}, tmp_path / "f.png")
    assert [line.get_xdata()[0] for line in drawn[0].axes[0].lines[1:]] == [20.5, 40]


def test_ten_methods_look_different(drawn: list[Figure], tmp_path: Path) -> None:
    curves({f"m{i}": [run(i)] for i in range(10)}, tmp_path / "f.png")
    assert len({(line.get_color(), line.get_marker()) for line in drawn[0].axes[0].lines[:10]}) == 10


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_the_same_runs_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    groups = {"clib": [run(1), run(2)], "er": [run(3), run(4)]}
    for name in ("one", "two"):
        curves(groups, tmp_path / f"{name}.{suffix}", title="t")
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    curves(groups | {"er": [run(3), run(5)]}, tmp_path / f"three.{suffix}", title="t")
    assert (tmp_path / f"one.{suffix}").read_bytes() != (tmp_path / f"three.{suffix}").read_bytes()


def test_files_are_what_their_names_say(tmp_path: Path) -> None:
    groups = {"clib": [run(1), run(2)]}
    for name in ("new/f.PNG", "f.svg", "f.pdf"):
        curves(groups, tmp_path / name)
    with Image.open(tmp_path / "new/f.PNG") as image:
        assert image.width == 1320  # 6.6 inches at 200 dpi
        assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)
    assert ElementTree.parse(tmp_path / "f.svg").getroot().tag.endswith("svg")
    assert b"date" not in (tmp_path / "f.svg").read_bytes()
    assert (tmp_path / "f.pdf").read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in (tmp_path / "f.pdf").read_bytes()


def test_drawing_leaves_the_readers_settings_alone_and_does_not_heed_them(tmp_path: Path) -> None:
    groups = {"clib": [run(1)]}
    curves(groups, tmp_path / "one.svg")
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        curves(groups, tmp_path / "two.svg")
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_unknown_endings_and_nothing_to_draw_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in '\.jpg'; end it in \.png, \.svg or \.pdf"):
        curves({"er": [run(1)]}, tmp_path / "f.jpg")
    with pytest.raises(InputError, match="no runs to draw"):
        curves({}, tmp_path / "f.png")
    assert list(tmp_path.iterdir()) == []

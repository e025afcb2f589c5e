"""Every kind of figure as a file: by its ending, the same bytes again, no date, whatever the reader's settings."""

import matplotlib
import pytest

from iblurry.errors import InputError
from iblurry.studies.figures.bars import bars
from iblurry.studies.figures.classes import classwise
from iblurry.studies.figures.composition import composition
from iblurry.studies.figures.curves import curves
from iblurry.studies.figures.forgetting import forgetting
from iblurry.studies.figures.rates import rates, trace
from iblurry.studies.figures.sweep import sweep
from iblurry.studies.paper import Number
from tests.studies.figures.conftest import run
from tests.studies.figures.test_figure_composition import large

CELLS = {"N=0": {"er": [1.0, 2.0], "clib": [3.0, 5.0]}, "N=50": {"er": [1.0], "clib": [3.0]}}
PAPER = {"N=0": {"er": Number(1.2, 0.1, (1,))}}
KINDS = {
    "curves": lambda path: curves({name: {"er": [run(1)]} for name in ("a", "b")}, path, title="t"),
    "sweep": lambda path: sweep(CELLS, path, paper=PAPER, title="t"),
    "bars": lambda path: bars(CELLS, path, paper=PAPER, title="t"),
    "rates": lambda path: rates({"": {"er": [trace(run(1)), trace(run(2))]}}, path, title="t"),
    "forgetting": lambda path: forgetting({"er": classwise(run(1))}, path, title="t"),
    "composition": lambda path: composition({"er": large(30, 3)}, path, title="t"),
}
HEADS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


SOME = [
    *((kind, "svg") for kind in KINDS),
    ("sweep", "png"),
    ("composition", "png"),
    ("bars", "pdf"),
    ("forgetting", "pdf"),
]


@pytest.mark.parametrize("kind, suffix", SOME)
def test_the_same_bytes_twice(tmp_path, kind, suffix):
    one, two = tmp_path / f"one.{suffix}", tmp_path / "new" / f"two.{suffix.upper()}"
    KINDS[kind](one)
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red", "image.cmap": "gray"}):
        before = dict(matplotlib.rcParams)
        KINDS[kind](two)
        assert dict(matplotlib.rcParams) == before
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().startswith(HEADS[suffix])
    assert not [word for word in (b"CreationDate", b"<dc:date>", b"Software") if word in one.read_bytes()]


@pytest.mark.parametrize("kind", KINDS)
def test_another_ending_is_refused(tmp_path, kind):
    with pytest.raises(InputError, match=r"ends in '\.jpg'; end it in \.png, \.svg or \.pdf"):
        KINDS[kind](tmp_path / "f.jpg")
    assert list(tmp_path.iterdir()) == []

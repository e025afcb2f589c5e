"""A method looks the same wherever it is shown, and unlike what stands beside it."""

from __future__ import annotations

from itertools import combinations

import pytest

from iblurry.analysis.describe import DISPLAY_NAMES, display_name
from iblurry.analysis.figures.style import COLOURS, FAMILIES, family_name, method_styles
from iblurry.methods import METHODS
from iblurry.studies.catalogue import STUDIES

BUILT_IN = [*METHODS, *(f"{name}-released" for name in METHODS)]


def looks(rows):
    """By row, what tells it apart."""
    return {row: (one.colour, one.marker, one.fill, one.line) for row, one in method_styles(rows).items()}


@pytest.mark.parametrize("row", [*BUILT_IN, "clib memory=200", "ewc schedule=Constant", "mine", "mine-released"])
def test_a_method_looks_the_same_whatever_stands_beside_it(row):
    alone = method_styles([row])[row]
    for others in (["er"], ["clib", "er"], list(FAMILIES), list(reversed(BUILT_IN))):
        assert method_styles([*others, row])[row] == method_styles([row, *others])[row] == alone


def test_all_built_in_methods_are_told_apart():
    found = looks(METHODS)
    assert len(set(found.values())) == len(METHODS)
    assert len({found[name][0] for name in FAMILIES}) == len(FAMILIES)
    assert set(FAMILIES) == {family_name(name) for name in METHODS}  # every method of the package has its place


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_rows_of_a_study_are_told_apart(study):
    found = looks(study.rows)
    for one, other in combinations(study.rows, 2):
        assert found[one] != found[other], (one, other)


def test_variants_have_the_colour_and_the_marker_of_their_method():
    rows = ["clib", "clib-released", "clib-balanced", "clib-stream-released", *(f"clib memory={k}" for k in range(9))]
    styles = method_styles(rows)
    assert {(style.colour, style.marker) for style in styles.values()} == {("#0072B2", "o")}
    assert len(set(looks(rows).values())) == len(rows)
    assert [row for row, style in styles.items() if style.fill == "full"] == ["clib"]


def test_methods_of_ones_own_have_colours_of_their_own():
    assert family_name("er-ace") == "er-ace"  # no variant of er
    own = [f"m{n:02}" for n in range(21)]
    found = looks([*own, *BUILT_IN])
    assert len({found[row] for row in own}) == len(own)
    assert not {found[row][0] for row in own} & {found[row][0] for row in BUILT_IN}
    left = COLOURS[len(FAMILIES) :]
    assert tuple(style.colour for style in method_styles(own[: len(left)]).values()) == left
    first, second = method_styles(["z", "a"]).values()  # in the order they come
    assert (first.colour, second.colour) == left[:2]
    assert len(method_styles([*own, "more", "and more", ""])) == len(own) + 3


def test_display_names():
    assert {*METHODS} <= {*DISPLAY_NAMES}
    assert display_name("ewc schedule=Constant") == "EWC++, constant rate"
    assert display_name("er-constant-released schedule.rate=1") == "ER, constant rate (released) schedule.rate=1"
    assert display_name("") == ""
    assert len({*map(display_name, BUILT_IN)}) == len(BUILT_IN)

"""A method looks the same wherever it is shown, and unlike what stands beside it."""

from __future__ import annotations

from itertools import combinations

import pytest

from iblurry.analysis.describe import DISPLAY_NAMES, display_name
from iblurry.analysis.method_style import COLOURS, FAMILIES, family_name, method_styles
from iblurry.methods import METHODS
from iblurry.studies.catalogue import STUDIES

BUILT_IN = [*METHODS, *(f"{name}-released" for name in METHODS)]


def looks(rows):
    """By row, what tells it apart in print, and on a page, where lines have no markers."""
    styles = method_styles(rows)
    prints = {row: (one.colour, one.marker, one.fill, one.line_number) for row, one in styles.items()}
    pages = {row: (one.colour_number, one.line_number) for row, one in styles.items()}
    return prints, pages


@pytest.mark.parametrize("row", [*BUILT_IN, "clib memory=200", "ewc schedule=Constant", "mine", "mine-released"])
def test_a_method_looks_the_same_whatever_stands_beside_it(row):
    alone = method_styles([row])[row]
    for others in (["er"], ["clib", "er"], list(FAMILIES), list(reversed(BUILT_IN))):
        assert method_styles([*others, row])[row] == method_styles([row, *others])[row] == alone


def test_all_built_in_methods_are_told_apart():
    prints, pages = looks(METHODS)
    assert len(set(prints.values())) == len(METHODS)
    assert len({pages[name] for name in FAMILIES}) == len({prints[name][:2] for name in FAMILIES}) == len(FAMILIES)
    assert set(FAMILIES) == {family_name(name) for name in METHODS}  # every method of the package has its place


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_rows_of_a_study_are_told_apart_in_print_and_on_a_page(study):
    for found in looks(study.rows):
        for one, other in combinations(study.rows, 2):
            assert found[one] != found[other], (one, other)


def test_variants_have_the_colour_and_the_marker_of_their_method():
    rows = ["clib", "clib-released", "clib-balanced", "clib-stream-released", *(f"clib memory={k}" for k in range(9))]
    styles = method_styles(rows)
    assert {(style.colour, style.marker) for style in styles.values()} == {("#0072B2", "o")}
    assert len(set(looks(rows)[0].values())) == len(rows)
    assert [row for row, style in styles.items() if style.fill == "full"] == ["clib"]


def test_methods_of_ones_own_have_colours_of_their_own():
    assert family_name("er-ace") == "er-ace"  # no variant of er
    own = [f"m{n:02}" for n in range(21)]
    prints, pages = looks([*own, *BUILT_IN])
    assert len({prints[row] for row in own}) == len({pages[row] for row in own}) == len(own)
    assert not {prints[row][0] for row in own} & {prints[row][0] for row in BUILT_IN}
    left = COLOURS[len(FAMILIES) :]
    assert tuple(style.colour for style in method_styles(own[: len(left)]).values()) == left
    assert len(method_styles([*own, "more", "and more", ""])) == len(own) + 3


def test_display_names():
    papers = ["CLIB", "ER", "EWC++", "BiC", "ER-MIR", "A-GEM", "GSS", "GDumb", "RM", "Joint"]
    assert [
        display_name(name) for name in ("clib", "er", "ewc", "bic", "mir", "agem", "gss", "gdumb", "rm", "joint")
    ] == papers
    assert {*METHODS} <= {*DISPLAY_NAMES}
    assert display_name("ewc schedule=Constant") == "EWC++, constant rate"
    assert display_name("er-constant-released schedule.rate=1") == "ER, constant rate (released) schedule.rate=1"
    assert display_name("") == ""
    names = [*map(display_name, BUILT_IN)]
    assert len(set(names)) == len(names)

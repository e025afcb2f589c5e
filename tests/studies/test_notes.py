"""Notes on differences: which numbers a tested one explains, and what is none."""

from __future__ import annotations

from itertools import product

import pytest

from iblurry.errors import DataError
from iblurry.studies.notes import read_notes
from iblurry.studies.paper import Configuration

PLACES = {
    "main": Configuration("cifar10", 50, 10, 500, 5),
    "blurry": Configuration("cifar10", 0, 10, 500, 5, published=True),
    "100": Configuration("cifar100", 50, 10, 2000, 5),
}
ASKED = list(product(("er", "mir"), ("A_AUC", "A_avg"), PLACES))
TEXT = '[[note]]\nmethods = ["er", "mir"]\nmetrics = ["A_AUC"]\ntext = "A test\\nshowed it."\n'


def written(tmp_path, text):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "notes.toml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "more, explained",
    [
        ("tested = true", {"er A_AUC main", "mir A_AUC main", "er A_AUC blurry", "mir A_AUC blurry"}),
        ("tested = true\nstream = 'i-Blurry-0-10'", {"er A_AUC blurry", "mir A_AUC blurry"}),
        ("tested = true\nstream = 'i-Blurry-0'", set()),
        ("tested = false", set()),
        ("", set()),
    ],
)
def test_which_numbers_a_note_explains(tmp_path, more, explained):
    (note,) = read_notes(written(tmp_path, TEXT + more))
    found = [asked for asked in ASKED if note.explains(asked[0], asked[1], PLACES[asked[2]])]
    assert set(map(" ".join, found)) == explained
    assert str(note).startswith("- **`er`, `mir` in A_AUC on cifar10")
    assert str(note).endswith("A test showed it.")


@pytest.mark.parametrize(
    "text, named",
    [
        (TEXT.replace("A_AUC", "A_acg"), "A_acg"),
        (TEXT.replace("methods", "method"), "method"),
        (TEXT.replace("text", "test"), "test"),
        (TEXT.replace("note", "notes"), "note"),
        ("[[note]", "notes.toml"),
    ],
)
def test_what_is_no_note_is_refused(tmp_path, text, named):
    with pytest.raises(DataError, match=named):
        read_notes(written(tmp_path, text))

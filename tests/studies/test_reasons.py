"""Reasons in the notes: which rows, metrics and configurations they are for, and what is none."""

from __future__ import annotations

import pytest

from iblurry.errors import InputError, UnknownNameError
from iblurry.studies.paper import Configuration
from iblurry.studies.reasons import read_reasons

MAIN = Configuration("cifar10", 50, 10, 500, 5)
ALL_BLURRY = Configuration("cifar10", 0, 10, 500, 5, published=True)
CIFAR100 = Configuration("cifar100", 50, 10, 2000, 5)
PLACES = {"main": MAIN, "blurry": ALL_BLURRY, "100": CIFAR100}
ASKED = ("er A_AUC main", "er F_last main", "er A_AUC 100", "mir A_AUC main", "mir A_avg blurry", "bic A_AUC main")


@pytest.mark.parametrize(
    "head, covered",
    [
        ("Why `er` differs", {"er A_AUC main", "er F_last main", "er A_AUC 100"}),
        ("Why `er`, `mir` differ in A_AUC", {"er A_AUC main", "er A_AUC 100", "mir A_AUC main"}),
        ("Why `er` differs on cifar10", {"er A_AUC main", "er F_last main"}),
        ("Why `mir` differs in A_avg, F_last on cifar10, i-Blurry-0-10", {"mir A_avg blurry"}),
        ("Why `mir` differs on cifar10, i-Blurry-0", set()),
    ],
)
def test_what_a_reason_covers(head, covered):
    (reason,) = read_reasons(f"Text.\n\n- **Other.** Why not?\n- **{head}.** A test\n  showed it.\n")
    found = set()
    for asked in ASKED:
        row, metric, where = asked.split()
        found |= {asked} if reason.covers(row, metric, PLACES[where]) else set()
    assert found == covered


def test_what_is_no_reason_is_refused():
    for head in ("Why er differs", "Why `er` is better", "Why `er` differs in"):
        with pytest.raises(InputError, match="is not a reason; write"):
            read_reasons(f"- **{head}.** So.")
    with pytest.raises(UnknownNameError, match=r"'A_acg'\. Did you mean 'A_avg'"):
        read_reasons("- **Why `er` differs in A_acg.** So.")
    assert read_reasons("- **Seeds.** Why `er` differs.\n") == []

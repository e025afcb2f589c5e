"""Blocks of dice are worked out once each, however batch sizes and purposes alternate."""

import numpy as np

from iblurry.augment.blocks import KEPT, Blocks
from iblurry.rng import BLOCK, Rng


def counting():
    made = []

    def make(uniforms, n):
        made.append(n)
        return [(n, float(row[0])) for row in uniforms]

    return made, Blocks(make)


def test_each_step_gets_its_own_row():
    _, blocks = counting()
    rng = Rng(3)
    for step in (0, 7, 500, 6, 501):
        for n in (16, 50):
            n_back, first = blocks.at(rng, "augment", step, n=n, uniforms=4 * n + 4)
            assert (n_back, first) == (n, Rng(3).uniforms("augment", step, 4 * n + 4)[0])


def test_alternating_sizes_and_purposes_do_not_throw_again():
    made, blocks = counting()
    rng, steps = Rng(1), 200
    for step in range(steps):
        for n, purpose in ((16, "augment"), (50, "augment"), (16, "other")):
            blocks.at(rng, purpose, step, n=n, uniforms=4 * n + 4)
    whole = {n: int(np.ceil(steps / (BLOCK // (4 * n + 4)))) for n in (16, 50)}
    assert (made.count(16), made.count(50)) == (2 * whole[16], whole[50])


def test_another_dice_throws_its_own():
    _, blocks = counting()
    first = [blocks.at(Rng(seed), "augment", 0, n=1, uniforms=8) for seed in (1, 2, 1)]
    assert first[0] == first[2] != first[1]


def test_only_the_latest_are_kept():
    made, blocks = counting()
    rng = Rng(1)
    for n in range(1, KEPT + 2):
        blocks.at(rng, "augment", 0, n=n, uniforms=4 * n + 4)
    made.clear()
    for n in (2, KEPT + 1):
        blocks.at(rng, "augment", 0, n=n, uniforms=4 * n + 4)
    assert made == []
    blocks.at(rng, "augment", 0, n=1, uniforms=8)
    assert made == [1]

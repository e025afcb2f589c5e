"""A grid over learning rate and memory, chosen on held-out training images, and its best point in a LaTeX table.

python examples/grid_table.py
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from iblurry import Experiment, Exponential, results, run

RATES, MEMORIES = (3e-4, 1e-3), (25, 50)
SHARE = 0.2  # of each class's training images, to be done in a minute
POINT = ["memory", "schedule.initial_lr"]


def train(memory: int, rate: float, seed: int, out: str, validate: float = 0.0) -> None:
    """`validate` holds that share of the training images out and asks about those."""
    fixed = {"memory": memory, "share": SHARE, "validate": validate, "schedule": Exponential(initial_lr=rate)}
    run(Experiment.of("er", "digits", seed=seed, **fixed), out=out)


def main() -> None:
    for memory, rate in product(MEMORIES, RATES):
        train(memory, rate, seed=11, out="search", validate=0.2)
    chosen = results("search").groupby(POINT)["a_auc"].mean()
    print(chosen.to_string(float_format="{:.1%} on held-out images".format))
    for (memory, rate), seed in product(chosen.groupby("memory").idxmax(), (1, 2)):
        train(memory, rate, seed, out="report")  # on other seeds, and on the test images
    found = results("report", fields=POINT).groupby(POINT)["a_auc"].agg(["mean", "std"])
    table = found.reset_index().to_latex(index=False, formatters=["{}".format, "{:g}".format, *["{:.3f}".format] * 2])
    Path("er.tex").write_text(table)
    print(table)


if __name__ == "__main__":
    main()

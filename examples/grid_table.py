"""A grid over learning rate and memory, chosen on held-out training images, and its best point in a LaTeX table.

python examples/grid_table.py
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from statistics import mean, stdev

from iblurry import Experiment, Exponential, run

RATES, MEMORIES = (3e-4, 1e-3), (25, 50)
SHARE = 0.2  # of each class's training images, to be done in a minute


def a_auc(rate: float, memory: int, seeds: tuple[int, ...], *, validate: float = 0.0) -> list[float]:
    """Per cent, one for each seed; `validate` holds that share of the training images out and asks about those."""
    fixed = {"memory": memory, "share": SHARE, "validate": validate, "schedule": Exponential(initial_lr=rate)}
    return [100 * run(Experiment.of("er", "digits", seed=seed, **fixed), out="runs").metrics.a_auc for seed in seeds]


def main() -> None:
    chosen = {point: mean(a_auc(*point, seeds=(11,), validate=0.2)) for point in product(RATES, MEMORIES)}
    for (rate, memory), score in chosen.items():
        print(f"rate {rate:g}, memory {memory}: {score:.1f} % on held-out images")
    rows = []
    for memory in MEMORIES:  # reported on other seeds, and on the test images
        best = max(RATES, key=lambda rate: chosen[rate, memory])
        scores = a_auc(best, memory, seeds=(1, 2))
        rows.append(rf"    {memory} & {best:g} & ${mean(scores):.1f} \pm {stdev(scores):.1f}$ \\")
    head = [r"\begin{tabular}{rrc}", r"    \toprule", r"    $K$ & rate & $A_\mathrm{AUC}$ (\%) \\", r"    \midrule"]
    table = "\n".join([*head, *rows, r"    \bottomrule", r"\end{tabular}"])
    Path("er.tex").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()

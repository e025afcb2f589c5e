"""Class-incremental digits: two classes a task, no sample comes back, and three methods side by side.

python examples/class_incremental_digits.py
"""

from __future__ import annotations

from iblurry import Experiment, IBlurry, run

METHODS = ("er", "er-ace", "clib")


def main() -> None:
    disjoint = IBlurry(tasks=5, disjoint=100, blur=0)  # N = 100: every class is in one task only
    for method in METHODS:
        experiment = Experiment.of(method, "digits", stream=disjoint, memory=100, share=0.5, seed=1)
        metrics = run(experiment, out="runs").metrics
        ends = f"A_last {100 * metrics.a_last:.1f} %, F_last {100 * metrics.f_last:.1f} %"
        print(f"{method:7} A_AUC {100 * metrics.a_auc:.1f} %, {ends}")


if __name__ == "__main__":
    main()

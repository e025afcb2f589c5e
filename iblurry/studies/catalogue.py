"""The studies: every table and figure of the paper, and what nobody has published yet."""

from __future__ import annotations

from collections.abc import Mapping

from iblurry.errors import UnknownNameError
from iblurry.experiment.settings import setting
from iblurry.studies.equal import EqualCompute
from iblurry.studies.study import METHODS, Changes, Study

MANY_CLASSES = ("cifar100", "tinyimagenet", "imagenet")


def memory_sizes(dataset: str) -> Mapping[str, Changes]:
    """Columns of K: two fifths, once and twice the usual memory; 200, 500, 1,000 on CIFAR-10, as the paper has it."""
    usual = setting(dataset).memory
    return {f"K={k}": {"memory": k} for k in (usual * 2 // 5, usual, usual * 2)}


def task_counts(dataset: str) -> Mapping[str, Changes]:
    """Columns of T: 5, 10 and 25 as the paper has on CIFAR-100; fewer where 10 classes are all there are.

    Two or ten tasks cannot share five disjoint classes equally, so there the split is uneven.
    """
    if dataset.split(":", 1)[0] in MANY_CLASSES:
        return {f"T={t}": {"tasks": t} for t in (5, 10, 25)}
    return {
        "T=2": {"tasks": 2, "mode": "uneven"},
        "T=5": {"tasks": 5},
        "T=10": {"tasks": 10, "mode": "uneven"},
    }


MAIN = Study(
    name="main",
    title="Main results",
    shows=("Table 1", "Table 8"),
    question="Which method is best at any time, and at the end?",
    datasets=("cifar10", "cifar100", "tinyimagenet", "imagenet"),
    rows=("joint", *METHODS),
    once=("joint",),  # as in the paper
    metrics=("a_auc", "a_avg", "f_last", "a_last"),  # joint training, asked at the end alone, has the last only
)
DISJOINT = Study(
    name="disjoint",
    title="Disjoint classes",
    shows=("Table 2",),
    question="How do the methods compare at different percentages N of disjoint classes, which come in one task only?",
    columns=lambda dataset: {f"N={n}": {"disjoint": n} for n in (0, 50, 100)},
)
BLUR = Study(
    name="blur",
    title="Blurry samples",
    shows=("Table 2",),
    question="How do the methods compare at different percentages M of samples that come in other tasks?",
    columns=lambda dataset: {f"M={m}": {"blur": m} for m in (10, 30, 50)},
)
ABLATION = Study(
    name="ablation",
    title="Parts of CLIB",
    shows=("Table 3",),
    question="How much does each part of CLIB add: memory by importance, training on memory only, adaptive rate?",
    datasets=("cifar10", "cifar100"),
    rows=("clib", "clib-reservoir", "clib-stream", "clib-exponential"),
)
MEMORY = Study(
    name="memory",
    title="Memory sizes",
    shows=("Table 4",),
    question="Which method is best with a small memory, and which with a large one?",
    columns=memory_sizes,
)
TASKS = Study(
    name="tasks",
    title="Numbers of tasks",
    shows=("Table 5",),
    question="Which methods stay accurate when the same classes come in more and shorter tasks?",
    datasets=("cifar100",),
    columns=task_counts,
)
AGEM = Study(
    name="agem",
    title="A-GEM",
    shows=("Table 6",),
    question="How good is A-GEM, which was made for known tasks, when the task is not known?",
    datasets=("cifar10", "cifar100"),
    rows=("ewc", "bic", "mir", "agem", "gdumb", "rm", "er", "clib"),
)
GSS = Study(
    name="gss",
    title="Memory management",
    shows=("Table 7",),
    question="Which samples are best to keep: diverse ones (GSS), random ones (ER), or important ones (CLIB)?",
    datasets=("cifar10", "cifar100"),
    rows=("gss", "er", "clib"),
)
SCHEDULES = Study(
    name="schedules",
    title="Learning rates of the baseline",
    shows=("Table 9",),
    question="Is a rate that decays and restarts with each new class better than a constant one?",
    rows=("er-constant", "er", "ewc schedule=Constant", "ewc"),
)
CURVES = Study(
    name="curves",
    title="Accuracy to samples",
    shows=("Figure 4",),
    question="Which method is accurate throughout the stream?",
    datasets=("cifar10", "cifar100", "tinyimagenet", "imagenet"),
)
RM_CURVE = Study(
    name="rm-curve",
    title="RM against CLIB",
    shows=("Figure 2",),
    question="What does A_AUC show that A_avg does not, when a method learns at the ends of tasks only?",
    rows=("rm", "clib"),  # the paper names no data set; its text compares the two on CIFAR-10
)
N0_CURVE = Study(
    name="n0-curve",
    title="Accuracy to samples, all classes blurry",
    shows=("Figure 5",),
    question="Does accuracy still fall late in the stream when no new class comes after the first task?",
    columns=lambda dataset: {"N=0": {"disjoint": 0}},
)
BALANCE = Study(
    name="balance",
    title="Importance and balance",
    question="Is CLIB's memory by importance better than a memory balanced over classes?",
    rows=("clib", "clib-balanced", "clib-released"),
)
COMPUTE = EqualCompute(
    name="compute",
    title="Equal compute",
    question="Which method is best when all have the same compute as CLIB?",
    datasets=("cifar10", "cifar100", "tinyimagenet", "imagenet"),
    # not A-GEM and GSS, which alone take more where the memory is small
    metrics=("a_auc", "a_avg", "compute"),  # whole epochs, and what a bill leaves out, are not quite equal
)
LEADERBOARD = EqualCompute(
    name="leaderboard",
    title="Leaderboard",
    question="Which method is best without being told of tasks, at its own pace and at BALM's compute?",
    datasets=("cifar10",),
    rows=(
        *("er", "er-averaged", "er-ace", "derpp", "mir", "mkd", "agem", "gss"),
        *("sar", "sdp", "clib", "clib-averaged", "balm"),
    ),
    metrics=("a_auc", "a_avg", "a_last", "f_last", "compute"),
    reference="balm",
    own_pace_only=("mir", "agem", "gss", "clib", "clib-averaged"),
)
STUDIES = {
    study.name: study
    for study in (
        *(MAIN, DISJOINT, BLUR, ABLATION, MEMORY, TASKS, AGEM, GSS, SCHEDULES),
        *(RM_CURVE, CURVES, N0_CURVE),
        *(BALANCE, COMPUTE, LEADERBOARD),
    )
}


def get_study(name: str) -> Study:
    """The study of this name, as the command line gives it."""
    if name not in STUDIES:
        raise UnknownNameError("study", name, STUDIES)
    return STUDIES[name]

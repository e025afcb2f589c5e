"""What each method publishes: batches, rates, weights and decays as its paper or released program gives them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from iblurry import Domains, Gaussian, IBlurry, Listed, Published, SiBlurry, Sigmoid, parts
from iblurry.experiment.settings import setting
from iblurry.methods import METHODS

ADAM = {"Adam": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}}
SGD = {"SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}}
EXPONENTIAL = {"Exponential": {"initial_lr": 3e-4, "gamma": 0.9999, "restart_on_class": True, "per": "update"}}
CONSTANT = {"Constant": {"initial_lr": 3e-4}}
ADAPTIVE = {  # CLIB's Algorithm 3; length of a trial and warm-up are the released program's
    "Adaptive": {
        "initial_lr": 3e-4, "gamma": 0.95, "history": 10, "alpha": 0.05, "trial": 10, "ignore": 20,
        "rule": "paper", "test": "student", "head_restarts": False,
    }
}  # fmt: skip
IMPORTANCE = {"Importance": {"step": 0.1, "rule": "paper", "decrease": "untouched"}}
TEMPORAL = {"Averaged": {"decay": 0.99, "warm_up": False, "of": "average", "mirror": False}}
BALM_TEACHER = {"weight": 1.0, "temperature": 2.0, "decay": 0.9995, "warm_up": True, "batch_statistics": False}
FEATURES = {"of": "features", "width": 1000, "gamma": 1.0, "mirror": False}


def pace(stream: int, updates: str = "1", *, trains: bool = True, **others: object) -> dict[str, object]:
    """Half a batch of 16 is new with ER; what learns from the memory alone stores a sample before it trains."""
    counts = {"measure_every": 1, "count_waiting": "all"} | others
    stored = "after" if trains else "before"
    return {
        "stream_batch": stream,
        "train_stream": trains,
        "updates_per_sample": updates,
        "store_when": stored,
    } | counts


def refit(at: str, epochs: int, floor: float, *, clip: bool) -> dict[str, object]:
    """SGDR of 256 epochs: one warm at a tenth, then cycles of 1, 2, 4, ..., 128; released GDumb stops one early."""
    return {
        "readout": {"Refit": {"at": at, "epochs": epochs, "frozen_norm": False}},
        "schedule": {"Constant": {"initial_lr": 0.05}},
        "refit": {
            "rehearsal": {"Shuffled": {"count": 16}},
            "terms": [{"CrossEntropy": {}}],
            "gradient": [{"Clip": {"norm": 10.0}}] if clip else [],
            "schedule": {"Cosine": {"initial_lr": 0.05, "warm": 0.1, "floor": floor, "cycle": 1, "growth": 2}},
            "optimizer": SGD,
        },
    }


ER = {
    "pace": pace(8),
    "head": {"moments": "forget", "redraw": "own"},
    "admission": {"Reservoir": {}},
    "rehearsal": {"Uniform": {"count": 8}},
    "terms": [{"CrossEntropy": {}}],
    "gradient": [],
    "schedule": EXPONENTIAL,
    "readout": {"Plain": {}},
    "optimizer": ADAM,
    "refit": None,
}
CLIB = ER | {
    "pace": pace(1, trains=False),
    "head": {"moments": "keep", "redraw": "own"},
    "admission": IMPORTANCE,
    "rehearsal": {"Uniform": {"count": 16}},
    "schedule": ADAPTIVE,
}
UNTRAINED = ER | {
    "pace": pace(1, "0", trains=False),
    "admission": {"Discard": {}},
    "rehearsal": {"Nothing": {}},
    "schedule": CONSTANT,
}
GDUMB = UNTRAINED | {"admission": {"Balanced": {}}} | refit("query", 255, 0.0, clip=False)

PUBLISHED = {
    "er": ER,
    "er-constant": ER | {"schedule": CONSTANT},
    "er-averaged": ER | {"readout": TEMPORAL},  # Soutif-Cormerais et al.: 0.99
    "agem": ER | {"rehearsal": {"Nothing": {}}, "gradient": [{"Project": {"count": 240}}]},
    "balm": ER | {
        "pace": pace(8, "2", early_samples=5000, early_updates=4),
        "admission": {"Balanced": {}},
        "terms": [
            {"AdjustedCrossEntropy": {"decay": 0.99, "least": 1e-4}},
            {"AverageTeacher": BALM_TEACHER},
        ],
        "schedule": CONSTANT,
        "readout": {"Averaged": {"decay": 0.9995, "warm_up": True, "of": "average", "mirror": False}},
    },
    "bic": ER | {
        "terms": [{"CrossEntropy": {}}, {"Distil": {"temperature": 2.0, "correct_mixed": True}}],
        "gradient": [{"Clip": {"norm": 10.0}}],
        "readout": {"BiasCorrected": {"share": 0.1, "epochs": 256, "batch": 100, "lr": 1e-3}},
    },
    "clib": CLIB,
    "clib-reservoir": CLIB | {"admission": {"Reservoir": {}}},
    "clib-stream": CLIB | {"pace": pace(8), "rehearsal": {"Uniform": {"count": 8}}},
    "clib-exponential": CLIB | {"schedule": EXPONENTIAL},
    "clib-balanced": CLIB | {"admission": {"Balanced": {}}},
    "clib-averaged": CLIB | {"readout": TEMPORAL},
    "derpp": ER | {  # two of three remembered: 16 = 6 + 10
        "pace": pace(6),
        "rehearsal": {"Uniform": {"count": 10}},
        "terms": [{"StoredLogits": {"alpha": 0.5, "beta": 0.5, "source": "answer"}}],
    },
    "er-ace": ER | {"terms": [{"AsymmetricCrossEntropy": {"stream_weight": 1.0, "memory_weight": 1.0}}]},
    "ewc": ER | {"terms": [{"CrossEntropy": {}}, {"Elastic": {"strength": 100.0, "decay": 0.5, "skip_first": True}}]},
    "gdumb": GDUMB,
    "gss": ER | {"admission": {"Diverse": {"batches": 10, "size": 10}}},
    "joint": GDUMB | {"admission": {"Everything": {}}} | refit("end", 256, 5e-4, clip=True),
    "mir": ER | {"rehearsal": {"Interfered": {"count": 8, "candidates": 50}}},
    "mkd": ER | {
        "terms": [
            {"CrossEntropy": {}},
            {"MomentumDistil": {
                "weight": 5.5, "temperature": 4.0, "decay": 0.99, "warm_up": False, "batch_statistics": True,
                "views": "teacher",
            }},
        ],
        "readout": {"Averaged": {"decay": 0.99, "warm_up": False, "of": "both", "mirror": False}},
    },
    "ncm": UNTRAINED | {"readout": {"RunningMean": FEATURES | {"expand": "none", "normalise": True}}},
    "randumb": UNTRAINED | {
        "readout": {"Discriminant": FEATURES | {"of": "pixels", "expand": "fourier", "shrinkage": None}},
    },
    "ranpac": UNTRAINED | {"readout": {"Ridge": FEATURES | {"expand": "relu", "penalty": None}}},
    "rm": ER | {  # one step for each batch of the stream, which is wholly new
        "pace": pace(16, "1/16"),
        "head": {"moments": "rebuild", "redraw": "all"},
        "admission": {"Balanced": {}},
        "rehearsal": {"Nothing": {}},
        "optimizer": SGD,
    } | refit("boundary", 256, 5e-4, clip=True),
    "sar": CLIB | {
        "admission": {"Balanced": {}},
        "rehearsal": {"LeastUsed": {
            "count": 16, "horizon": 4.0, "temperature": 0.125, "similarity": "head", "rate": 1e-3, "normalise": True,
        }},
        "schedule": EXPONENTIAL,
    },
    "sdp": CLIB | {
        "head": {"moments": "keep", "redraw": "own", "train": False},
        "admission": {"Balanced": {}},
        "terms": [{"ScheduledPrior": {"mean": 10_000.0, "variance": 0.75, "window": 100}}],
        "schedule": {"ByConfidence": {"initial_lr": 3e-4}},
    },
    "slda": UNTRAINED | {"readout": {"Discriminant": FEATURES | {"expand": "none", "shrinkage": None}}},
}  # fmt: skip


OTHERS = [  # defaults that no recipe uses; RM's rates on ImageNet at first
    (parts.MultiStep(), {"initial_lr": 0.05, "warm": 0.1, "milestones": (30, 60, 80, 90), "factor": 0.1}),
    (parts.Cosine(), {"initial_lr": 0.05, "warm": 0.1, "floor": 5e-4, "cycle": 1, "growth": 2}),
    (parts.Exponential(), EXPONENTIAL["Exponential"]),
    (parts.AverageTeacher(), BALM_TEACHER | {"decay": 0.999}),
    (parts.Clip(), {"norm": 10.0}),  # BiC and RM
    (parts.Interfered(), {"count": 8, "candidates": 50}),
    (parts.LeastUsed(), PUBLISHED["sar"]["rehearsal"]["LeastUsed"]),
    (parts.Refit(), {"at": "query", "epochs": 256, "frozen_norm": False}),
    (parts.Shuffled(), {"count": 16}),
    (parts.Uniform(), {"count": 8}),  # half of i-Blurry's batch of 16
    (IBlurry(), {"tasks": 5, "disjoint": 50.0, "blur": 10.0, "mode": "strict"}),  # i-Blurry-50-10
    (SiBlurry(), {"tasks": 5, "disjoint": 50.0, "blur": 10.0}),
    (Gaussian(), {"sigma": 0.1, "periods": 1, "initial": 1.0}),  # SDP's periodic setting
    (Sigmoid(), {"tasks": 5, "width": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize("component, fields", OTHERS, ids=lambda value: type(value).__name__)
def test_a_component_is_as_published(component, fields):
    assert component.to_json() == {type(component).__name__: fields}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_as_published(name):
    assert METHODS[name]().to_json() == {"name": name} | PUBLISHED[name]


@pytest.mark.parametrize(
    "data, batch, updates, gamma, measure_every, epochs, milestones",
    [
        ("cifar10", 16, 1, 0.9999, 1, 256, ()),
        ("cifar100", 16, 3, 0.9999, 1, 256, ()),
        ("tinyimagenet", 32, 3, 0.99995, 1, 256, ()),
        ("imagenet", 256, 0.25, 0.99995, 10, 100, (30, 60, 80, 90)),
    ],
)
def test_what_is_tuned_per_data_set_reaches_the_methods(data, batch, updates, gamma, measure_every, epochs, milestones):
    tuned = setting(data).hyperparameters
    er, clib, rm, gdumb, derpp, mir, balm = (
        METHODS[name](tuned) for name in ("er", "clib", "rm", "gdumb", "derpp", "mir", "balm")
    )
    assert (er.pace.stream_batch, er.rehearsal.count, clib.rehearsal.count) == (batch // 2, batch // 2, batch)
    assert er.pace.updates_per_sample == clib.pace.updates_per_sample == Fraction(updates)
    assert balm.pace.updates_per_sample == 2 * Fraction(updates)
    assert (er.schedule.gamma, er.pace.measure_every, clib.pace.measure_every) == (gamma, measure_every, measure_every)
    assert (rm.pace.stream_batch, rm.pace.updates_per_sample, rm.readout.epochs) == (batch, Fraction(1, batch), epochs)
    assert getattr(rm.refit.schedule, "milestones", ()) == milestones
    assert (gdumb.readout.epochs, gdumb.refit.rehearsal.count) == (min(255, epochs), batch)
    assert mir.rehearsal.count == min(50, batch // 2)
    assert (derpp.pace.stream_batch, derpp.rehearsal.count) == (batch - 2 * batch // 3, 2 * batch // 3)


CLIB_FAMILY = {name for name, slots in PUBLISHED.items() if "Importance" in slots["admission"]}
ASKED = {  # what a part asks of the learner, and the methods with such a part: the others must not pay for it
    "needs_plain": {"mkd"},
    "needs_losses": CLIB_FAMILY | {"clib-reservoir", "clib-balanced"},  # for importance, or for the adaptive rate
    "needs_augment_params": {"agem"},
    "overlaps_forward": {"agem"},
    "needs_boundaries": {"bic", "ewc", "rm"},
    "refits": {"gdumb", "rm", "joint"},
    "learns": {"ncm", "randumb", "ranpac", "slda"},
    "keeps_none": {"ncm", "randumb", "ranpac", "slda"},
    "keeps_all": {"joint"},
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_asks_for_what_its_paper_needs(name):
    method = METHODS[name]()
    slots = [method.admission, method.rehearsal, *method.terms, *method.gradient, method.schedule, method.readout]
    asked = {trait for trait in ASKED if any(getattr(part, trait, False) for part in slots)}
    assert asked == {trait for trait, methods in ASKED.items() if name in methods}


@pytest.mark.parametrize(
    "stream, has_boundaries, names_samples",
    [
        (IBlurry, True, False),
        (SiBlurry, True, False),
        (Gaussian, False, False),
        (Sigmoid, False, False),
        (Published, True, True),
        (Listed, True, True),
        (Domains, True, True),
    ],
)
def test_what_a_stream_tells_a_run(stream, has_boundaries, names_samples):
    assert (stream.has_boundaries, stream.names_samples) == (has_boundaries, names_samples)

"""What a method says it costs and stores is what it costs and stores: counted on a learner at work."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from iblurry.compute import Cost, Passes, Workload
from iblurry.engine.mlp_passes import MLPPasses
from iblurry.engine.network import OptimizedNetwork
from iblurry.errors import InputError
from iblurry.learner.cost import MethodCost, cost, stores
from iblurry.methods import METHODS, Hyperparameters, bic, clib, er, mir
from iblurry.methods.method import KINDS, Pace
from iblurry.network.shadow import ShadowNetwork
from iblurry.parts import (
    BiasCorrected,
    Distil,
    Diverse,
    Importance,
    Interfered,
    NearestMean,
    Project,
    Refit,
    Ridge,
    ScheduledPrior,
    Uniform,
)
from tests.laws.lawful import HYPERPARAMETERS, LAWFUL, new_learner

BUDGET = 54  # 4 wait outside ER's memory; a tenth of the other 50 is one validation sample for each of 5 classes


def _quick(method):
    """Three epochs are as good to count as hundreds, and two batches of gradients as many."""
    if isinstance(method.admission, Diverse):
        method = dataclasses.replace(method, admission=Diverse(batches=2, size=4))
    if method.refit is None:
        return method
    return dataclasses.replace(method, readout=dataclasses.replace(method.readout, epochs=3))


METERED = {
    **{name: _quick(method) for name, method in LAWFUL.items()},
    "mir-few": mir(HYPERPARAMETERS, rehearsal=Interfered(count=2, candidates=5)),
    "mir-memory-only": mir(HYPERPARAMETERS, pace=Pace(stream_batch=1, train_stream=False, store_when="before")),
    "er-thrice": er(Hyperparameters(batch=6, updates_per_sample=3)),
    "clib-all-rows": clib(HYPERPARAMETERS, rehearsal=Uniform(count=BUDGET)),
    "bic-more-aside": bic(HYPERPARAMETERS, readout=BiasCorrected(share=0.3)),
}
FULL = Workload(streamed=8, batch=16, capacity=100, budget=54, classes=4, tasks=1)
BY_HAND = [  # 8 new and 8 remembered images in a batch
    (Diverse(), FULL, Cost(sample=Passes(101, 101))),  # the new sample, and ten batches of ten
    (Diverse(batches=3, size=4), dataclasses.replace(FULL, capacity=2), Cost(sample=Passes(7, 7))),
    (Diverse(), dataclasses.replace(FULL, capacity=0), Cost(sample=Passes(0, 0))),
    (Importance(), FULL, Cost()),
    (Importance(decrease="running"), FULL, Cost(sample=Passes(1, 0))),
    (Project(), FULL, Cost(update=Passes(100, 100))),
    (Project(count=30), FULL, Cost(update=Passes(30, 30))),
    (Interfered(), FULL, Cost(update=Passes(108, 8))),  # a step on the new, and 50 candidates before and after it
    (Interfered(), dataclasses.replace(FULL, capacity=20), Cost(update=Passes(48, 8))),
    (Interfered(), dataclasses.replace(FULL, streamed=0), Cost()),
    (Distil(), FULL, Cost(update=Passes(16, 0))),
    (Distil(), dataclasses.replace(FULL, tasks=0), Cost()),
    (ScheduledPrior(), FULL, Cost(update=Passes(16, 0), sample=Passes(1, 0))),
    (NearestMean(), FULL, Cost(query=Passes(100, 0))),
    (Ridge(), FULL, Cost(sample=Passes(1, 0))),
    (Ridge(mirror=True), FULL, Cost(sample=Passes(2, 0))),
    (Ridge(of="pixels"), FULL, Cost()),
    (Refit(at="query", epochs=3), FULL, Cost(query=Passes(300, 300))),
    (Refit(at="boundary", epochs=3), FULL, Cost(task=Passes(300, 300))),
    (BiasCorrected(), FULL, Cost(query=Passes(4, 0), task=Passes(4, 0))),  # 5 aside, one for each class
    (BiasCorrected(), dataclasses.replace(FULL, tasks=0), Cost()),
]


@pytest.mark.parametrize("part, workload, expected", BY_HAND, ids=repr)
def test_a_part_costs_what_its_formula_says(part, workload, expected):
    assert part.cost(workload) == expected


PERIOD = 24  # samples: whole rounds and whole spans between two measures for all of the above


@pytest.fixture
def meter(monkeypatch):
    """Counts the images through any network: forwards, and backwards where a gradient comes back to the answer."""
    count = SimpleNamespace(forward=0, backward=0)
    forward = OptimizedNetwork.forward_both

    def metered(self, images):
        features, logits = forward(self, images)
        count.forward += len(images)
        if logits.requires_grad:
            logits.register_hook(lambda _: setattr(count, "backward", count.backward + len(images)))
        return features, logits

    def since_last():
        passes = Passes(count.forward, count.backward)
        count.forward = count.backward = 0
        return passes

    def by_hand(passes, images, forward=MLPPasses.forward_both):
        count.forward += len(images)
        return forward(passes, images)

    def backward(passes, backward=MLPPasses.backward):
        count.backward += len(passes.gradient)
        backward(passes)

    monkeypatch.setattr(OptimizedNetwork, "forward_both", metered)
    monkeypatch.setattr(MLPPasses, "forward_both", by_hand)
    monkeypatch.setattr(MLPPasses, "backward", backward)
    return since_last


@pytest.mark.quick("er", "clib", "bic", "mir", "gdumb", "derpp", "slda")
@pytest.mark.parametrize("name", METERED)
def test_declared_is_counted(name, meter, samples, questions):
    method = METERED[name]
    method = dataclasses.replace(method, pace=dataclasses.replace(method.pace, early_samples=0))
    budget = 96 + PERIOD if method.admission.keeps_all else BUDGET
    learner = new_learner(method, network="mlp:width=12", memory=budget)
    endless = itertools.cycle(samples)
    for at in range(1, 97):  # memory full, five classes met, one of them in the third task
        learner.observe(*next(endless))
        if at in (20, 40):
            learner.end_task()
    assert learner.context.memory.full or method.admission.keeps_all
    assert len(learner.labels) == 5
    meter()

    for _ in range(PERIOD):
        learner.observe(*next(endless))
    sample = meter() * (1 / PERIOD)
    learner.predict(questions)
    asked = Passes(0 if name == "randumb" else -len(questions))  # which has no network
    query = meter() + asked
    learner.predict(questions)
    again = meter() + asked
    learner.end_task()
    declared = cost(method, budget, classes=5)
    assert (sample.forward, sample.backward) == pytest.approx((declared.sample.forward, declared.sample.backward))
    assert (query, meter()) == (declared.query, declared.task)
    assert again == Passes()  # nothing was learnt in between


def test_the_paper_s_methods_at_the_paper_s_size():
    """By hand: batches of 16, one update per sample, K = 500 on CIFAR-10."""
    counted = {name: cost(METHODS[name](), 500).sample for name in ("er", "ewc", "bic", "mir", "agem", "gss", "clib")}
    assert counted == {
        "er": Passes(16, 16),
        "ewc": Passes(16, 16),
        "bic": Passes(16 + 16, 16),
        "mir": Passes(16 + 8 + 2 * 50, 16 + 8),
        "agem": Passes(8 + 240, 8 + 240),
        "gss": Passes(16 + 101, 16 + 101),
        "clib": Passes(16 + 500, 16),
    }
    assert cost(METHODS["gdumb"](), 500) == MethodCost(
        sample=Passes(), query=Passes(255 * 500, 255 * 500), task=Passes()
    )
    assert cost(METHODS["rm"](), 500) == MethodCost(
        sample=Passes(1, 1), query=Passes(), task=Passes(256 * (500 - 16), 256 * (500 - 16))
    )
    answered = Passes(40)  # a tenth of 492 is 49: four for each class
    assert cost(bic(), 500) == MethodCost(sample=Passes(32, 16), query=answered, task=answered)


def test_the_pace_is_in_it():
    slow = clib(Hyperparameters(updates_per_sample="1/4", measure_every=10))
    assert cost(slow, 500).sample == Passes((16 + 50) / 4, 16 / 4)
    assert cost(dataclasses.replace(slow, admission=Importance(decrease="running")), 500).sample.forward == 66 / 4 + 1


def test_costs_add_up():
    one = Cost(update=Passes(1, 2), sample=Passes(3), query=Passes(4), task=Passes(5, 6))
    assert one + one == Cost(update=Passes(2, 4), sample=Passes(6), query=Passes(8), task=Passes(10, 12))
    assert Passes(3, 1) * 2 == Passes(6, 2)


def test_no_row_no_cost():
    with pytest.raises(InputError, match="memory=8 leaves er no row: 8 samples are kept outside"):
        cost(er(), 8)


PARTS = [part for kind in KINDS.values() for part in kind.known().values()]
OURS = [part for part in PARTS if part.__module__.startswith("iblurry.")]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_what_is_stored_is_said(kind, make_context):
    """A part that keeps more than single numbers names it, and no other does."""
    context = make_context(40)
    part = kind().attach(context)
    shadows = [shared.network for shared in context.shared.values() if isinstance(shared, ShadowNetwork)]
    kept = [*shadows, *(value for name, value in vars(part).items() if name != "context")]
    assert any(size > 1 for value in kept for size in sizes(value)) == bool(kind.stores)


def sizes(value):
    """How many numbers are in each tensor of it."""
    if isinstance(value, torch.Tensor):
        yield value.numel()
    elif isinstance(value, nn.Module):
        yield from sizes(value.state_dict())
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from sizes(part)


def test_phrases_name_the_fields():
    assert stores(er()) == []
    quarter = stores(bic(readout=BiasCorrected(share=0.25)))
    assert quarter == [
        "a copy of the network as a teacher",
        "25% of the budget as a validation set, never trained on",
    ]


def test_a_part_that_says_nothing_costs_nothing():
    workload = Workload(streamed=8, batch=16, capacity=500, budget=500, classes=10)
    assert er().rehearsal.cost(workload) == Cost()


def test_what_two_parts_share_is_named_once():
    """BALM's average teaches and answers."""
    named = stores(METHODS["balm"]())
    assert len(named) == len(set(named)) == 2

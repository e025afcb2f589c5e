"""What a method costs and keeps: declared by its parts, counted by the host, and metered on networks at work."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import pytest
import torch
from torch import nn

from iblurry.compute import ComputeMeter, Cost, Passes, Workload
from iblurry.engine.mlp_passes import MLPPasses
from iblurry.engine.network import OptimizedNetwork
from iblurry.errors import InputError
from iblurry.learner.cost import HOLDINGS, MethodCost, bytes_held, cost, stores
from iblurry.methods import METHODS, Hyperparameters, bic, clib, er, gdumb, mir
from iblurry.methods.method import KINDS, Method, Pace
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
    Shuffled,
    Uniform,
)
from iblurry.parts.context import Context
from iblurry.parts.readout.closed_form import ClosedForm
from tests.laws.lawful import HYPERPARAMETERS, LAWFUL, assert_same_state, new_learner
from tests.laws.test_laws import feed

BUDGET = 54  # 4 wait outside ER's memory; a tenth of the other 50 is one validation sample for each of 5 classes


def _quick(method: Method) -> Method:
    """Three epochs are as good to count as hundreds, and two batches of gradients as many."""
    if isinstance(method.admission, Diverse):
        return dataclasses.replace(method, admission=Diverse(batches=2, size=4))
    if isinstance(method.readout, ClosedForm):
        return dataclasses.replace(method, readout=dataclasses.replace(method.readout, width=24))
    if method.refit is not None:
        return dataclasses.replace(method, readout=dataclasses.replace(method.readout, epochs=3))
    return method


ER_REFITTED = er(  # learns online, and is refitted for queries between which nothing may be stored
    Hyperparameters(batch=16),
    readout=Refit(epochs=2),
    refit=dataclasses.replace(gdumb(HYPERPARAMETERS).refit, gradient=(Project(count=5),)),
)
METERED = {
    **{name: _quick(method) for name, method in LAWFUL.items()},
    "mir-few": mir(HYPERPARAMETERS, rehearsal=Interfered(count=2, candidates=5)),
    "mir-memory-only": mir(HYPERPARAMETERS, pace=Pace(stream_batch=1, train_stream=False, store_when="before")),
    "er-thrice": er(Hyperparameters(batch=6, updates_per_sample=3)),
    "clib-all-rows": clib(HYPERPARAMETERS, rehearsal=Uniform(count=BUDGET)),
    "bic-more-aside": bic(HYPERPARAMETERS, readout=BiasCorrected(share=0.3)),
    "er-refitted": ER_REFITTED,
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
    """Images through any network, by whether a gradient comes back; and apart, the memory's losses and a teacher's."""
    count: Counter[str] = Counter()
    forward = OptimizedNetwork.forward_both

    def metered(self, images):
        features, logits = forward(self, images)
        count["forward"] += len(images)
        if logits.requires_grad:
            logits.register_hook(lambda _: count.update(backward=len(images)))
        return features, logits

    def apart(purpose, work):
        def measured(*given, **named):
            before = count["forward"]
            values = work(*given, **named)
            count[purpose] += count["forward"] - before
            return values

        return measured

    def by_hand(passes, images, forward=MLPPasses.forward_both):
        count["forward"] += len(images)
        return forward(passes, images)

    def backward(passes, gradient, backward=MLPPasses.backward):
        count["backward"] += len(gradient)
        backward(passes, gradient)

    monkeypatch.setattr(OptimizedNetwork, "forward_both", metered)
    monkeypatch.setattr(MLPPasses, "forward_both", by_hand)
    monkeypatch.setattr(MLPPasses, "backward", backward)
    monkeypatch.setattr(Context, "memory_losses", apart("losses", Context.memory_losses))
    monkeypatch.setattr(ShadowNetwork, "forward_both", apart("distillation", ShadowNetwork.forward_both))
    return count


def totals(*tallies):
    return (
        sum(sum(tally.forward.values()) for tally in tallies),
        sum(sum(tally.backward.values()) for tally in tallies),
    )


TAUGHT = ("bic", "balm", "mkd", "sdp")  # by a shadow network
PASSING = ("bic", "derpp", "mir", "agem", "gss", "clib-running", "er-refitted", "ncm", "slda", "ranpac")  # parts do


@pytest.mark.quick("er", "clib", "bic", "mir", "gdumb", "derpp", "slda", "clib-running", "er-refitted")
@pytest.mark.parametrize("name", METERED)
def test_what_is_declared_and_counted_is_what_was_made(name, meter, samples, questions):
    """Sample by sample while the memory fills; then declared for a period in which nothing else changes."""
    method = dataclasses.replace(METERED[name], pace=dataclasses.replace(METERED[name].pace, early_samples=0))
    budget = 96 + PERIOD if method.admission.keeps_all else BUDGET
    learner = new_learner(method, network="mlp:width=12", memory=budget)
    spent, queries = learner.context.spent, learner.context.queries
    refits: list[int] = []
    learner.on_refit = lambda done, total: refits.append(done)
    endless, last = itertools.cycle(samples), Counter()

    def since_last():
        """Passes that were made since the last time, all of which were counted."""
        assert totals(spent, queries) == (meter["forward"], meter["backward"])
        made = meter - last
        last.update(made)
        return Passes(made["forward"], made["backward"])

    def ask():
        """What is passed besides the images that are asked about."""
        learner.predict(questions)
        return since_last() + Passes(0 if name.startswith("randumb") else -len(questions))  # which has no network

    for at in range(1, 97):  # memory full, five classes met, one of them in the third task
        learner.observe(*next(endless))
        since_last()
        if at in (7, 14, 33, 35, 60):  # 33 and 35 lie in one round of sixteen
            ask()
        if at in (20, 40):
            learner.end_task()
            ask()
    assert learner.context.memory.full or method.admission.keeps_all
    assert len(learner.labels) == 5
    for _ in range(PERIOD):
        learner.observe(*next(endless))
    sample, query, again = since_last() * (1 / PERIOD), ask(), ask()
    learner.end_task()
    task = since_last()
    assert again == Passes()  # nothing was learnt in between
    if name != "er-refitted":  # what rules add to a refit is not declared
        declared = cost(method, budget, classes=5)
        assert (sample.forward, sample.backward) == pytest.approx((declared.sample.forward, declared.sample.backward))
        assert (query, task) == (declared.query, declared.task)
    assert spent.updates + queries.updates == learner.context.updates + len(refits)
    assert spent.forward["losses"] == meter["losses"]
    assert spent.forward["distillation"] == meter["distillation"]
    assert (spent.forward["distillation"] > 0) == name.startswith(TAUGHT)
    assert spent.backward["distillation"] == 0  # nobody teaches the teacher
    assert spent.forward["queries"] == 0
    assert spent.forward["training"] == spent.backward["training"]
    passing = name.startswith(PASSING) and name != "mir-memory-only"  # which streams nothing to look ahead for
    assert (spent.forward["parts"] + queries.forward["parts"] > 0) == passing


def test_by_hand(samples, questions):
    """ER in rounds of four: the memory holds 0, 4, 8, ... rows, of which four join once there are any."""
    learner = new_learner(er(HYPERPARAMETERS), network="mlp:width=12")
    for image, label in samples[:11]:
        learner.observe(image, label)
    learner.predict(questions)
    spent = learner.context.spent
    assert spent.updates == 8
    assert +Counter(spent.forward) == +Counter(spent.backward) == {"training": 4 * 4 + 4 * 8}
    assert learner.context.queries.forward["queries"] == len(questions)


@pytest.mark.parametrize("name", ["bic-more-aside", "gdumb", "er-refitted"])
def test_who_resumes_counts_no_preparation_twice(name, samples, questions):
    whole, first, second = (new_learner(METERED[name], network="mlp:width=12") for _ in range(3))
    for learner in (whole, first):
        feed(learner, samples, stop=33)  # in the second task, a class is new
        learner.predict(questions)
    second.load_state_dict(first.state_dict())
    second.context.queries.load_state_dict(first.context.queries.state_dict())
    for learner in (whole, second):
        learner.predict(questions)  # prepared already; the second does not know how any more
        feed(learner, samples, start=33, stop=34)
        learner.predict(questions)
    assert_same_state(second.context.queries.state_dict(), whole.context.queries.state_dict())
    assert totals(whole.context.queries)[0] > 3 * len(questions)


def test_a_users_part_is_counted_without_a_word(samples):
    class Curious(Shuffled):
        def choose(self, stream, drawn):
            network, memory = self.context.network, self.context.memory
            with torch.enable_grad():
                network(self.context.pipeline.test(stream.images)).sum().backward()
            self.context.losses(memory.images[:3], memory.labels[:3].clamp(min=0))
            return drawn.rows

    learner = new_learner(er(HYPERPARAMETERS, rehearsal=Curious(count=4)), network="mlp:width=12")
    for image, label in samples[:8]:  # two rounds of four updates on four streamed samples
        learner.observe(image, label)
    spent = learner.context.spent
    assert (spent.forward["parts"], spent.backward["parts"]) == (8 * (4 + 3), 8 * 4)
    assert spent.forward["training"] == spent.backward["training"] == 4 * 4 + 4 * 8


def test_a_captured_step_is_counted_at_each_replay():
    meter, rows = ComputeMeter(), [5, 7]
    with meter.recording() as passes:  # as a capture does: nothing of it is computed
        with meter.counting("training"):
            meter.add(16)
        meter.add(16, backward_of="training")
        with meter.counting("losses", images=lambda: rows[0]):
            meter.add(100)
    assert sum(meter.counter.forward.values()) == 0
    for _ in range(2):
        meter.replay(passes)
        rows.pop(0)
    assert +Counter(meter.counter.forward) == {"training": 32, "losses": 12}
    assert meter.counter.backward["training"] == 32


SAMPLE, COLUMN = 64 + 8, 8  # bytes: an image of 1x8x8 with its label


@pytest.mark.quick("er", "clib", "gss", "mkd")
@pytest.mark.parametrize("name", [name for name in METHODS if "-" not in name])
def test_bytes(name, samples):
    chosen = METERED[name]
    learner = new_learner(chosen, network="mlp")
    held = bytes_held(learner)
    assert tuple(held) == HOLDINGS
    body = 64 * 256 + 256 + 256 * 256 + 256
    weights = 4 * (body + 256 * 6 + 6)
    network = weights + 6  # which rows are open
    capacity = learner.context.memory.capacity
    columns = {"clib": 4, "gss": 1, "sar": 1, "derpp": 6 // 2}.get(name, 0)  # six float32 are three float64
    assert held["memory"] == capacity * (SAMPLE + COLUMN * (1 + columns))
    assert held["stream"] == SAMPLE * chosen.pace.stream_batch
    assert held["aside"] == (2 * SAMPLE if name == "bic" else 0)  # a tenth of 20
    assert held["network"] == network
    trained = 4 * body if name == "sdp" else weights
    buffers = {"gdumb": 1, "rm": 1, "joint": 1, "ncm": 0, "slda": 0, "ranpac": 0, "randumb": 0}.get(name, 2)
    assert held["optimizer"] == trained * buffers
    average = network + 4 * (1 + 6)  # and how many updates it has seen, each row of the head too
    kept = {
        "bic": network + 6 * 2 * 4,
        "ewc": 3 * 4 * body + 8,
        "gss": 8,
        "clib": 8 + 8 + 8,
        "balm": average + 4 * 6,
        "mkd": average,
        "sdp": 2 * average + network + 4 + 4 * 6 * 100 + 8 * 6,
        "sar": 4 * (6 + 6 * 6 + 6 * 256 + 6 + 6),
        "ncm": 8 * (6 + 6 * 256),
        **{name: 8 * (6 + 6 * n + n * n + 64 * n) for name, n in (("slda", 256), ("ranpac", 24), ("randumb", 24))},
    }
    assert held["parts"] == kept.get(name, 0)
    feed(learner, samples)
    assert bytes_held(learner) == held


def test_a_fresh_network_beside_one_that_learns_is_a_second(samples):
    both = bytes_held(new_learner(METERED["er-refitted"], network="mlp", memory=40))
    plain = bytes_held(new_learner(er(HYPERPARAMETERS), network="mlp"))
    assert both["network"] == 2 * plain["network"]
    assert both["optimizer"] == plain["optimizer"] * 3 // 2


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


def test_no_row_no_cost():
    with pytest.raises(InputError, match=r"memory=8 .* er "):
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


def test_what_is_kept_is_named_once_with_its_fields():
    assert stores(er()) == []
    named = stores(bic(readout=BiasCorrected(share=0.25)))
    assert named == ["a copy of the network as a teacher", "25% of the budget as a validation set, never trained on"]
    average = stores(METHODS["balm"]())  # which teaches and answers
    assert len(average) == len(set(average)) == 2

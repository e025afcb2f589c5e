"""What the host counts is what passes through networks: metered on every method, sample by sample."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch

from iblurry.compute import ComputeMeter, QueryCounter
from iblurry.engine.mlp_passes import MLPPasses
from iblurry.engine.network import OptimizedNetwork
from iblurry.learner.cost import HOLDINGS, bytes_held
from iblurry.methods import METHODS, Hyperparameters, er, gdumb, method, mir
from iblurry.methods.method import Method, Pace
from iblurry.network.shadow import ShadowNetwork
from iblurry.parts import BiasCorrected, Diverse, Interfered, Project, Refit, Shuffled
from iblurry.parts.context import Context
from iblurry.parts.readout.closed_form import ClosedForm
from tests.laws.lawful import HYPERPARAMETERS, VARIANTS, assert_same_state, new_learner
from tests.laws.test_laws import TASK_ENDS, feed


def _quick(chosen: Method) -> Method:
    if isinstance(chosen.admission, Diverse):
        return dataclasses.replace(chosen, admission=Diverse(batches=2, size=4))
    if isinstance(chosen.readout, ClosedForm):
        return dataclasses.replace(chosen, readout=dataclasses.replace(chosen.readout, width=24))
    if chosen.refit is not None:
        return dataclasses.replace(chosen, readout=dataclasses.replace(chosen.readout, epochs=2))
    return chosen


MAIN = [name for name in METHODS if "-" not in name]
TAUGHT = ("bic", "balm", "mkd", "sdp")  # by a shadow network
COUNTED = {
    **{name: _quick(method(name, HYPERPARAMETERS)) for name in MAIN},
    **VARIANTS,
    "clib-stream": METHODS["clib-stream"](HYPERPARAMETERS),
    "bic-more-aside": METHODS["bic"](HYPERPARAMETERS, readout=BiasCorrected(share=0.4)),
    "mir-memory-only": mir(HYPERPARAMETERS, pace=Pace(stream_batch=1, train_stream=False, store_when="before")),
    "mir-few": mir(HYPERPARAMETERS, rehearsal=Interfered(count=2, candidates=5)),
    "er-refitted": er(  # learns online, and is refitted for queries between which nothing may be stored
        Hyperparameters(batch=16),
        readout=Refit(epochs=2),
        refit=dataclasses.replace(gdumb(HYPERPARAMETERS).refit, gradient=(Project(count=5),)),
    ),
}
EXTRA = (
    "bic-more-aside",
    "derpp",
    "mir",
    "mir-few",
    "agem",
    "gss",
    "clib-running",
    "er-refitted",
    "ncm",
    "slda",
    "ranpac",
)
ASKED = (7, 14, 20, 33, 35, 60)  # 33 and 35 lie in one round of sixteen


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

    def backward(passes, backward=MLPPasses.backward):
        count["backward"] += len(passes.gradient)
        backward(passes)

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


@pytest.mark.quick("er", "clib", "mir", "bic", "gdumb", "clib-running", "er-refitted")
@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted_is_what_was_made(name, meter, samples, questions):
    learner = new_learner(COUNTED[name], network="mlp:width=12")
    spent, queries = learner.context.spent, learner.context.queries
    refits: list[int] = []
    learner.on_refit = lambda done, total: refits.append(done)
    asked = 0
    for at, (image, label) in enumerate(samples, start=1):
        learner.observe(image, label)
        assert totals(spent, queries) == (meter["forward"], meter["backward"])
        if at in ASKED:
            learner.predict(questions)
            learner.predict(questions[:3])
            asked += len(questions) + 3
            assert totals(spent, queries) == (meter["forward"], meter["backward"])
        if at in TASK_ENDS:
            learner.end_task()
            learner.predict(questions[:2])
            asked += 2
            assert totals(spent, queries) == (meter["forward"], meter["backward"])
    assert spent.updates + queries.updates == learner.context.updates + len(refits)
    assert spent.forward["losses"] == meter["losses"]
    assert spent.forward["distillation"] == meter["distillation"]
    assert (spent.forward["distillation"] > 0) == name.startswith(TAUGHT)
    assert spent.backward["distillation"] == 0  # nobody teaches the teacher
    assert spent.forward["queries"] == 0
    own = queries.forward["queries"] - (0 if name == "randumb" else asked)  # which has no network
    assert own > 0 if name == "bic-more-aside" else own == 0  # a tenth of this budget is too little to fit on
    assert spent.forward["training"] == spent.backward["training"]
    extra = spent.forward["parts"] + queries.forward["parts"]
    assert (extra > 0) == (name in EXTRA)


def test_by_hand(samples, questions):
    """ER in rounds of four: the memory holds 0, 4, 8, ... rows, of which four join once there are any."""
    learner = new_learner(er(HYPERPARAMETERS), network="mlp:width=12")
    for image, label in samples[:11]:
        learner.observe(image, label)
    learner.predict(questions)
    assert learner.context.spent.state_dict() == {
        "updates": 8,
        "forward": {"training": 4 * 4 + 4 * 8, "losses": 0, "distillation": 0, "parts": 0, "features": 0, "queries": 0},
        "backward": {
            "training": 4 * 4 + 4 * 8,
            "losses": 0,
            "distillation": 0,
            "parts": 0,
            "features": 0,
            "queries": 0,
        },
    }
    assert learner.context.queries.forward["queries"] == len(questions)


@pytest.mark.parametrize("name", ["bic-more-aside", "gdumb", "er-refitted"])
def test_who_resumes_counts_no_preparation_twice(name, samples, questions):
    whole, first, second = (new_learner(COUNTED[name], network="mlp:width=12") for _ in range(3))
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


def test_preparations_are_counted_once_for_each_moment():
    queries = QueryCounter()
    assert [queries.first_time("refit", (at,)) for at in (5, 5, 6, 5)] == [True, False, True, True]
    queries.forward["queries"] += 3
    again = QueryCounter()
    again.load_state_dict(queries.state_dict())
    assert not again.first_time("refit", (5,))
    assert again.state_dict() == queries.state_dict()


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
    assert meter.counter.forward == {
        "training": 32,
        "losses": 12,
        "distillation": 0,
        "parts": 0,
        "features": 0,
        "queries": 0,
    }
    assert meter.counter.backward["training"] == 32


SAMPLE, COLUMN = 64 + 8, 8  # bytes: an image of 1x8x8 with its label


@pytest.mark.quick("er", "clib", "gss", "mkd")
@pytest.mark.parametrize("name", MAIN)
def test_bytes(name, samples):
    chosen = COUNTED[name]
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
    both = bytes_held(new_learner(COUNTED["er-refitted"], network="mlp", memory=40))
    plain = bytes_held(new_learner(er(HYPERPARAMETERS), network="mlp"))
    assert both["network"] == 2 * plain["network"]
    assert both["optimizer"] == plain["optimizer"] * 3 // 2


def test_tensors_alone_have_bytes():
    from iblurry.learner.cost import _bytes

    assert _bytes({"a": torch.zeros(3), "b": [torch.zeros(2, dtype=torch.uint8), 5], "c": "text"}) == 14

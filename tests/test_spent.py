"""What the host counts is what passes through networks: metered on every method, sample by sample."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch

from iblurry.cost import HOLDINGS, bytes_held
from iblurry.engine.eager import Eager
from iblurry.errors import UnknownNameError
from iblurry.method import Method, Pace
from iblurry.methods import METHODS, Hyperparameters, er, gdumb, method, mir
from iblurry.network.network import Network
from iblurry.parts import BiasCorrected, Distil, Diverse, Interfered, Project, Refit, Shuffled
from iblurry.parts.compute_counter import ComputeCounter, Queries
from iblurry.parts.context import Context
from iblurry.parts.cost import Cost, Passes
from tests.laws.lawful import HYPERPARAMETERS, VARIANTS, assert_same_state, new_learner
from tests.laws.test_laws import TASK_ENDS, feed


def _quick(chosen: Method) -> Method:
    if isinstance(chosen.admission, Diverse):
        return dataclasses.replace(chosen, admission=Diverse(batches=2, size=4))
    if chosen.refit is not None:
        return dataclasses.replace(chosen, readout=dataclasses.replace(chosen.readout, epochs=2))
    return chosen


MAIN = ("er", "ewc", "bic", "mir", "agem", "gss", "gdumb", "rm", "clib", "joint")
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
EXTRA = ("bic-more-aside", "mir", "mir-few", "agem", "gss", "clib-running", "er-refitted")
ASKED = (7, 14, 20, 33, 35, 60)  # 33 and 35 lie in one round of sixteen


@pytest.fixture
def meter(monkeypatch):
    """Images through any network, by whether a gradient comes back; and apart, the memory's losses and a teacher's."""
    count: Counter[str] = Counter()
    forward = Network.forward

    def metered(self, images):
        logits = forward(self, images)
        count["forward"] += len(images)
        if logits.requires_grad:
            logits.register_hook(lambda _: count.update(backward=len(images)))
        return logits

    def apart(purpose, work):
        def measured(*given):
            before = count["forward"]
            values = work(*given)
            count[purpose] += count["forward"] - before
            return values

        return measured

    monkeypatch.setattr(Network, "forward", metered)
    monkeypatch.setattr(Context, "memory_losses", apart("losses", Context.memory_losses))
    monkeypatch.setattr(Distil, "loss", apart("distillation", Distil.loss))
    return count


def totals(*tallies):
    return (
        sum(sum(tally.forward.values()) for tally in tallies),
        sum(sum(tally.backward.values()) for tally in tallies),
    )


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted_is_what_was_made(name, meter, samples, questions):
    learner = new_learner(COUNTED[name], network="mlp")
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
    assert (spent.forward["distillation"] > 0) == name.startswith("bic")
    assert spent.backward["distillation"] == 0  # nobody teaches the teacher
    assert spent.forward["queries"] == 0
    own = queries.forward["queries"] - asked
    assert own > 0 if name == "bic-more-aside" else own == 0  # a tenth of this budget is too little to fit on
    assert spent.forward["training"] == spent.backward["training"]
    extra = spent.forward["parts"] + queries.forward["parts"]
    assert (extra > 0) == (name in EXTRA)


def test_by_hand(samples, questions):
    """ER in rounds of four: the memory holds 0, 4, 8, ... rows, of which four join once there are any."""
    learner = new_learner(er(HYPERPARAMETERS), network="mlp")
    for image, label in samples[:11]:
        learner.observe(image, label)
    learner.predict(questions)
    assert learner.context.spent.state_dict() == {
        "updates": 8,
        "forward": {"training": 4 * 4 + 4 * 8, "losses": 0, "distillation": 0, "parts": 0, "queries": 0},
        "backward": {"training": 4 * 4 + 4 * 8, "losses": 0, "distillation": 0, "parts": 0, "queries": 0},
    }
    assert learner.context.queries.forward["queries"] == len(questions)


@pytest.mark.parametrize("name", ["bic-more-aside", "gdumb", "er-refitted"])
def test_who_resumes_counts_no_preparation_twice(name, samples, questions):
    whole, first, second = (new_learner(COUNTED[name], network="mlp") for _ in range(3))
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


def test_questions_are_counted_apart(samples, questions):
    """A learner's own state knows nothing of them, and a tally of them says once what was prepared once."""
    queries = Queries()
    assert [queries.is_new("refit", (at,)) for at in (5, 5, 6, 5)] == [True, False, True, True]
    queries.add("queries", Passes(3.0))
    again = Queries()
    again.load_state_dict(queries.state_dict())
    assert not again.is_new("refit", (5,))
    assert again.state_dict() == queries.state_dict()


def test_a_part_may_know_better_than_its_load(samples):
    class Coy(Shuffled):
        def cost(self, load):
            return Cost(update=Passes(100))

        def spends(self, load):
            return Cost(update=Passes(load.batch + load.capacity + 10 * load.tasks + 1000 * load.classes))

    learner = new_learner(er(HYPERPARAMETERS, rehearsal=Coy(count=4)), network="mlp")
    for image, label in samples[:8]:  # rounds after 4 and 8; the second class is the eighth sample
        learner.observe(image, label)
    assert learner.context.spent.forward["parts"] == 4 * (4 + 0 + 1000) + 4 * (8 + 4 + 2000)


def test_a_part_says_what_its_images_are_for(samples):
    class Taught(Shuffled):
        purpose = "distillation"

        def cost(self, load):
            return Cost(update=Passes(3, 1), sample=Passes(5), task=Passes(7))

    learner = new_learner(er(HYPERPARAMETERS, rehearsal=Taught(count=4)), network="mlp")
    for image, label in samples[:8]:
        learner.observe(image, label)
    learner.end_task()
    spent = learner.context.spent
    assert (spent.forward["distillation"], spent.backward["distillation"]) == (8 * 3 + 8 * 5 + 7, 8)
    assert spent.forward["parts"] == spent.backward["parts"] == 0
    with pytest.raises(UnknownNameError, match=r"purpose \(of Teased\) called 'distilation'.*Did you mean"):
        type("Teased", (Shuffled,), {"purpose": "distilation"})


def test_counts_without_a_later_purpose_have_none_of_it():
    tally = ComputeCounter()
    tally.add("distillation", Passes(4, 2))
    tally.load_state_dict({"updates": 3, "forward": {"training": 5, "parts": 6}, "backward": {"training": 5}})
    assert tally.forward == {"training": 5, "losses": 0, "distillation": 0, "parts": 6, "queries": 0}
    assert tally.backward == {"training": 5, "losses": 0, "distillation": 0, "parts": 0, "queries": 0}


SAMPLE, COLUMN = 64 + 8, 8  # bytes: an image of 1x8x8 with its label


@pytest.mark.parametrize("name", MAIN)
def test_bytes(name, samples):
    chosen = method(name, HYPERPARAMETERS)
    learner = new_learner(chosen, network="mlp")
    held = bytes_held(learner)
    assert tuple(held) == HOLDINGS
    body = 64 * 256 + 256 + 256 * 256 + 256
    weights = 4 * (body + 256 * 6 + 6)
    network = weights + 6  # which rows are open
    capacity = learner.context.memory.capacity
    columns = {"clib": 4, "gss": 1}.get(name, 0)
    assert held["memory"] == capacity * (SAMPLE + COLUMN * (1 + columns))
    assert held["stream"] == SAMPLE * chosen.pace.stream_batch
    assert held["aside"] == (2 * SAMPLE if name == "bic" else 0)  # a tenth of 20
    assert held["network"] == network
    assert held["optimizer"] == weights * (1 if name in ("gdumb", "rm", "joint") else 2)
    kept = {"bic": network + 6 * 2 * 4, "ewc": 3 * 4 * body + 8, "gss": 8, "clib": 8 + 8 + 8}.get(name, 0)
    assert held["parts"] == kept
    feed(learner, samples)
    assert bytes_held(learner) == held


def test_a_fresh_network_beside_one_that_learns_is_a_second(samples):
    both = bytes_held(new_learner(COUNTED["er-refitted"], network="mlp", memory=40))
    plain = bytes_held(new_learner(er(HYPERPARAMETERS), network="mlp"))
    assert both["network"] == 2 * plain["network"]
    assert both["optimizer"] == plain["optimizer"] * 3 // 2


def test_tensors_alone_have_bytes():
    from iblurry.cost import _bytes

    assert _bytes({"a": torch.zeros(3), "b": [torch.zeros(2, dtype=torch.uint8), 5], "c": "text"}) == 14


@pytest.mark.parametrize("name", ["er", "ewc", "bic-more-aside", "mir", "agem", "clib"])
def test_the_host_counts_what_it_does_not_run(name, samples):
    """A captured step is replayed without Python: the same is counted where no line of it runs."""

    class Replaying(Eager):
        def compile(self, step, graph_key=lambda: None):
            nothing = torch.zeros(0, dtype=torch.int64), None
            return (lambda *_: nothing) if step.__name__ == "_on_device" else step

    made, replayed = (new_learner(COUNTED[name], network="mlp", engine=engine) for engine in (Eager(), Replaying()))
    for learner in (made, replayed):
        feed(learner, samples)
    assert replayed.context.spent.state_dict() == made.context.spent.state_dict()
    assert sum(made.context.spent.forward.values()) > 0

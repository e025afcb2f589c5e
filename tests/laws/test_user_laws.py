"""The laws of a learner over networks and optimizers of a user's own; see user_module.py."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json

import pytest
import torch

from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all
from iblurry.learner.cost import bytes_held
from iblurry.learner.learner import Learner
from iblurry.methods import METHODS
from iblurry.methods.method import Method
from iblurry.storage import checkpoint
from tests.experiment.small import kept, small
from tests.laws import user_module
from tests.laws.lawful import SAMPLES, assert_same_state, new_learner
from tests.laws.test_laws import TASK_ENDS, feed, storages
from tests.learner.test_cost import METERED, meter, totals

__all__ = ["meter"]  # a fixture

NETWORKS = {
    "layer_norm": {"network": "layer_norm"},
    "group_norm": {"network": "group_norm:channels=4"},
    "group_norm redrawn": {"network": "group_norm", "initialise": "redraw"},
    "bias_free": {"network": "bias_free"},
    "bias_free redrawn": {"network": "bias_free", "initialise": "redraw"},
    "dropout": {"network": "dropout"},
    "stochastic_depth": {"network": "stochastic_depth"},
    "pretrained": {"network": user_module.pretrained()},
    "frozen body": {"network": user_module.pretrained(), "freeze": "body", "augment": ()},
    "frozen layers": {"network": user_module.pretrained(), "freeze": "0,1.bias"},
    "frozen layers of our own": {"network": "convnet", "freeze": "layers.0"},
}
OPTIMIZERS = {
    "Lion": functools.partial(user_module.Lion, warmup=3),
    "Nesterov": user_module.Nesterov(decay=0.02),
    "Adagrad": torch.optim.Adagrad,
    "Rprop": torch.optim.Rprop,
}
# In each run of the tests: methods of which most could go wrong with a case, by gradients, copies or refits.
QUICK = {
    "layer_norm": [],
    "group_norm": ["agem"],
    "group_norm redrawn": [],
    "bias_free": [],
    "bias_free redrawn": [],
    "dropout": ["derpp"],
    "stochastic_depth": ["clib"],
    "pretrained": ["rm"],
    "frozen body": ["slda"],
    "frozen layers": ["ewc"],
    "frozen layers of our own": [],
    "Lion": ["rm"],
    "Nesterov": [],
    "Adagrad": [],
    "Rprop": ["er"],
}
MAIN = [name for name in METHODS if "-" not in name]
CASES = [
    pytest.param((case, name), marks=() if name in QUICK[case] else pytest.mark.slow, id=f"{case} {name}")
    for case in (*NETWORKS, *OPTIMIZERS)
    for name in MAIN
    if (case, name) != ("frozen body", "sdp")  # whose head is fixed as well: refused, see test_learner.py
]

WHOLE: dict[Case, Learner] = {}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    method: Method
    options: dict = dataclasses.field(hash=False)

    def learner(self, **changes):
        return new_learner(self.method, **{"network": "mlp:width=12"} | self.options | changes)


@pytest.fixture(params=CASES)
def case(request) -> Case:
    name, method = request.param
    chosen = METERED[method]
    if name in OPTIMIZERS:
        refit = chosen.refit and dataclasses.replace(chosen.refit, optimizer=OPTIMIZERS[name])
        chosen = dataclasses.replace(chosen, optimizer=OPTIMIZERS[name], refit=refit)
    return Case(name, chosen, NETWORKS.get(name, {}))


@pytest.fixture
def whole(case, samples) -> Learner:
    """It was fed everything without a disturbance; shared by the laws, so nobody may feed it more."""
    if case not in WHOLE:
        WHOLE[case] = case.learner()
        feed(WHOLE[case], samples)
    return WHOLE[case]


def test_resume_and_save(case, whole, samples, questions, tmp_path):
    """From a checkpoint and a file, in a program whose own generators stand elsewhere; between two rounds."""
    first, second = case.learner(), case.learner()
    feed(first, samples, stop=29)
    torch.manual_seed(5)
    first.save(tmp_path / "learner.safetensors")
    checkpoint.save(tmp_path, first.state_dict(), at=29)
    second.load_state_dict(checkpoint.load_latest(tmp_path).state)
    assert_same_state(second.state_dict(), first.state_dict())
    for learner in (second, Learner.load(tmp_path / "learner.safetensors")):
        feed(learner, samples, start=29)
        assert_same_state(learner.state_dict(), whole.state_dict())
        assert torch.equal(learner.logits(questions), whole.logits(questions))


def test_purity(case, whole, samples, questions):
    asked = case.learner()
    before = torch.get_rng_state()
    for at in range(SAMPLES):
        feed(asked, samples, at, at + 1)
        if at % 11 == 10:
            first = asked.logits(questions)
            assert torch.equal(first, asked.logits(questions))
    assert_same_state(asked.state_dict(), whole.state_dict())
    assert torch.equal(torch.get_rng_state(), before)  # the user's program has its generator for itself


def test_spec_and_clone(case, whole, samples):
    again = Method.from_json(json.loads(json.dumps(case.method.to_json())))
    assert again == case.method
    one, other = case.learner(), dataclasses.replace(case, method=again).learner()
    assert not storages(one) & storages(other)
    untouched = copy.deepcopy(one.state_dict())
    feed(other, samples)
    assert_same_state(one.state_dict(), untouched)
    assert_same_state(other.state_dict(), whole.state_dict())


def test_what_is_counted_is_what_was_made(case, meter, samples, questions):
    learner = case.learner()
    spent, queries = learner.context.spent, learner.context.queries
    meter.clear()
    for at, (image, label) in enumerate(samples[:SAMPLES], start=1):
        learner.observe(image, label)
        if at in TASK_ENDS:
            learner.end_task()
            learner.predict(questions[:2])
        assert totals(spent, queries) == (meter["forward"], meter["backward"])


def test_learning_takes_place_where_it_may(case, whole):
    """Frozen weights and statistics stand still, others move; the optimizer keeps what was foreseen."""
    network, before = whole.context.network, case.learner().context.network.body.state_dict()
    moved = {name for name, values in network.body.state_dict().items() if not torch.equal(values, before[name])}
    trained = {name for name, p in network.body.named_parameters() if p.requires_grad}
    if case.method.pace.updates_per_sample:
        assert trained <= moved
        buffers = [v for s in whole.trainer.optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
        held = sum(v.nbytes for v in buffers if v.dim())
        if case.method.refit is None:
            assert bytes_held(whole)["optimizer"] == held
    frozen = case.options.get("freeze", "none")
    assert {"none": set(), "body": moved}.get(frozen, {m for m in moved if m.startswith(frozen.split(",")[0])}) == set()


@pytest.mark.quick("dropout")
@pytest.mark.parametrize("network", ["dropout", "stochastic_depth"])
def test_packed_runs_write_the_same_bytes(network, tmp_path):
    both = [small("er", network=network, samples=40), small("clib", network=network, samples=40, seed=2)]
    alone = [kept(run(one, tmp_path / "alone").folder) for one in both]
    packed = run_all(both, LaunchConfig(out=tmp_path / "packed", pack=2))
    assert [kept(one.folder) for one in packed] == alone

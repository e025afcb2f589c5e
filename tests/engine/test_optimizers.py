"""Optimizers of torch and of users as data: what is understood, what is refused, and state that comes back."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

from iblurry.components.edit import edit
from iblurry.engine.optimizer import REFUSED, SGD, Adam, AdamW, Optimizer, as_optimizer, component_of
from iblurry.engine.optimizer_state import reset_state, restore, set_lr, state_bytes, state_of
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.methods import er, method
from iblurry.methods.method import Method
from tests.laws.lawful import HYPERPARAMETERS, new_learner
from tests.laws.user_module import Lion, Nesterov

TORCHS = [name for name, cls in Optimizer.known().items() if cls.__module__.startswith("iblurry")]
ALL = [*(Optimizer.named(name)() for name in TORCHS), as_optimizer(Lion), Nesterov()]


def stepped(optimizer, parameters, times, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(times):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=generator)
        for group in optimizer.param_groups:
            set_lr(group, 0.1)
        optimizer.step()


def parameters():
    return [nn.Parameter(torch.arange(6.0).view(2, 3)), nn.Parameter(torch.ones(4))]


def test_every_optimizer_of_torch_that_needs_gradients_only_is_known():
    classes = [cls for cls in vars(torch.optim).values() if isinstance(cls, type)]
    classes = [cls for cls in classes if issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer]
    assert {cls.__name__ for cls in classes} - REFUSED.keys() == set(TORCHS)
    assert len(TORCHS) >= 11


@pytest.mark.parametrize(
    "given, expected",
    [
        (Adam, Adam()),
        (torch.optim.Adam, Adam()),
        (torch.optim.AdamW, AdamW()),
        (functools.partial(torch.optim.AdamW, betas=(0.8, 0.9)), AdamW(beta1=0.8, beta2=0.9)),
        (torch.optim.SGD, SGD(momentum=0.0, nesterov=False, weight_decay=0.0)),
        (functools.partial(torch.optim.SGD, momentum=0.5), SGD(momentum=0.5, nesterov=False, weight_decay=0.0)),
        (functools.partial(SGD, momentum=0.5), SGD(momentum=0.5)),
        (torch.optim.NAdam, Optimizer.named("NAdam")()),
        (functools.partial(torch.optim.RMSprop, alpha=0.9), Optimizer.named("RMSprop")(alpha=0.9)),
    ],
)
def test_what_people_write_is_understood(given, expected):
    assert Method(optimizer=given).optimizer == expected


@pytest.mark.parametrize(
    "given, named",
    [
        ("adam", "adam"),
        (None, "None"),
        (3, "3"),
        (Optimizer, "Optimizer"),
        (torch.optim.Optimizer, "Optimizer"),
        (torch.optim.Adam([nn.Parameter(torch.zeros(1))]), "Adam"),
        (functools.partial(torch.optim.NAdam, [nn.Parameter(torch.zeros(1))]), "NAdam"),
        (functools.partial(torch.optim.NAdam, lr=1e-3), "lr=0.001"),
        (functools.partial(torch.optim.Adam, amsgrad=True), "amsgrad"),
        (functools.partial(torch.optim.Adam, betas=3), "betas=3"),
        (functools.partial(torch.optim.NAdam, eps="small"), "small"),
        (torch.optim.LBFGS, "LBFGS"),
        (torch.optim.SparseAdam, "SparseAdam"),
        (lambda groups: None, "lambda"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_method_is_made(given, named):
    with pytest.raises(InputError, match=named):
        er(optimizer=given)


def test_an_optimizer_that_cannot_be_built_is_refused():
    class Wrong(Optimizer):
        def build(self, groups):
            return torch.optim.SGD([p for group in groups for p in group])

    with pytest.raises(InputError, match=r"Wrong.build.*2"):
        Wrong().start([[nn.Parameter(torch.zeros(1))], [nn.Parameter(torch.zeros(1))]])
    with pytest.raises(InputError, match=r"NAdam.*-1"):
        Optimizer.named("NAdam")(eps=-1.0).start([parameters()])


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: type(spec).__name__)
def test_an_optimizer_is_data(spec):
    assert Optimizer.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(copy.deepcopy(spec)) == hash(spec)
    (written,) = spec.to_json()
    assert ("@" in written) == (type(spec).__name__ in ("Lion", "Nesterov"))


def test_the_command_line_names_them_and_their_fields():
    made = edit(edit(Experiment.of("er"), "optimizer=NAdam"), "optimizer.betas=0.8,0.9")
    assert made.method.optimizer == Optimizer.named("NAdam")(betas=(0.8, 0.9))
    lion = edit(edit(Experiment.of("er"), "optimizer=Lion"), "optimizer.warmup=7").method.optimizer
    assert lion == component_of(Lion)(warmup=7)
    with pytest.raises(UnknownNameError, match="momentun"):
        edit(Experiment.of("er"), "optimizer.momentun=1")


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("spec", ALL, ids=lambda spec: type(spec).__name__)
def test_an_optimizer_comes_back_as_it_was(spec, groups):
    (p, q), (r, s) = parameters(), parameters()
    one, other = (spec.start([[a, b]] if groups == 1 else [[a], [b]]) for a, b in ((p, q), (r, s)))
    stepped(one, [p, q], 3)
    saved = copy.deepcopy(state_of(one))
    for a, b in ((p, r), (q, s)):
        b.data.copy_(a.data)
    restore(other, spec, saved)
    stepped(one, [p, q], 2)
    stepped(other, [r, s], 2)
    assert torch.equal(p, r)
    assert torch.equal(q, s)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: type(spec).__name__)
def test_what_is_reset_is_as_new_and_the_rest_is_kept(spec):
    """Torch's NAdam, Rprop, ASGD and Adagrad begin with other values than zeros."""
    p, q = parameters()
    used = spec.start([[p, q]])
    stepped(used, [p, q], 3)
    kept = copy.deepcopy(state_of(used)["0"]) if "0" in state_of(used) else None
    reset_state(used, spec, [q])
    if kept is not None:
        assert all(torch.equal(torch.as_tensor(v), torch.as_tensor(kept[n])) for n, v in state_of(used)["0"].items())
    reset_state(used, spec, [p, q])
    (r, s) = parameters()
    new = spec.start([[r, s]])
    p.data.copy_(r.data)
    q.data.copy_(s.data)
    stepped(used, [p, q], 2, seed=2)
    stepped(new, [r, s], 2, seed=2)
    assert torch.equal(p, r)
    assert torch.equal(q, s)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: type(spec).__name__)
def test_bytes_are_measured(spec):
    two = parameters()
    made = spec.start([two])
    stepped(made, two, 1)
    values = [v for state in made.state.values() for v in state.values() if isinstance(v, torch.Tensor) and v.dim()]
    assert state_bytes(spec, two) == sum(v.nbytes for v in values)


def test_known_sizes():
    weights = [nn.Parameter(torch.zeros(5, 3))]
    sizes = [state_bytes(spec, weights) for spec in (Adam(), AdamW(), SGD(), SGD(momentum=0.0, nesterov=False))]
    assert sizes == [120, 120, 60, 0]


def test_a_body_without_trained_weights_has_an_empty_group(samples):
    learner = new_learner(method("clib-released", HYPERPARAMETERS), network="mlp", freeze="body", augment=())
    assert [len(group["params"]) for group in learner.trainer.optimizer.param_groups] == [0, 2]
    for image, label in samples[:20]:
        learner.observe(image, label)
    assert learner.context.updates == 20


def test_names_that_are_taken():
    class Lion(torch.optim.Optimizer):  # another than that of user_module.py
        def step(self, closure=None):
            """Nothing."""

    with pytest.raises(InputError, match="'Lion'"):
        er(optimizer=Lion)

    class NAdam(torch.optim.Optimizer):
        def step(self, closure=None):
            """Nothing."""

    with pytest.raises(InputError, match=r"'NAdam'.*the package's own"):
        er(optimizer=NAdam)


def test_a_step_that_needs_a_closure_is_refused():
    class Probing(torch.optim.Optimizer):
        def step(self, closure):
            """Calls it several times."""

    with pytest.raises(InputError, match="Probing"):
        er(optimizer=Probing)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "spec, theirs",
    [
        (Adam(weight_decay=0.1), functools.partial(torch.optim.Adam, weight_decay=0.1)),
        (AdamW(beta1=0.8, eps=1e-6), functools.partial(torch.optim.AdamW, betas=(0.8, 0.999), eps=1e-6)),
        (SGD(), functools.partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=1e-4)),
        (SGD(momentum=0.0, nesterov=False), functools.partial(torch.optim.SGD, weight_decay=1e-4)),
    ],
    ids=["Adam", "AdamW", "SGD", "SGD without momentum"],
)
def test_own_steps_on_the_cpu_have_the_bits_and_the_state_of_torch(spec, theirs, groups):
    """Also of weights of several types, and of one that gets its first gradient later."""
    ours, others = ([*parameters(), nn.Parameter(torch.ones(3, dtype=torch.float64))] for _ in range(2))
    own = spec.start([ours] if groups == 1 else [ours[:1], ours[1:]])
    torchs = theirs(
        [{"params": others}] if groups == 1 else [{"params": others[:1]}, {"params": others[1:]}], fused=True
    )
    generator = torch.Generator().manual_seed(1)
    for step in range(20):
        own.zero_grad()
        torchs.zero_grad()
        for i, (p, q) in enumerate(zip(ours, others, strict=True)):
            if step or i or spec == SGD():  # torch's SGD fails where some get their first gradient later
                p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
                q.grad = p.grad.clone()
        for group in (*own.param_groups, *torchs.param_groups):
            set_lr(group, 0.1 / (step + 1))
        own.step()
        torchs.step()
        assert all(torch.equal(p, q) for p, q in zip(ours, others, strict=True))
    mine, expected = state_of(own), state_of(torchs)
    assert {place: list(found) for place, found in mine.items()} == {p: list(found) for p, found in expected.items()}
    for place, found in mine.items():
        assert all(torch.equal(value, expected[place][name]) for name, value in found.items())
        assert all(value.dtype is expected[place][name].dtype for name, value in found.items())


def test_a_first_sample_is_learnt_without_the_compiler_of_torch():
    """Its import takes two seconds, of a first sample and of every worker."""
    code = (
        "import sys, numpy, iblurry\n"
        "learner = iblurry.Learner('clib', image=(1, 8, 8), network='mlp', memory=16)\n"
        "learner.observe(numpy.zeros((1, 8, 8), numpy.uint8), 'a')\n"
        "assert learner.context.updates\n"
        "assert not {'torch._dynamo', 'torch._inductor', 'sympy'} & {*sys.modules}"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Captured steps without a GPU, by a stand-in: what cannot be captured runs as it is, and that is said once."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException

from iblurry.augment import Augment, TorchTransform
from iblurry.augment.pipeline import Pipeline
from iblurry.compute import ComputeMeter
from iblurry.engine import graph
from iblurry.engine.eager import Eager
from iblurry.engine.graph import STEADY, CapturedStep, CompiledOrEager, Graph
from iblurry.engine.network import OptimizedNetwork
from iblurry.methods import er
from iblurry.network.build import build
from iblurry.network.weights import seeded
from iblurry.rng import Rng
from tests.laws.lawful import HYPERPARAMETERS, assert_same_state, new_learner
from tests.laws.user_module import Lion
from tests.laws.user_transforms import Negative


class FakeGraph:
    """Counts replays; the step ran at its capture."""

    replays = 0

    def replay(self):
        FakeGraph.replays += 1


class FakeGenerator:
    replaced = 0

    def clone_state(self):
        return self

    def graphsafe_set_state(self, state):
        FakeGenerator.replaced += 1


@pytest.fixture
def engine(monkeypatch):
    """A Graph engine on the CPU, whose graphs are stand-ins."""

    @contextmanager
    def capturing(captured, pool, stream):
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(graph, "cuda_generator", lambda device: FakeGenerator())
    monkeypatch.setattr(FakeGraph, "replays", 0)
    monkeypatch.setattr(FakeGenerator, "replaced", 0)
    monkeypatch.setattr(CapturedStep, "generators_replaced", 0)
    made = Graph.__new__(Graph)
    Eager.__init__(made)
    made.compiles, made.captures, made.pool, made.capturing = False, True, None, None
    return made


def test_a_steady_step_is_captured_and_replayed(engine):
    calls = []
    step = engine.compile(lambda x: calls.append(1) or x + 1, meter=ComputeMeter())
    for _ in range(STEADY + 5):
        step(torch.ones(2))
    assert len(calls) == STEADY + 1
    assert FakeGraph.replays == 5


@pytest.mark.parametrize("why", ["reads a value", "draws on the host"])
def test_what_cannot_be_captured_runs_as_it_is_and_that_is_said_once(engine, monkeypatch, why):
    drawn, calls = [], []

    def step(x):
        calls.append(1)
        drawn.append(torch.rand(()).item() if why == "draws on the host" else 0.0)
        if why == "reads a value" and len(calls) == STEADY + 1:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        return x + 1

    compiled = engine.compile(step)
    other = engine.compile(lambda x: x)

    def learn():
        for _ in range(STEADY + 4):
            with seeded(1):
                assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
                other(torch.ones(3))

    with pytest.warns(UserWarning, match="not captured") as said:
        learn()
    assert len(said) == 1
    assert "and more" not in str(said[0].message)
    assert len(calls) == STEADY + 5  # the capture, and each call
    assert len(set(drawn)) == 1  # also at the call at which the capture was tried
    assert not engine.captures
    assert FakeGenerator.replaced == 1


def test_a_gpu_that_is_full_is_no_reason_to_go_on(engine):
    def step(x):
        if len(calls) == STEADY:
            raise torch.OutOfMemoryError("full")
        calls.append(1)

    calls: list[int] = []
    compiled = engine.compile(step)
    for _ in range(STEADY):
        compiled(torch.ones(1))
    with pytest.raises(torch.OutOfMemoryError):
        compiled(torch.ones(1))
    assert engine.captures


def test_a_body_that_torch_cannot_compile_runs_as_it_is():
    def broken(images):
        raise TorchDynamoException("data-dependent branch")

    body = CompiledOrEager(broken, lambda images: images * 2)
    with pytest.warns(UserWarning, match="data-dependent branch"):
        assert body(torch.ones(1)).item() == 2
    assert body(torch.ones(1)).item() == 2  # warnings are errors in these tests


def test_only_the_packages_own_bodies_take_the_fast_ways(engine, monkeypatch):
    engine.compiles = True
    monkeypatch.setattr(engine, "fuse", lambda function: function)
    own, users = (
        OptimizedNetwork(build(one, (1, 8, 8), 3, rng=Rng(1))) for one in ("mlp", nn.Sequential(nn.Flatten()))
    )
    pipeline = Pipeline((), (1, 8, 8), (0.5,), (0.25,))
    for network in (own, users):
        engine.expect_batch_size(network, pipeline, 4)
    assert own.compiled[4] is own.body
    assert isinstance(users.compiled[4], CompiledOrEager)


def assert_never_captured(captured, usual, samples):
    """Though the engine of the first captures; and both come to the same state."""
    for image, label in samples:
        usual.observe(image, label)
        captured.observe(image, label)
    assert captured.context.updates > STEADY
    assert FakeGraph.replays == 0
    assert_same_state(captured.state_dict(), usual.state_dict())


def test_an_optimizer_with_numbers_on_the_host_is_not_captured(engine, samples):
    """Its step is not, though the engine captures; and weights go the way of an engine that never does."""
    method = er(HYPERPARAMETERS, optimizer=Lion)
    usual, captured = new_learner(method, network="mlp"), new_learner(method, network="mlp", engine=engine)
    assert_never_captured(captured, usual, samples)


def test_a_transform_that_draws_on_the_host_is_not_captured(engine, samples):
    augment = (Augment(pad=1), TorchTransform(nn.Dropout(0.1), works_on="floats"))
    usual, captured = (new_learner(er(HYPERPARAMETERS), augment=augment, engine=one) for one in (None, engine))
    assert_never_captured(captured, usual, samples)
    with_numbers = new_learner(er(HYPERPARAMETERS), augment=(Augment(pad=1), Negative()), engine=engine)
    for image, label in samples:
        with_numbers.observe(image, label)
    assert FakeGraph.replays > 0


def test_pipelines_are_compiled_where_they_can_be_captured(engine, monkeypatch):
    engine.compiles = True
    monkeypatch.setattr(engine, "fuse", lambda function: function)
    compiled = []
    for augment in (Augment(), (Augment(), Negative()), TorchTransform(nn.Identity())):
        pipeline = Pipeline(augment, (1, 8, 8), (0.5,), (0.25,))
        engine.expect_batch_size(OptimizedNetwork(build("mlp", (1, 8, 8), 3, rng=Rng(1))), pipeline, 4)
        compiled.append([type(one).__name__ for one in pipeline.compiled.values()])
    assert compiled == [["method"], ["CompiledOrEager"], []]

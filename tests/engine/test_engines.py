"""Engines: what they refuse, what they prepare, and how a captured step is told from another."""

from __future__ import annotations

import copy

import pytest
import torch

from iblurry.engine import eager
from iblurry.engine.devices import default_device, make_engine
from iblurry.engine.eager import Eager
from iblurry.engine.folding import FoldedBody
from iblurry.engine.graph import _filled, _form
from iblurry.engine.network import OptimizedNetwork
from iblurry.engine.optimizer import SGD, Adam
from iblurry.engine.optimizer_state import reset_state, restore, set_lr, state_of
from iblurry.errors import InputError
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.launch.launch import run
from iblurry.methods import Hyperparameters, bic, er
from iblurry.network.bodies import ConvUnit
from iblurry.network.build import build, open_row
from iblurry.parts.memory import Batch
from iblurry.rng import Rng
from tests.laws.lawful import new_learner

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="says what is said where there is no GPU")


def test_names_of_devices():
    assert type(make_engine("cpu")) is Eager
    assert make_engine("cpu", "bfloat16").precision == "bfloat16"
    with pytest.raises(InputError, match="device='tpu'"):
        make_engine("tpu")
    with pytest.raises(InputError, match="neither 'float32' nor 'bfloat16'"):
        make_engine("cpu", "float16")
    assert default_device(heavy=False) == "cpu"


@NO_GPU
def test_no_gpu_is_said():
    assert default_device(heavy=True) == "cpu"
    with pytest.raises(InputError, match="no GPU can be used here; use 'cpu'"):
        make_engine("cuda")


@pytest.mark.parametrize("where", [{"device": "tpu"}, {"precision": "half"}])
def test_a_run_on_what_is_not_there_writes_nothing(where, tmp_path):
    with pytest.raises(InputError, match=r"tpu|half"):
        run(Experiment.of("er", samples=50), tmp_path / "runs", hardware=Hardware(**where))
    assert not (tmp_path / "runs").exists()


def test_another_precision_gives_another_trajectory(samples, questions):
    logits = []
    for precision in ("float32", "bfloat16"):
        learner = new_learner(er(Hyperparameters(batch=8)), engine=Eager("cpu", precision))
        for image, label in samples:
            learner.observe(image, label)
        logits.append(learner.logits(questions))
    assert logits[1].dtype is torch.float32
    assert not torch.equal(*logits)
    known = slice(0, 5)
    torch.testing.assert_close(logits[0][:, known], logits[1][:, known], rtol=0, atol=0.3)  # bfloat16 has 8 bits


def test_a_form_is_everything_but_the_numbers():
    def form(*args):
        tensors = []
        return _form(args, tensors), tensors

    batch = Batch(torch.ones(2, 3), torch.zeros(2))
    same, tensors = form(batch, {"a": batch}, True, None)
    assert len(tensors) == 4
    assert same == form(Batch(torch.zeros(2, 3), torch.ones(2)), {"a": batch}, True, None)[0]
    others = [
        (Batch(torch.ones(1, 3), torch.zeros(2)), {"a": batch}, True, None),
        (Batch(torch.ones(2, 3).byte(), torch.zeros(2)), {"a": batch}, True, None),
        (batch, {"b": batch}, True, None),
        (batch, {"a": batch}, False, None),
    ]
    assert len({same, *(form(*other)[0] for other in others)}) == 5
    again = _filled((batch, {"a": batch}, True, None), iter(range(4)))
    assert again == (Batch(0, 1), {"a": Batch(2, 3)}, True, None)


def test_the_graph_key_of_a_step_changes_when_the_teacher_begins(samples):
    learner = new_learner(bic(Hyperparameters(batch=8)))
    before = learner.trainer._graph_key()
    for image, label in samples[:20]:
        learner.observe(image, label)
    assert learner.trainer._graph_key() == before
    learner.end_task()
    assert learner.trainer._graph_key() != before


@pytest.mark.parametrize("name", ["resnet18", "convnet"])
def test_folded_answers_are_the_body_s(name):
    network, generator = with_statistics(build(name, (3, 16, 16), 4, rng=Rng(1))).eval(), torch.Generator()
    pixels = torch.randint(256, (3, 3, 16, 16), generator=generator, dtype=torch.uint8)
    folded, images = FoldedBody(network.body, torch.float32), pixels / 64 - 2
    with torch.no_grad():
        folded.refresh()
        torch.testing.assert_close(folded(images), network.body(images), rtol=1e-4, atol=1e-2)
        network.body.layers[0][0].weight.mul_(2.0)
        stale = folded(images)
        folded.refresh()
        assert not torch.allclose(stale, folded(images), rtol=1e-2)
    assert all(unit.fused is None for unit in network.body.modules() if isinstance(unit, ConvUnit))


@pytest.mark.parametrize("count, is_held, is_folded", [(11, False, True), (10, False, False), (10, True, True)])
def test_a_cpu_folds_batch_norm_for_many_images_or_held_weights(count, is_held, is_folded, monkeypatch):
    """The same answers up to rounding, with the weights of that moment, and nothing is left behind."""
    monkeypatch.setattr(eager, "arm_convolutions", lambda body: None)
    network = Eager("cpu").setup(with_statistics(build("convnet", (3, 32, 32), 4, rng=Rng(1))))
    open_row(network, "a", Rng(1))
    images = torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        if is_held:
            network.hold()
        with torch.no_grad():
            features, logits = network.answering(lambda images: images, images)(images)
            plain = network.forward_both(images)
        torch.testing.assert_close(features, plain[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(logits, plain[1], rtol=1e-4, atol=1e-4)
        assert torch.equal(features, plain[0]) is not is_folded
        with torch.no_grad():
            network.body.layers[0][0].weight.mul_(2.0)
            again = network.answering(lambda images: images, images)(images)[0]
        assert torch.equal(again, features) is is_held  # until the next `hold`
    assert all(unit.fused is None for unit in network.body.modules() if isinstance(unit, ConvUnit))


def with_statistics(network):
    """Batch norm's weights and statistics as if it had learnt."""
    generator = torch.Generator().manual_seed(1)
    for norm in network.body.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            for values in (norm.running_var, norm.weight.data):
                values.uniform_(0.5, 1.5, generator=generator)
            for values in (norm.running_mean, norm.bias.data):
                values.normal_(generator=generator)
    return network


@pytest.mark.parametrize("name, is_last", [("convnet", True), ("resnet18", False), ("mlp", False)])
def test_a_convnet_on_a_cpu_has_channels_last(name, is_last, monkeypatch):
    """Images, maps and weights; the values are the same."""
    monkeypatch.setattr(eager, "arm_convolutions", lambda body: None)
    monkeypatch.setattr(eager.mkldnn, "is_available", lambda: True)
    network = Eager("cpu").setup(build(name, (3, 16, 16), 4, rng=Rng(1))).train()
    images, maps = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1)), []
    network.body.layers[0].register_forward_hook(lambda layer, given, made: maps.append(given[0]))
    features, _ = network.forward_both(images)
    weights = [unit.convolution.weight for unit in network.body.modules() if isinstance(unit, ConvUnit)]
    for values in (maps[0], *weights[:1]):  # one of 1x1 is both
        assert values.is_contiguous(memory_format=torch.channels_last) is is_last
    torch.testing.assert_close(features, network.body(images), rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(eager.mkldnn, "is_available", lambda: False)
    assert Eager("cpu").setup(build(name, (3, 16, 16), 4, rng=Rng(1))).layout is torch.contiguous_format


def test_a_twin_shares_nothing():
    network = OptimizedNetwork(build("convnet", (1, 8, 8), 4, rng=Rng(1)))
    open_row(network, "a", Rng(1))
    network.compiled[3] = network.body
    twin = network.twin()
    assert network.compiled == {3: network.body}
    assert twin.compiled == {}
    assert twin.labels == ["a"]
    assert twin.labels is not network.labels
    pointers = {p.data_ptr() for p in network.parameters()}
    assert not pointers & {p.data_ptr() for p in twin.parameters()}


def stepped(optimizer, p, times):
    for _ in range(times):
        p.grad = p.detach() * 0.5 + 1
        set_lr(optimizer.param_groups[0], 0.1)
        optimizer.step()


@pytest.mark.parametrize("spec", [Adam(), SGD()])
def test_an_optimizer_comes_back_as_it_was(spec):
    p, q = (torch.nn.Parameter(torch.arange(6.0).view(2, 3)) for _ in range(2))
    one, other = spec.build([[p]]), spec.build([[q]])
    stepped(one, p, 3)
    saved = state_of(one)
    assert set(saved) == {"0"}
    q.data.copy_(p.data)
    restore(other, spec, saved)
    assert all(
        a.data_ptr() != b.data_ptr() for a, b in zip(saved["0"].values(), state_of(other)["0"].values(), strict=True)
    )
    stepped(one, p, 2)
    stepped(other, q, 2)
    assert torch.equal(p, q)


@pytest.mark.parametrize("spec", [Adam(), SGD(), SGD(momentum=0.0, nesterov=False)])
def test_an_optimizer_that_starts_again_is_a_new_one_to_the_last_bit(spec):
    """Even the sign of a zero is that of a new one, and the buffers stay where they are."""
    p, q = (torch.nn.Parameter(torch.tensor([3.0, 0.0, -0.0, 0.0])) for _ in range(2))
    used, new = spec.build([[p]]), spec.build([[q]])
    stepped(used, p, 3)
    before = places(used)
    reset_state(used, spec, [p])
    p.data.copy_(q.data)
    for gradient in ([1.0, 0.0, -0.0, -0.0], [-0.0, -0.0, 0.0, -0.0]):
        for optimizer, parameter in ((used, p), (new, q)):
            parameter.grad = torch.tensor(gradient)
            set_lr(optimizer.param_groups[0], 0.1)
            optimizer.step()
        assert p.detach().numpy().tobytes() == q.detach().numpy().tobytes()
        for name, values in state_of(new).get("0", {}).items():
            assert state_of(used)["0"][name].numpy().tobytes() == values.numpy().tobytes(), name
    assert places(used) == before


@pytest.mark.parametrize("spec", [Adam(), SGD()])
def test_what_is_put_back_goes_where_the_buffers_are(spec):
    p, q = (torch.nn.Parameter(torch.arange(6.0).view(2, 3)) for _ in range(2))
    one, other = spec.build([[p]]), spec.build([[q]])
    stepped(one, p, 3)
    saved, at_three, before = copy.deepcopy(state_of(one)), p.detach().clone(), places(one)
    restore(one, spec, state_of(one))  # its own
    assert all(torch.equal(values, saved["0"][name]) for name, values in state_of(one)["0"].items())
    stepped(one, p, 2)
    restore(one, spec, saved)
    restore(other, spec, saved)
    p.data.copy_(at_three)
    q.data.copy_(at_three)
    stepped(one, p, 2)
    stepped(other, q, 2)
    assert torch.equal(p, q)
    restore(one, spec, {})  # of one that had not begun
    q.data.copy_(p.data)
    stepped(one, p, 2)
    stepped(spec.build([[q]]), q, 2)
    assert torch.equal(p, q)
    assert places(one) == before


def places(optimizer):
    return {name: values.data_ptr() for name, values in state_of(optimizer).get("0", {}).items()}

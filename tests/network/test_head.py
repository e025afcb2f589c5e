"""The head of fixed rows: closed rows are as if they were not there, and opening one moves nothing."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from iblurry.errors import InputError, UnknownLabelError
from iblurry.network import FLOOR
from iblurry.network.build import build, fresh_bias, fresh_row, fresh_weight
from iblurry.rng import Rng

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())


@pytest.fixture
def network():
    network = build("convnet", (1, 8, 8), 6, rng=Rng(1), width=4)
    for label in ("ship", 7, "deer"):
        row = network.known
        network.expose(label, *fresh_row(Rng(1), row, network.body.features))
    return network


@pytest.fixture
def images():
    return torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(3))


def test_rows_are_given_in_order_of_exposure(network):
    assert [network.row_of(label) for label in ("ship", 7, "deer", "7", "cat")] == [0, 1, 2, None, None]
    assert network.labels == ["ship", 7, "deer"]
    assert (network.rows, network.known, network.open.tolist()) == (6, 3, [True] * 3 + [False] * 3)


def test_closed_rows_answer_the_floor_whatever_their_weights(network, images):
    with torch.no_grad():
        network.head.bias[4] = 1e6
    logits = network.eval()(images)
    features = network.body(images)
    assert (logits[:, 3:] == FLOOR).all()
    torch.testing.assert_close(logits[:, :3], features @ network.head.weight[:3].T + network.head.bias[:3])


def test_closed_rows_get_no_gradient_and_cost_nothing(network, images):
    labels = torch.tensor([0, 1, 2, 1, 0])
    logits = network(images)
    loss = cross_entropy(logits, labels)
    # the closed rows add exact zeros; only the order of the sum, hence the last bit, may differ
    torch.testing.assert_close(loss, cross_entropy(logits[:, :3], labels), rtol=5e-7, atol=0)
    assert (logits.softmax(1)[:, 3:] == 0).all()
    loss.backward()
    assert (network.head.weight.grad[3:] == 0).all()
    assert (network.head.bias.grad[3:] == 0).all()
    assert (network.head.weight.grad[:3].abs().sum(1) > 0).all()


def test_the_forward_pass_hides_no_sync_and_no_copy(network, images):
    seen = []

    class Listen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    with Listen():
        network(images).sum().backward()
    assert "masked_fill" in seen
    assert not {"_local_scalar_dense", "nonzero", "masked_select", "scalar_tensor", "_to_copy"} & set(seen)


def test_the_floor_survives_half_precision(network, images):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(images)
    assert logits.isfinite().all()
    assert (logits.float().softmax(1)[:, 3:] == 0).all()
    assert torch.tensor(FLOOR, dtype=torch.float16).isfinite()


def test_exposing_moves_no_tensor_and_leaves_old_rows_alone(network):
    def addresses():
        return {name: tensor.data_ptr() for name, tensor in network.state_dict().items()}

    placed, objects = addresses(), [id(p) for p in network.parameters()]
    weight, bias = network.head.weight.detach().clone(), network.head.bias.detach().clone()
    new_weight, new_bias = fresh_row(Rng(1), 3, network.body.features)
    assert network.expose("cat", new_weight, new_bias) == 3
    assert addresses() == placed
    assert [id(p) for p in network.parameters()] == objects
    assert torch.equal(network.head.weight[:3], weight[:3])
    assert torch.equal(network.head.bias[:3], bias[:3])
    assert torch.equal(network.head.weight[3], new_weight)
    assert torch.equal(network.head.bias[3:4], new_bias)
    assert all(p.requires_grad for p in network.parameters())


def test_redrawing_the_bias_keeps_the_weights(network):
    weight, bias = network.head.weight.detach().clone(), network.head.bias.detach().clone()
    features = network.body.features
    drawn = fresh_bias(Rng(1), 3, 6, features)
    network.expose("cat", fresh_row(Rng(1), 3, features)[0], drawn)
    assert torch.equal(network.head.weight[:3], weight[:3])
    assert torch.equal(network.head.bias, drawn)
    assert (network.head.bias[:3] != bias[:3]).all()


def test_redrawing_the_head_changes_every_row(network):
    weight = network.head.weight.detach().clone()
    drawn = fresh_weight(Rng(1), 3, 6, network.body.features)
    network.expose("cat", drawn, fresh_bias(Rng(1), 3, 6, network.body.features))
    assert torch.equal(network.head.weight, drawn)
    assert (network.head.weight[:3] != weight[:3]).any(1).all()


def test_fresh_rows_fill_the_bound():
    golden = GOLDEN["linear_init_bound"]
    features, bound = golden["in_features"], golden["weight_and_bias_uniform_bound"]
    weights = torch.stack([fresh_row(Rng(5), row, features)[0] for row in range(50)])
    for drawn in (weights, fresh_weight(Rng(5), 0, 50, features)):
        assert drawn.abs().max() <= bound * (1 + 1e-6)
        assert drawn.max() > 0.999 * bound
        assert drawn.min() < -0.999 * bound
        assert drawn.std().item() == pytest.approx(bound / np.sqrt(3), rel=0.02)
    biases = torch.cat([fresh_row(Rng(5), row, features)[1] for row in range(200)])
    for drawn in (biases, fresh_bias(Rng(5), 0, 200, features)):
        assert 0.95 * bound < drawn.abs().max() <= bound * (1 + 1e-6)
        assert len(drawn.unique()) == 200


def test_fresh_draws_depend_on_seed_and_row_alone():
    assert torch.equal(fresh_row(Rng(1), 4, 32)[0], fresh_row(Rng(1), 4, 32)[0])
    assert not torch.equal(fresh_row(Rng(1), 4, 32)[0], fresh_row(Rng(1), 5, 32)[0])
    assert not torch.equal(fresh_row(Rng(1), 4, 32)[0], fresh_row(Rng(2), 4, 32)[0])
    assert not torch.equal(fresh_bias(Rng(1), 4, 32, 16), fresh_bias(Rng(1), 5, 32, 16))


def test_a_full_head_says_how_many_rows_it_has(network):
    features = network.body.features
    for label in ("a", "b", "c"):
        network.expose(label, torch.zeros(features), torch.zeros(1))
    with pytest.raises(UnknownLabelError, match=r"'d'.* all 6 rows .*`classes` of at least 7"):
        network.expose("d", torch.zeros(features), torch.zeros(1))
    assert network.known == 6


def test_a_label_is_exposed_once(network):
    with pytest.raises(InputError, match="'deer' already has row 2"):
        network.expose("deer", torch.zeros(network.body.features), torch.zeros(1))
    assert network.open.sum() == 3


def test_head_and_body_parameters_are_everything_once(network):
    parts = [id(p) for p in network.head_parameters() + network.body_parameters()]
    assert sorted(parts) == sorted(id(p) for p in network.parameters())
    assert [tuple(p.shape) for p in network.head_parameters()] == [(6, network.body.features), (6,)]


def test_a_state_dict_brings_the_open_rows_along(network, images):
    other = build("convnet", (1, 8, 8), 6, rng=Rng(2), width=4)
    other.load_state_dict(network.state_dict())
    assert torch.equal(other.eval()(images), network.eval()(images))

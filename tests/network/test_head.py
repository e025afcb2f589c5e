"""The head of fixed rows: closed rows are as if they were not there, and opening one moves nothing."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from iblurry.errors import InputError, UnknownLabelError
from iblurry.network import FLOOR
from iblurry.network.build import build, open_row
from iblurry.network.network import Network
from iblurry.rng import Rng


@pytest.fixture
def network():
    network = build("convnet:width=4", (1, 8, 8), 6, rng=Rng(1))
    for label in ("ship", 7, "deer"):
        open_row(network, label, Rng(1))
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


@pytest.mark.parametrize("redraw", ["own", "bias", "all"])
def test_opening_a_row_moves_no_tensor_and_changes_what_is_drawn_again(network, redraw):
    def addresses():
        return {name: tensor.data_ptr() for name, tensor in network.state_dict().items()}

    placed, parameters = addresses(), [id(p) for p in network.parameters()]
    weight, bias = network.head.weight.detach().clone(), network.head.bias.detach().clone()
    assert open_row(network, "cat", Rng(1), redraw=redraw) == 3
    assert addresses() == placed
    assert [id(p) for p in network.parameters()] == parameters
    assert all(p.requires_grad for p in network.parameters())
    assert network.head.weight[3].all()
    assert network.head.bias[3]
    assert (network.head.weight[:3] != weight[:3]).any(1).tolist() == [redraw == "all"] * 3
    assert (network.head.bias[:3] != bias[:3]).tolist() == [redraw != "own"] * 3


def drawn_head(rows, features, seed, redraw="own"):
    network = Network(nn.Identity(), rows, features=features)
    for row in range(rows):
        open_row(network, row, Rng(seed), redraw=redraw)
    return network.head.weight.detach(), network.head.bias.detach()


@pytest.mark.parametrize("redraw", ["own", "all"])
def test_fresh_rows_fill_the_bound(golden, redraw):
    features = golden["linear_init_bound"]["in_features"]
    bound = golden["linear_init_bound"]["weight_and_bias_uniform_bound"]
    weights, biases = drawn_head(60, features, seed=5, redraw=redraw)
    assert weights.abs().max() <= bound * (1 + 1e-6)
    assert weights.max() > 0.999 * bound
    assert weights.min() < -0.999 * bound
    assert weights.std().item() == pytest.approx(bound / np.sqrt(3), rel=0.02)
    assert 0.95 * bound < biases.abs().max() <= bound * (1 + 1e-6)
    assert len(biases.unique()) == 60


def test_fresh_draws_depend_on_seed_and_row_alone():
    (few, _), (many, biases), (other, _) = drawn_head(3, 32, 1), drawn_head(5, 32, 1), drawn_head(3, 32, 2)
    assert torch.equal(few, many[:3])
    assert not torch.equal(many[0], many[1])
    assert not torch.equal(few, other)
    assert not torch.equal(biases, drawn_head(5, 32, 1, redraw="bias")[1])


def test_a_label_is_exposed_once_and_a_full_head_says_how_many_rows_it_has(network):
    with pytest.raises(InputError, match=r"'deer' .* 2"):
        open_row(network, "deer", Rng(1))
    for label in ("a", "b", "c"):
        open_row(network, label, Rng(1))
    with pytest.raises(UnknownLabelError, match=r"'d'.* 6 .* 7"):
        open_row(network, "d", Rng(1))
    assert network.known == network.open.sum() == 6

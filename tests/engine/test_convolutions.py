"""Convolutions of our own in a body, and the stream for gradients of weights with a stand-in for CUDA's streams."""

import copy
from contextlib import contextmanager, suppress

import pytest
import torch

from iblurry.engine.convolutions import LinearFunction, OwnConvolutions, WeightStream
from iblurry.engine.network import OptimizedNetwork
from iblurry.network.bodies import ConvUnit, ResNet
from iblurry.network.build import build
from iblurry.rng import Rng

CPU = torch.device("cpu")


class Stream:
    """Notes what waits for what."""

    def __init__(self, device=None):
        self.waits = []

    def record_event(self):
        return "mark", self

    def wait_event(self, event):
        self.waits.append(event)

    def wait_stream(self, stream):
        self.waits.append(stream)


@pytest.fixture
def main(monkeypatch):
    running = [Stream()]

    @contextmanager
    def stream(inner):
        running.append(inner)
        yield
        running.pop()

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: running[-1])
    monkeypatch.setattr(torch.cuda, "stream", stream)
    return running[0]


def compute():
    """The stream it runs on."""
    return torch.cuda.current_stream()


def test_outside_a_pass_gradients_are_computed_where_everything_is(main):
    stream = WeightStream(CPU)
    assert stream.run(stream.mark(), torch.zeros(1), [], compute) is main
    assert main.waits == []


def test_in_a_pass_they_wait_for_what_they_read_and_the_end_waits_for_them(main):
    stream = WeightStream(CPU)
    with stream.open():
        side = stream.run(stream.mark(), torch.zeros(1), [], compute)
        assert side is not main
        assert side.waits == [("mark", main)]
        assert main.waits == []
    assert main.waits == [side]
    assert stream.run(stream.mark(), torch.zeros(1), [], compute) is main


def test_a_pass_without_any_waits_for_nothing(main):
    stream = WeightStream(CPU)
    with stream.open():
        stream.run(stream.mark(), torch.zeros(1), [], compute)
    before = list(main.waits)
    with stream.open():
        pass
    assert main.waits == before


def test_what_they_read_is_kept_until_the_pass_has_waited_for_them(main):
    stream, read = WeightStream(CPU), torch.zeros(1)
    kept = []
    main.wait_stream = lambda side: kept.append(any(one is read for one in stream._read))
    with stream.open():
        stream.run(stream.mark(), torch.zeros(1), [read], compute)
    assert kept == [True]
    assert stream._read == []


def test_a_second_gradient_of_a_weight_waits_for_the_first_as_autograd_will_add_them(main):
    stream, weight = WeightStream(CPU), torch.zeros(1)
    with stream.open():
        side = stream.run(stream.mark(), weight, [], compute)
        assert stream.run(stream.mark(), weight, [], compute) is main
        assert main.waits == [side]
        assert stream.run(stream.mark(), torch.zeros(1), [], compute) is side
    with stream.open():
        assert stream.run(stream.mark(), weight, [], compute) is side


def test_a_pass_that_fails_is_waited_for(main):
    stream = WeightStream(CPU)
    with suppress(ValueError), stream.open():
        side = stream.run(stream.mark(), torch.zeros(1), [], compute)
        raise ValueError
    assert main.waits == [side]
    assert stream.mark() is None


def test_a_copy_has_a_stream_of_its_own(main):
    stream = WeightStream(CPU)
    one, other = copy.deepcopy([stream, stream])
    assert one is other
    assert one is not stream
    assert one._stream is not stream._stream


def test_a_pass_on_another_stream_waits_for_the_rounded_weights(main):
    units, other = [ConvUnit(2, 2)], Stream()
    own = OwnConvolutions(units, lambda maps, unit: maps, None, WeightStream(CPU))
    with own.rounded(), torch.cuda.stream(other):
        assert other.waits == []
        with own.rounded():
            assert other.waits == [("mark", main)]
    with torch.cuda.stream(other), own.rounded():
        assert other.waits == [("mark", main)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_layer_has_the_gradients_that_torch_finds(main, dtype):
    head = torch.nn.Linear(6, 3)
    values = torch.randn(5, 6).to(dtype).requires_grad_()
    weights = torch.randn(5, 3)

    def gradients(layer):
        with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
            logits = layer(values)
        return logits, *torch.autograd.grad((logits.float() * weights).sum(), (values, *head.parameters()))

    expected = gradients(head)
    found = gradients(lambda values: LinearFunction.apply(values, *head.parameters(), WeightStream(CPU)))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_gradients_of_a_linear_layer_are_not_copied_as_they_are_not_there_yet(main, monkeypatch):
    stream, head, made = WeightStream(CPU), torch.nn.Linear(6, 3), []
    run = stream.run

    def noting(*given):
        found = run(*given)
        made.extend(values.data_ptr() for values in found)
        return found

    monkeypatch.setattr(stream, "run", noting)
    with stream.open():
        LinearFunction.apply(torch.randn(5, 6), *head.parameters(), stream).sum().backward()
    assert made == [p.grad.data_ptr() for p in head.parameters()]
    assert main.waits  # for the stream they were computed on


def test_weights_are_rounded_for_one_forward_pass():
    seen = []

    def convolve(maps, unit):
        seen.append((unit.weight_bf16, unit.convolution.weight))
        return unit.convolution(maps)

    network = OptimizedNetwork(build("convnet", (3, 16, 16), 4, rng=Rng(1)))
    units = [module for module in network.body.modules() if isinstance(module, ConvUnit)][1:]
    network.convolutions = OwnConvolutions(units, convolve)
    network.precision = torch.bfloat16
    network(torch.zeros(2, 3, 16, 16))
    assert len(seen) == len(units)
    for rounded, weight in seen:
        assert not rounded.requires_grad
        assert torch.equal(rounded, weight.to(torch.bfloat16))
    assert all(unit.weight_bf16 is None for unit in units)
    before = seen[0][0].clone()
    units[0].convolution.weight.data.add_(1)
    network(torch.zeros(2, 3, 16, 16))
    assert torch.equal(seen[0][0], before)  # still what a backward pass of the first one needs
    assert torch.equal(seen[len(units)][0], units[0].convolution.weight.to(torch.bfloat16))


def test_what_follows_a_convolution_takes_the_sum_behind_it_and_can_be_left_out():
    sums = []

    def finish(maps, unit, plus):
        sums.append(plus is not None)
        maps = torch.relu(unit.norm(maps))
        return maps if plus is None else maps + plus

    body, images = ResNet(3, blocks=(1, 1, 1, 1), stem="cifar").eval(), torch.randn(2, 3, 16, 16)
    expected = body(images)
    units = [module for module in body.modules() if isinstance(module, ConvUnit)]
    own = OwnConvolutions(units, lambda maps, unit: unit.convolution(maps), finish)
    assert torch.equal(body(images), expected)
    assert (len(sums), sum(sums)) == (len(units), 4)  # one of a block
    with own.left_out():
        assert torch.equal(body(images), expected)
    assert len(sums) == len(units)


def test_batches_of_sizes_that_nobody_announced_train_without_own_kernels():
    """For each size kernels would have to be compiled, and the first batches of a stream have many."""
    seen = []
    network = OptimizedNetwork(build("convnet", (3, 16, 16), 4, rng=Rng(1))).train()
    units = [module for module in network.body.modules() if isinstance(module, ConvUnit)]
    network.convolutions = OwnConvolutions(units, lambda maps, unit: seen.append(len(maps)) or unit.convolution(maps))
    network.precision = torch.bfloat16
    network.compiled[4] = network.body
    for size in (1, 3, 4):
        network(torch.zeros(size, 3, 16, 16))
    assert set(seen) == {4}
    network.compiled.clear()  # an engine that compiles nothing uses them for all sizes
    network(torch.zeros(3, 3, 16, 16))
    assert set(seen) == {3, 4}

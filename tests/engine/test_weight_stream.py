"""Which gradients of weights are computed beside a backward pass, with a stand-in for CUDA's streams."""

import copy
from contextlib import contextmanager, suppress

import pytest
import torch

from iblurry.engine.fused import OwnConvolutions
from iblurry.engine.weight_stream import LinearFunction, WeightStream
from iblurry.network.bodies import ConvUnit

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

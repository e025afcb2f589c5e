"""Initial weights of a body: drawn again by the package's rules, or made by the user's own code from a seed."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from iblurry.errors import InputError
from iblurry.rng import Rng

RULED = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)  # layers whose weights are drawn by rules of the package


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """torch's global generators start from this seed inside; afterwards they are as they were before.

    Parameters
    ----------
    seed : int
        Of the CPU's generator and of the device's.
    device : torch.device, optional
        A GPU whose generator is seeded too. A captured graph reads it at each replay.
    """
    generators = [torch.default_generator]
    if device is not None and device.type == "cuda":
        generators.append(cuda_generator(device))
    before = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


def cuda_generator(device: torch.device) -> torch.Generator:
    """The global generator of a GPU."""
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


@torch.no_grad()
def redraw(body: nn.Module, rng: Rng) -> None:
    """Draws all weights of a body afresh, in place.

    Convolutions: Kaiming normal, fan-out, ReLU gain, bias 0. Batch norm: weight 1, bias 0, fresh statistics.
    Linear layers: uniform in ±1/sqrt(inputs). Other layers: their `reset_parameters`.

    Parameters
    ----------
    body : nn.Module
        InputError if it has weights that are none of these.
    rng : Rng
        Where the numbers come from.
    """
    seed = rng.seed_for("network", 0)
    generator = torch.Generator().manual_seed(seed)
    others = any(callable(getattr(m, "reset_parameters", None)) and not isinstance(m, RULED) for m in body.modules())
    with seeded(seed) if others else nullcontext():  # torch's own generators belong to all threads
        for name, module in body.named_modules():
            _redraw_layer(name or type(body).__name__, module, generator)


def _redraw_layer(name: str, module: nn.Module, generator: torch.Generator) -> None:
    weights = list(module.parameters(recurse=False))
    if is_parametrized(module):
        raise _no_rule(name, module)
    if isinstance(module, nn.Conv2d):
        fresh = torch.empty(module.weight.shape)  # drawn on the CPU: every device starts from the same weights
        nn.init.kaiming_normal_(fresh, mode="fan_out", nonlinearity="relu", generator=generator)
        module.weight.copy_(fresh)
        if module.bias is not None:
            module.bias.zero_()
    elif isinstance(module, nn.BatchNorm2d):
        module.reset_parameters()
    elif isinstance(module, nn.Linear):
        bound = 1 / math.sqrt(module.in_features)
        for parameter in weights:
            parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
    elif callable(getattr(module, "reset_parameters", None)):
        if weights or any(True for _ in module.buffers(recurse=False)):
            fresh_module = copy.deepcopy(module).cpu()
            fresh_module.reset_parameters()  # type: ignore[operator]
            module.load_state_dict(fresh_module.state_dict())
    elif weights:
        raise _no_rule(name, module)


def _no_rule(name: str, module: nn.Module) -> InputError:
    return InputError(
        f"The weights of {name!r}, a {type(module).__name__}, cannot be drawn again: give it a method "
        "reset_parameters(), or keep its first weights with initialise='keep'."
    )

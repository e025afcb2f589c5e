"""The state of a torch optimizer: saved, restored bit for bit, reset as if it were new, and measured."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from iblurry.engine.cpu_optimizer import CPUSGD, CPUAdam, CPUAdamW
from iblurry.engine.optimizer import Optimizer

OURS = (CPUAdam, CPUAdamW, CPUSGD)
ZEROS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, *OURS)  # a new state is zeros, so it is reset in place
NOT_SAVED = ("params", "lr")  # of a param group: the learning rate is set before each step
State = dict[str, Any]


def set_lr(group: dict[str, Any], rate: float) -> None:
    """The learning rate of the next step."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def state_of(optimizer: torch.optim.Optimizer) -> State:
    """Buffers and numbers by the position of their parameter; of a user's optimizer the groups' values, too."""
    found: State = {
        str(i): {name: v for name, v in optimizer.state.get(p, {}).items() if v is not None}
        for i, p in enumerate(_parameters(optimizer))
    }
    found = {place: buffers for place, buffers in found.items() if buffers}
    if not _is_torchs(optimizer):
        found["groups"] = [_group_values(group) for group in optimizer.param_groups]
        found["others"] = {name: value for name, value in optimizer.state.items() if not isinstance(name, Tensor)}
    return found


def zeros_like_state(optimizer: torch.optim.Optimizer, state: State) -> State:
    """The tensors that a state has for each parameter, as zeros of the parameter's size."""
    return {
        str(i): {
            name: torch.zeros_like(p)
            for name, value in state.get(str(i), {}).items()
            if isinstance(value, Tensor) and value.dim()
        }
        for i, p in enumerate(_parameters(optimizer))
    }


def restore(optimizer: torch.optim.Optimizer, spec: Optimizer, state: State) -> bool:
    """Loads what `state_of` gave; existing buffers are overwritten in place, as captured steps know their address.

    Returns whether buffers were replaced all the same, so that steps must be captured again.
    """
    unused = [p for i, p in enumerate(_parameters(optimizer)) if str(i) not in state]  # had taken no step yet
    replaced = bool(unused) and reset_state(optimizer, spec, unused)
    device_steps = {p: _keeps_steps_on_device(group) for group in optimizer.param_groups for p in group["params"]}
    for i, p in enumerate(_parameters(optimizer)):
        held, saved = optimizer.state[p], state.get(str(i), {})
        for name in [name for name, value in held.items() if value is not None and name not in saved and saved]:
            del held[name]
        for name, values in saved.items():
            old = held.get(name)
            if isinstance(old, Tensor) and isinstance(values, Tensor) and old.shape == values.shape:
                old.copy_(values)
            elif isinstance(values, Tensor):
                held[name] = _like_parameter(p, values, moves=name != "step" or device_steps[p])
                replaced = True
            else:
                held[name] = copy.deepcopy(values)
    for group, values in zip(optimizer.param_groups, state.get("groups", ()), strict=False):
        group.update(copy.deepcopy(values))
    for name, value in state.get("others", {}).items():
        optimizer.state[name] = copy.deepcopy(value)
    return replaced


def reset_state(optimizer: torch.optim.Optimizer, spec: Optimizer, parameters: Sequence[Tensor]) -> bool:
    """These parameters' state becomes that of a new optimizer; the next step is that of a new optimizer.

    In place where a new state is zeros. A new SGD takes the first gradient g as it is; -0.0 + g is g to the last bit,
    0.0 + g is not where g is -0.0. Other state is dropped, so that the optimizer makes it anew.

    Returns whether buffers were replaced, so that steps must be captured again.
    """
    if type(optimizer) in ZEROS:
        for p in parameters:
            for name, values in optimizer.state.get(p, {}).items():
                if values is not None:  # SGD without momentum has a name but no buffer
                    values.fill_(-0.0 if name == "momentum_buffer" else 0.0)
        return False
    fresh = spec.start([group["params"] for group in optimizer.param_groups])
    for p in parameters:
        optimizer.state.pop(p, None)
        if p in fresh.state:  # made by its constructor
            optimizer.state[p] = fresh.state[p]
    if len(parameters) == len(_parameters(optimizer)):
        for group, new in zip(optimizer.param_groups, fresh.param_groups, strict=True):
            group.update(_group_values(new))
        for name in [name for name in optimizer.state if not isinstance(name, Tensor)]:
            del optimizer.state[name]
    return True


def state_bytes(spec: Optimizer, parameters: Sequence[Tensor]) -> int:
    """Bytes of the buffers that an optimizer keeps for these parameters, measured; single numbers do not count."""
    shapes = Counter((tuple(p.shape), p.dtype) for p in parameters)
    return sum(count * _measured(spec, shape, dtype) for (shape, dtype), count in shapes.items())


@functools.lru_cache(maxsize=1024)
def _measured(spec: Optimizer, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Measures the bytes of state by one step of a parameter of this shape."""
    p = nn.Parameter(torch.zeros(shape, dtype=dtype))
    p.grad = torch.zeros_like(p)
    made = spec.start([[p]])
    made.step()
    return sum(v.nbytes for v in made.state[p].values() if isinstance(v, Tensor) and (v.dim() or not p.dim()))


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _is_torchs(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is one of torch's own or stands for one: these change nothing in their groups."""
    return type(optimizer) in OURS or type(optimizer).__module__.startswith("torch.optim")


def _group_values(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in NOT_SAVED}


def _keeps_steps_on_device(group: dict[str, Any]) -> bool:
    return bool(group.get("capturable") or group.get("fused"))


def _like_parameter(p: Tensor, values: Tensor, *, moves: bool) -> Tensor:
    """The values on the parameter's device and in its memory layout."""
    if values.shape == p.shape and moves:
        return torch.empty_like(p, dtype=values.dtype).copy_(values)
    return torch.empty_like(values, device=p.device if moves else values.device).copy_(values)

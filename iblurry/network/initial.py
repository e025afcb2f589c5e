"""Every starting weight, drawn from the dice and never from the global generator."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from iblurry.rng import Rng


@torch.no_grad()
def initialise(body: nn.Module, rng: Rng, *, step: int = 0) -> None:
    """Draw all weights of a body afresh, in place; each step is another draw.

    Convolutions: Kaiming normal, fan-out, ReLU gain. Batch norm: weight 1, bias 0, fresh statistics.
    Linear layers: uniform in ±1/sqrt(inputs).
    """
    high, low = rng.uniforms("network", step, 2).tolist()
    generator = torch.Generator().manual_seed((int(high * 2**32) << 31) | int(low * 2**31))  # 63 bits
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            fresh = torch.empty(module.weight.shape)  # drawn on the CPU: every device starts from the same weights
            nn.init.kaiming_normal_(fresh, mode="fan_out", nonlinearity="relu", generator=generator)
            module.weight.copy_(fresh)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            for parameter in (module.weight, module.bias):
                parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
        else:
            assert not any(True for _ in module.parameters(recurse=False)), f"no rule to draw a {type(module).__name__}"


def fresh_row(rng: Rng, row: int, features: int) -> tuple[Tensor, Tensor]:
    """Weight (features,) and bias (1,) of a head row that opens, uniform in ±1/sqrt(features)."""
    drawn = _uniform(rng, "head", step=row, n=features + 1, bound=1 / math.sqrt(features))
    return drawn[:features], drawn[features:]


def fresh_bias(rng: Rng, row: int, rows: int, features: int) -> Tensor:
    """The whole bias (rows,) drawn again as `row` opens, uniform in ±1/sqrt(features)."""
    return _uniform(rng, "head bias", step=row, n=rows, bound=1 / math.sqrt(features))


def fresh_weight(rng: Rng, row: int, rows: int, features: int) -> Tensor:
    """The whole weight (rows, features) drawn again as `row` opens, uniform in ±1/sqrt(features)."""
    drawn = _uniform(rng, "head weight", step=row, n=rows * features, bound=1 / math.sqrt(features))
    return drawn.view(rows, features)


def _uniform(rng: Rng, purpose: str, *, step: int, n: int, bound: float) -> Tensor:
    return torch.from_numpy(((2 * rng.uniforms(purpose, step, n) - 1) * bound).astype(np.float32))
